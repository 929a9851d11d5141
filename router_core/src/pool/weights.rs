//! What is known about the weights of single backends, and registration in bulk.

use super::Pool;
use crate::error::Error;
use crate::event::EventKind;
use crate::lease::{Entry, LeaseId};
use crate::membership::{BackendInfo, BackendRef, BackendSpec, Phase};
use crate::time::Timestamp;
use crate::version::{Published, Weights};
use std::sync::Arc;

impl Pool {
    /// Takes in the version that an engine says to run. It is eligible while that is the published one. A tainted
    /// backend stays so unless it was `reloaded` in full. Ignored for an incarnation that is gone; whether it was
    /// taken in.
    pub fn report_weights(&mut self, backend: BackendRef, version: u64, reloaded: bool, now: Timestamp) -> bool {
        self.advance(now);
        if !self.is_live(backend) {
            return false;
        }
        let published = self.lifecycle.published.map(|published| published.version);
        let target = self.backends.at_mut(backend.slot());
        if target.weights == Weights::Tainted && !reloaded {
            return true;
        }
        // What an engine says of itself while an update is in progress counts more than what the publication says of
        // all of them. That it still runs the old version is no news before the transfer.
        if Some(version) != published || reloaded {
            target.is_in_update = false;
        }
        self.set_weights(backend.slot(), Weights::Version(version));
        self.pump();
        true
    }

    /// Takes in what an engine answered when it was asked for its version; `None` when it named none. An engine that had
    /// named one and does so no more was started anew, with the weights it starts with: it is pending until it names the
    /// published one. One that never names its version is taken at its controller's word. Ignored for an incarnation
    /// that is gone.
    pub fn note_named_version(&mut self, backend: BackendRef, version: Option<u64>, now: Timestamp) {
        self.advance(now);
        if !self.is_live(backend) {
            return;
        }
        let target = self.backends.at_mut(backend.slot());
        let before = std::mem::replace(&mut target.named_version, version);
        if let Some(version) = version {
            self.report_weights(backend, version, false, now);
        } else if before.is_some() && target.weights != Weights::Tainted {
            target.is_in_update = false;
            self.set_weights(backend.slot(), Weights::Unknown);
        }
    }

    /// The same as [`super::Grant::names_version`], of a lease that is open.
    #[must_use]
    pub fn names_version(&self, lease: LeaseId) -> bool {
        matches!(self.leases.find(lease), Some(Entry::Open(open)) if open.names_version)
    }

    /// Takes in that an update of a backend failed or is in doubt: it is not eligible, and no publication changes that,
    /// until a full reload is reported. Ignored for an incarnation that is gone; whether it was taken in.
    pub fn taint_backend(&mut self, backend: BackendRef, now: Timestamp) -> bool {
        self.advance(now);
        if !self.is_live(backend) {
            return false;
        }
        self.backends.at_mut(backend.slot()).is_in_update = false;
        self.set_weights(backend.slot(), Weights::Tainted);
        true
    }

    /// Registers all of `specs` or, when one of them is refused, none. With `replace`, the capacity of a live backend
    /// changes to the given one; without, another capacity is [`Error::IdempotencyConflict`].
    pub fn add_backends(
        &mut self,
        specs: Vec<BackendSpec>,
        replace: bool,
        now: Timestamp,
    ) -> Result<Vec<Arc<BackendInfo>>, Error> {
        self.advance(now);
        for spec in &specs {
            let known = self.backends.find(spec)?;
            let twin = specs
                .iter()
                .find(|other| (other.address == spec.address) != (other.name() == spec.name()));
            if let Some(twin) = twin {
                return Err(Error::InvalidBackendId {
                    id: twin.name().to_owned(),
                    rule: "the list names one backend in two ways",
                });
            }
            let registered = known.map(|slot| self.backends.at(slot).info.capacity);
            let conflicts = |capacity| capacity != spec.capacity;
            let listed = specs.iter().filter(|other| other.address == spec.address);
            let mut listed = listed.map(|other| other.capacity);
            if (!replace && registered.is_some_and(conflicts)) || listed.any(conflicts) {
                return Err(Error::IdempotencyConflict { what: "backend" });
            }
        }
        specs.into_iter().map(|spec| self.add_backend(spec, now)).collect()
    }

    /// Drains a backend for good and, once nothing runs on it, removes it: call it again when [`Self::revision`] has
    /// changed.
    ///
    /// With a generation, an older or newer incarnation is left alone ([`Error::UnknownBackend`]). Fails with
    /// [`Error::BackendBusy`] while executions are outstanding on it.
    pub fn retire_backend(&mut self, id: &str, generation: Option<u32>, now: Timestamp) -> Result<(), Error> {
        self.advance(now);
        let slot = self.backends.slot_of(id)?;
        if generation.is_some_and(|generation| self.backends.at(slot).info.reference.generation() != generation) {
            return Err(Error::UnknownBackend { id: id.to_owned() });
        }
        let outstanding = self.drain_backend(id, now)?;
        self.backends.at_mut(slot).phase = Phase::Retiring;
        if outstanding > 0 {
            let id = id.to_owned();
            return Err(Error::BackendBusy { id, outstanding });
        }
        self.remove_backend(id, now).map(|_| ())
    }

    fn set_weights(&mut self, slot: u32, weights: Weights) {
        let backend = self.backends.at_mut(slot);
        if backend.weights != weights {
            backend.weights = weights;
            let backend = Arc::clone(&backend.info);
            self.record(EventKind::WeightsChanged { backend, weights });
            self.changed();
            self.refresh(slot);
        }
    }

    /// Remembers which backends run the published version, so that an update that begins now reaches them.
    pub(super) fn enroll_backends(&mut self) {
        let published = self.lifecycle.published;
        for slot in self.backends.live_slots() {
            let backend = self.backends.at_mut(slot);
            backend.is_in_update = backend.weights.fit(published);
        }
    }

    /// Takes in a publication: who was enrolled runs it now.
    pub(super) fn promote_backends(&mut self, published: Published, is_first: bool, is_new_epoch: bool) {
        for slot in self.backends.live_slots() {
            let backend = self.backends.at_mut(slot);
            let enrolled = std::mem::take(&mut backend.is_in_update);
            backend.weights = match backend.weights {
                Weights::Tainted => Weights::Tainted,
                _ if is_new_epoch => Weights::Unknown,
                Weights::Unknown if is_first => Weights::Version(published.version),
                _ if enrolled => Weights::Version(published.version),
                other => other,
            };
            self.refresh(slot);
        }
    }
}
