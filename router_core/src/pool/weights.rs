//! What is known about the weights of single backends, and registration in bulk.

use super::Pool;
use crate::error::Error;
use crate::membership::{BackendInfo, BackendRef, BackendSpec};
use crate::time::Timestamp;
use std::sync::Arc;

impl Pool {
    /// Takes in the version that an engine says to run. It is eligible while that is the published one. A tainted
    /// backend stays so unless it was `reloaded` in full. Ignored for an incarnation that is gone; whether it was
    /// taken in.
    pub fn report_weights(&mut self, backend: BackendRef, version: u64, reloaded: bool, now: Timestamp) -> bool {
        todo!()
    }

    /// Takes in that an update of a backend failed or is in doubt: it is not eligible, and no publication changes that,
    /// until a full reload is reported. Ignored for an incarnation that is gone; whether it was taken in.
    pub fn taint_backend(&mut self, backend: BackendRef, now: Timestamp) -> bool {
        todo!()
    }

    /// Registers all of `specs` or, when one of them is refused, none. With `replace`, the capacity of a live backend
    /// changes to the given one; without, another capacity is [`Error::IdempotencyConflict`].
    pub fn add_backends(
        &mut self,
        specs: Vec<BackendSpec>,
        replace: bool,
        now: Timestamp,
    ) -> Result<Vec<Arc<BackendInfo>>, Error> {
        todo!()
    }

    /// Drains a backend and, once nothing runs on it, removes it: call it again when [`Self::revision`] has changed.
    ///
    /// With a generation, an older or newer incarnation is left alone ([`Error::UnknownBackend`]). Fails with
    /// [`Error::BackendBusy`] while executions are outstanding on it.
    pub fn retire_backend(&mut self, id: &str, generation: Option<u32>, now: Timestamp) -> Result<(), Error> {
        todo!()
    }
}
