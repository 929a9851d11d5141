//! Membership operations: who is in the pool, and who is alive.

use super::Pool;
use crate::error::Error;
use crate::event::EventKind;
use crate::membership::{Admission, BackendInfo, BackendSpec, Phase};
use crate::time::Timestamp;
use std::sync::Arc;

impl Pool {
    /// Registers a backend, or updates the capacity of the live one with the same address and id.
    ///
    /// An address that was removed before gets a new incarnation, which counts from 0. A backend that is being drained
    /// stays so. Fails with [`Error::InvalidBackendId`] when the id is not usable, names a backend at another address,
    /// or the address belongs to a backend with another id.
    pub fn add_backend(&mut self, spec: BackendSpec, now: Timestamp) -> Result<Arc<BackendInfo>, Error> {
        self.advance(now);
        let admission = self.backends.admit(spec, self.active.elapsed())?;
        let (Admission::Added(slot) | Admission::Updated { slot, .. } | Admission::Unchanged(slot)) = admission;
        self.refresh(slot);
        let backend = self.backends.at(slot);
        let (info, health) = (Arc::clone(&backend.info), backend.vitals.health());
        match admission {
            Admission::Added(_) => {
                self.changed();
                self.record(EventKind::BackendAdded {
                    backend: Arc::clone(&info),
                    health,
                });
            }
            Admission::Updated { before, .. } => {
                self.record(EventKind::BackendUpdated {
                    backend: Arc::clone(&info),
                    before,
                });
                self.changed();
            }
            Admission::Unchanged(_) => {}
        }
        self.pump();
        Ok(info)
    }

    /// Stops new executions on a backend; those it has run on. Returns how many they are.
    ///
    /// Fails with [`Error::UnknownBackend`].
    pub fn drain_backend(&mut self, id: &str, now: Timestamp) -> Result<u32, Error> {
        self.advance(now);
        let slot = self.backends.slot_of(id)?;
        let backend = self.backends.at_mut(slot);
        let outstanding = backend.outstanding;
        if backend.phase == Phase::Serving {
            backend.phase = Phase::Draining;
            let backend = Arc::clone(&backend.info);
            self.record(EventKind::BackendDraining { backend, outstanding });
            self.changed();
            self.refresh(slot);
        }
        Ok(outstanding)
    }

    /// Takes a drained backend, or one that is still draining, back into routing: the same incarnation, with what it
    /// still runs. It warms up like a new one, since its sessions may have moved. Nothing happens to one that is not
    /// draining.
    ///
    /// Fails with [`Error::UnknownBackend`], and with [`Error::InvalidTransition`] when it is being retired.
    pub fn resume_backend(&mut self, id: &str, now: Timestamp) -> Result<(), Error> {
        self.advance(now);
        let slot = self.backends.slot_of(id)?;
        match self.backends.at(slot).phase {
            Phase::Draining => {
                let backend = self.backends.at_mut(slot);
                backend.phase = Phase::Serving;
                let backend = Arc::clone(&backend.info);
                self.refresh(slot);
                self.record(EventKind::BackendResumed { backend });
                self.changed();
                self.pump();
                Ok(())
            }
            Phase::Retiring => Err(Error::InvalidTransition {
                operation: "resuming a backend",
                state: format!("backend {id} is being retired"),
            }),
            Phase::Serving | Phase::Removed => Ok(()),
        }
    }

    /// Takes a backend out of the pool at once; its open leases run on and are settled as usual. Returns how many they
    /// are. The incarnation is forgotten when the last of them is settled.
    ///
    /// Fails with [`Error::UnknownBackend`].
    pub fn remove_backend(&mut self, id: &str, now: Timestamp) -> Result<u32, Error> {
        self.advance(now);
        let slot = self.backends.slot_of(id)?;
        self.backends.retire(slot);
        self.refresh(slot);
        let backend = self.backends.at(slot);
        let outstanding = backend.outstanding;
        let backend = Arc::clone(&backend.info);
        self.record(EventKind::BackendRemoved { backend, outstanding });
        self.changed();
        if outstanding == 0 {
            self.forget(slot);
        }
        Ok(outstanding)
    }
}
