//! Owners: fencing them, and what they acknowledge.

use super::Pool;
use crate::error::Error;
use crate::event::EventKind;
use crate::fence::{OwnerStatus, check_name};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Pool {
    /// Makes an owner known, or does nothing when it is. With a version the owner acknowledges it; without one a new
    /// owner learns the published version by the answer, and has acknowledged that.
    pub fn attach_owner(&mut self, owner: &str, version: Option<u64>, now: Timestamp) -> Result<OwnerStatus, Error> {
        self.advance(now);
        self.lifecycle.check_alive()?;
        let index = self.owners.attach(owner, self.lifecycle.published)?;
        self.changed();
        if let Some(version) = version {
            self.acknowledge(index, version);
        }
        Ok(self.status_of_owner(index))
    }

    /// Takes in that an owner's processes know `version` of the current epoch. A lower version than it acknowledged
    /// before changes nothing.
    ///
    /// Fails with [`Error::UnknownOwner`].
    pub fn ack(&mut self, owner: &str, version: u64, now: Timestamp) -> Result<OwnerStatus, Error> {
        self.advance(now);
        self.lifecycle.check_alive()?;
        let index = self.owners.find(owner)?;
        self.acknowledge(index, version);
        Ok(self.status_of_owner(index))
    }

    /// Adds a reason for which nothing is granted to the owner: when this has returned, no lease is, until the last
    /// reason is taken away. A reason that is there already is not counted twice.
    ///
    /// `op_id` names this very call: a late duplicate of it changes nothing, though the fence was lifted meanwhile.
    ///
    /// Fails with [`Error::UnknownOwner`] or, when `op_id` was used for another call, [`Error::IdempotencyConflict`].
    pub fn fence(
        &mut self,
        owner: &str,
        reason: &str,
        op_id: Option<&str>,
        now: Timestamp,
    ) -> Result<OwnerStatus, Error> {
        self.advance(now);
        let index = self.owners.find(owner)?;
        check_name("reason", reason)?;
        if !self.is_repeated(op_id, true, index, reason)? && self.owners.at_mut(index).fences.insert(reason.into()) {
            self.record(EventKind::OwnerFenced {
                owner: owner.to_owned(),
                reason: reason.to_owned(),
            });
            self.changed();
        }
        Ok(self.status_of_owner(index))
    }

    /// Takes a reason away; the parked acquires of an owner without reasons are granted in order, as far as they can.
    ///
    /// Fails like [`Self::fence`], and on a failed or closed pool with [`Error::PoolFailed`] or [`Error::PoolClosed`].
    pub fn unfence(
        &mut self,
        owner: &str,
        reason: &str,
        op_id: Option<&str>,
        now: Timestamp,
    ) -> Result<OwnerStatus, Error> {
        self.advance(now);
        let index = self.owners.find(owner)?;
        self.lifecycle.check_alive()?;
        if !self.is_repeated(op_id, false, index, reason)? && self.owners.at_mut(index).fences.remove(reason) {
            self.record(EventKind::OwnerUnfenced {
                owner: owner.to_owned(),
                reason: reason.to_owned(),
            });
            self.changed();
            self.pump();
        }
        Ok(self.status_of_owner(index))
    }

    /// How an owner stands.
    pub fn owner_status(&self, owner: &str) -> Result<OwnerStatus, Error> {
        Ok(self.status_of_owner(self.owners.find(owner)?))
    }

    fn acknowledge(&mut self, index: u32, version: u64) {
        let owner = self.owners.at_mut(index);
        if owner.acknowledged.is_none_or(|known| known < version) {
            owner.acknowledged = Some(version);
            let owner = owner.name.to_string();
            self.record(EventKind::VersionAcknowledged { owner, version });
            self.changed();
            self.pump();
        }
    }

    fn is_repeated(&mut self, op_id: Option<&str>, fences: bool, owner: u32, reason: &str) -> Result<bool, Error> {
        op_id.map_or(Ok(false), |id| self.owners.is_repeated(id, fences, owner, reason))
    }

    pub(super) fn status_of_owner(&self, index: u32) -> OwnerStatus {
        let owner = self.owners.at(index);
        let mut per_slot = BTreeMap::new();
        if owner.outstanding > 0 {
            for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.owner == index) {
                *per_slot.entry(lease.backend.slot()).or_insert(0) += 1;
            }
        }
        OwnerStatus {
            owner: owner.name.to_string(),
            fences: owner.fences.iter().map(ToString::to_string).collect(),
            acknowledged: owner.acknowledged,
            needs_acknowledgement: owner.needs_acknowledgement,
            parked: self.waiters.queued_of(index),
            outstanding: owner.outstanding,
            per_backend: per_slot
                .into_iter()
                .map(|(slot, count)| (Arc::clone(&self.backends.at(slot).info), count))
                .collect(),
        }
    }
}
