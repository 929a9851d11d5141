//! Owners: fencing them, and what they acknowledge.

use super::Pool;
use crate::error::Error;
use crate::fence::OwnerStatus;
use crate::time::Timestamp;

impl Pool {
    /// Makes an owner known, or does nothing when it is. With a version the owner acknowledges it; without one a new
    /// owner learns the published version by the answer, and has acknowledged that.
    pub fn attach_owner(&mut self, owner: &str, version: Option<u64>, now: Timestamp) -> Result<OwnerStatus, Error> {
        todo!()
    }

    /// Takes in that an owner's processes know `version` of the current epoch. A lower version than it acknowledged
    /// before changes nothing.
    ///
    /// Fails with [`Error::UnknownOwner`].
    pub fn ack(&mut self, owner: &str, version: u64, now: Timestamp) -> Result<OwnerStatus, Error> {
        todo!()
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
        todo!()
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
        todo!()
    }

    /// How an owner stands.
    pub fn owner_status(&self, owner: &str) -> Result<OwnerStatus, Error> {
        todo!()
    }
}
