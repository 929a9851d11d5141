//! Engine connections: one pool per backend incarnation.
use crate::config::Timeouts;
use crate::shared::SharedPool;
use crate::stats::Counters;
use std::sync::Arc;
pub(crate) struct Upstreams {
    shared: Arc<SharedPool>,
}
impl Upstreams {
    pub(crate) fn new(shared: Arc<SharedPool>, _counters: Arc<Counters>, _timeouts: &Timeouts) -> Self {
        Self { shared }
    }
    pub(crate) fn shared(&self) -> &Arc<SharedPool> {
        &self.shared
    }
    pub(crate) fn close_idle(&self) {}
}
