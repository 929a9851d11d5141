//! By which ids engines know executions whose end may become unknown.

use crate::request_id::AbortIds;
use http::HeaderValue;
use parking_lot::Mutex;
use router_core::lease::LeaseId;
use std::collections::HashMap;

/// How to reach one execution on its engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clue {
    pub(crate) ids: AbortIds,
    /// The client's own credentials; the engines' key otherwise.
    pub(crate) authorization: Option<HeaderValue>,
}

/// The clues of one pool. Whoever ends a lease forgets its clue.
#[derive(Debug, Default)]
pub(crate) struct Clues(Mutex<HashMap<LeaseId, Clue>>);

impl Clues {
    pub(crate) fn note(&self, lease: LeaseId, clue: Clue) {
        if !clue.ids.is_empty() {
            self.0.lock().insert(lease, clue);
        }
    }

    pub(crate) fn find(&self, lease: LeaseId) -> Clue {
        self.0.lock().get(&lease).cloned().unwrap_or_default()
    }

    pub(crate) fn forget(&self, lease: LeaseId) {
        self.0.lock().remove(&lease);
    }
}
