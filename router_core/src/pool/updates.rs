//! The update transaction, and the ends of a pool.

use super::Pool;
use crate::error::Error;
use crate::state::PoolState;
use crate::time::Timestamp;
use crate::update::{BeginUpdate, UpdateStatus};
use crate::version::Published;

impl Pool {
    /// Begins an update: nothing is granted from now on, the servers count as paused, the health clock stands still,
    /// and probes under way are void. It must have returned before the first engine is paused.
    ///
    /// The same id again is a no-op. Fails with [`Error::UpdateInProgress`], with [`Error::IdempotencyConflict`] when
    /// the id was begun for something else, with [`Error::VersionRegression`] when `to_version` is below the published
    /// one, and on a failed or closed pool.
    pub fn begin_update(&mut self, begin: &BeginUpdate<'_>, now: Timestamp) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Asks whether nothing is outstanding any more. [`crate::update::UpdatePhase::Quiescing`] in the answer means
    /// "not yet": ask again when [`Self::revision`] has changed. Otherwise the drain is done, for good.
    ///
    /// The first call sets the deadline; later ones do not move it. At the deadline it is [`Error::DrainTimeout`], with
    /// the oldest blockers, and the pool fails or a later call sets a new deadline, as configured.
    pub fn drain(&mut self, id: &str, deadline: Timestamp, now: Timestamp) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Takes in that the engines serve again. Nothing is granted by it while the update is not over: whoever is
    /// admitted between the engines' resumption and the publication would carry the wrong version.
    pub fn end_server_pause(&mut self, id: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Publishes the version that every untainted backend present since the begin of the update now runs.
    ///
    /// Only after the drain of this id has succeeded, or as the first publication. A new `epoch` must be above the
    /// current one; then any version goes, and every backend is pending until it reported that version. The same call
    /// again is a no-op, and so is the publication of the published version.
    ///
    /// Fails with [`Error::VersionRegression`], [`Error::InvalidTransition`], [`Error::IdempotencyConflict`] (another
    /// version than announced or published under this id), [`Error::UpdateInProgress`], [`Error::UnknownUpdate`].
    pub fn publish(
        &mut self,
        id: &str,
        version: u64,
        epoch: Option<u64>,
        now: Timestamp,
    ) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Ends an update without a new version: an offload at any time, one of weights only before its drain succeeded.
    pub fn cancel_update(&mut self, id: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Ends an update that failed: the pool fails.
    pub fn fail_update(&mut self, id: &str, reason: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// How an update in progress, or one of the last results, stands.
    pub fn update_status(&self, id: &str) -> Result<UpdateStatus, Error> {
        todo!()
    }

    /// Fails the pool for good: parked and new acquires get [`Error::PoolFailed`]; open leases can be settled. The
    /// first cause stays. Nothing happens to a pool that is closed.
    pub fn fail(&mut self, reason: &str, now: Timestamp) {
        todo!()
    }

    /// Closes the pool for good: parked and new acquires get [`Error::PoolClosed`], and whatever ends badly from now
    /// on is no failure. A failed pool stays failed.
    pub fn close(&mut self, now: Timestamp) {
        todo!()
    }

    /// Where the pool is in its life.
    #[must_use]
    pub fn state(&self) -> PoolState {
        todo!()
    }

    /// Whether the servers count as paused: from the begin of an update to the end of its server pause.
    #[must_use]
    pub fn server_paused(&self) -> bool {
        todo!()
    }

    /// The published version.
    #[must_use]
    pub fn published(&self) -> Option<Published> {
        todo!()
    }

    /// The `pool_gen` of the APIs: grows with every update that begins.
    #[must_use]
    pub fn generation(&self) -> u32 {
        todo!()
    }

    /// Grows with every change that a watcher or a drain may wait for (state, fences, version, membership, health); not
    /// with grants and settlements.
    #[must_use]
    pub fn revision(&self) -> u64 {
        todo!()
    }
}
