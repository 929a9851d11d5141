//! Probes, with stamps that make late answers harmless.

use super::Pool;
use crate::health::Probe;
use crate::membership::BackendRef;
use crate::time::Timestamp;

impl Pool {
    /// Begins a probe of a backend; `None` when it must not be asked now: the servers are paused, the pool is over, or
    /// the incarnation is gone. A probe of it that was begun before is void.
    pub fn begin_probe(&mut self, backend: BackendRef, now: Timestamp) -> Option<Probe> {
        todo!()
    }

    /// Takes in the answer to a probe. Ignored unless it is the latest of its backend, and no update began meanwhile.
    /// Whether it was taken in.
    pub fn finish_probe(&mut self, probe: &Probe, alive: bool, now: Timestamp) -> bool {
        todo!()
    }
}
