//! Executions whose end is unknown and that stay counted, until somebody knows that they are over.
//!
//! The core cannot ask an engine. It says which executions these are, as often as it is asked, and takes
//! [`crate::lease::Outcome::Lost`] as the answer. Whoever asks the engines keeps no books of its own: an execution is on
//! the list exactly as long as it is unresolved.

use super::Pool;
use crate::event::EventKind;
use crate::lease::Unresolved;
use crate::membership::{BackendRef, Phase};
use crate::time::Timestamp;
use std::sync::Arc;

impl Pool {
    /// The open leases whose end is unknown; see [`Unresolved`]. Looks at every open lease when there is one, else at
    /// none.
    #[must_use]
    pub fn unresolved(&self) -> Vec<Unresolved> {
        if self.leases.ambiguous() == 0 {
            return Vec::new();
        }
        let open = self.leases.iter().filter(|(_, lease)| lease.ambiguous);
        open.map(|(id, lease)| Unresolved {
            lease: id,
            presented: lease.presented,
            backend: Arc::clone(&self.backends.at(lease.backend.slot()).info),
        })
        .collect()
    }

    /// The open leases on a backend; 0 when the incarnation is forgotten.
    #[must_use]
    pub fn outstanding_on(&self, backend: BackendRef) -> u32 {
        self.backends.get(backend).map_or(0, |backend| backend.outstanding)
    }

    /// Grants nothing more on a backend until its unresolved executions are resolved: an engine that runs empty can
    /// say so. Nothing happens when there are none, or when the incarnation is gone. Its sessions move with their next
    /// turn.
    pub fn hold_back(&mut self, backend: BackendRef, now: Timestamp) {
        self.advance(now);
        let Some(found) = self.backends.get_mut(backend) else {
            return;
        };
        if found.phase == Phase::Removed || found.unresolved == 0 || found.held_back {
            return;
        }
        found.held_back = true;
        let (info, unresolved) = (Arc::clone(&found.info), found.unresolved);
        self.record(EventKind::BackendHeldBack {
            backend: info,
            unresolved,
        });
        self.changed();
        self.refresh(backend.slot());
    }

    /// One unresolved execution of the backend at `slot` is over. The caller tells selection.
    pub(super) fn note_resolved(&mut self, slot: u32) {
        let backend = self.backends.at_mut(slot);
        backend.unresolved -= 1;
        if backend.unresolved == 0 && std::mem::take(&mut backend.held_back) {
            let backend = Arc::clone(&backend.info);
            self.record(EventKind::BackendReleased { backend });
        }
        self.changed();
    }
}
