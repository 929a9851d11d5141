//! The update transaction.

use super::Pool;
use super::transaction::{finished, impossible};
use crate::durations::UpdateStep;
use crate::error::Error;
use crate::event::EventKind;
use crate::fence::check_name;
use crate::state::{Cause, PoolState};
use crate::time::Timestamp;
use crate::update::{BeginUpdate, Stage, Update, UpdateKind, UpdatePhase, UpdateStatus};
use crate::version::Published;
use std::sync::Arc;

impl Pool {
    /// Begins an update: nothing is granted from now on, the servers count as paused, the health clock stands still,
    /// and probes under way are void. It must have returned before the first engine is paused.
    ///
    /// The same id again is a no-op. Fails with [`Error::UpdateInProgress`], with [`Error::IdempotencyConflict`] when
    /// the id was begun for something else, and on a failed or closed pool.
    pub fn begin_update(&mut self, begin: &BeginUpdate<'_>, now: Timestamp) -> Result<UpdateStatus, Error> {
        let now = self.advance(now);
        self.lifecycle.check_alive()?;
        check_name("update id", begin.id)?;
        if let Ok(known) = self.lifecycle.find(begin.id) {
            if (known.kind, known.announced) != (begin.kind, begin.to_version) {
                return Err(Error::IdempotencyConflict { what: "update" });
            }
            self.totals.replays.updates += 1;
            return Ok(self.status_of_update(known, true));
        }
        self.check_no_other_update(begin.id)?;
        self.enroll_backends();
        let id: Arc<str> = begin.id.into();
        self.lifecycle.paused_for = Some(Arc::clone(&id));
        self.lifecycle.generation = self.lifecycle.generation.wrapping_add(1);
        self.active.pause(now);
        self.lifecycle.stage = Stage::Updating(Update {
            id,
            kind: begin.kind,
            announced: begin.to_version,
            version: None,
            phase: UpdatePhase::Quiescing,
            began: now,
            drained: None,
            told: None,
            deadline: None,
        });
        self.note_update(begin.id, UpdatePhase::Quiescing);
        self.note_drained();
        self.update_status(begin.id)
    }

    /// Asks whether nothing is outstanding any more. [`crate::update::UpdatePhase::Quiescing`] in the answer means
    /// "not yet": ask again when [`Self::revision`] has changed. Otherwise the drain is done, for good.
    ///
    /// The first call sets the deadline; later ones do not move it. At the deadline it is [`Error::DrainTimeout`], with
    /// the oldest blockers, and the pool fails or a later call sets a new deadline, as configured.
    pub fn drain(&mut self, id: &str, deadline: Timestamp, now: Timestamp) -> Result<UpdateStatus, Error> {
        let now = self.advance(now);
        self.check_drain(id)?;
        let phase = self.lifecycle.find(id)?.phase;
        match &mut self.lifecycle.stage {
            Stage::Updating(update) if *update.id == *id && phase == UpdatePhase::Quiescing => {
                if *update.deadline.get_or_insert(deadline) > now {
                    return self.status(id, false);
                }
                // A later call may set another one, if the pool lives on.
                update.deadline = None;
                Err(self.give_up_drain(id, &[]))
            }
            Stage::Updating(update) if *update.id == *id && phase == UpdatePhase::Drained => {
                self.note_told();
                self.note_update(id, UpdatePhase::Updating);
                self.status(id, false)
            }
            _ => self.replayed(id),
        }
    }

    /// The same for whoever sees that `engines` (ids of backends) still run something although nothing is outstanding:
    /// the drain goes on, up to its deadline, which is [`Error::DrainTimeout`] as well.
    pub fn hold_drain(
        &mut self,
        id: &str,
        engines: &[String],
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<UpdateStatus, Error> {
        let now = self.advance(now);
        self.check_drain(id)?;
        let phase = self.lifecycle.find(id)?.phase;
        match &mut self.lifecycle.stage {
            Stage::Updating(update) if *update.id == *id && phase == UpdatePhase::Drained => {
                if *update.deadline.get_or_insert(deadline) > now {
                    return self.status(id, false);
                }
                update.deadline = None;
                Err(self.give_up_drain(id, engines))
            }
            _ => self.status(id, true),
        }
    }

    /// Takes in that the engines serve again. Nothing is granted by it while the update is not over: whoever is
    /// admitted between the engines' resumption and the publication would carry the wrong version.
    pub fn end_server_pause(&mut self, id: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        let now = self.advance(now);
        self.lifecycle.check_alive()?;
        self.lifecycle.find(id)?;
        if self.lifecycle.paused_for.as_deref() != Some(id) {
            return self.replayed(id);
        }
        if let Ok(update) = self.lifecycle.find(id) {
            let paused = now.since(update.began);
            self.durations.note_step(update.kind, UpdateStep::Pause, paused);
        }
        self.lifecycle.paused_for = None;
        self.active.resume(now);
        self.wake_backends();
        self.record(EventKind::ServersResumed { update: id.to_owned() });
        self.changed();
        self.pump();
        self.update_status(id)
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
        let now = self.advance(now);
        self.lifecycle.check_alive()?;
        check_name("update id", id)?;
        if let Some(known) = self.lifecycle.results.iter().find(|update| *update.id == *id) {
            return match known.phase {
                UpdatePhase::Published if known.version == Some(version) => {
                    self.totals.replays.updates += 1;
                    Ok(self.status_of_update(known, true))
                }
                UpdatePhase::Published => Err(Error::IdempotencyConflict { what: "update" }),
                phase => Err(impossible("publishing", format!("update {id} is {phase}"))),
            };
        }
        let current = self.lifecycle.published;
        let next = self.next_version(version, epoch)?;
        let is_begun = self.lifecycle.update().is_some();
        if is_begun {
            self.check_publishable(id, version)?;
        } else if current == Some(next) {
            // Another controller published it already.
            self.totals.replays.updates += 1;
            return Ok(self.status_of_update(&finished(id, version, now), true));
        } else if current.is_some() {
            return Err(Error::UnknownUpdate { id: id.to_owned() });
        } else {
            self.check_first_version(version)?;
            self.lifecycle.keep(finished(id, version, now));
        }
        if let Stage::Updating(update) = &mut self.lifecycle.stage {
            update.version = Some(version);
        }
        self.lifecycle.published = Some(next);
        let next_stage = self.lifecycle.at_rest();
        if is_begun {
            self.note_over();
            self.lifecycle.end_update(UpdatePhase::Published, next_stage);
        } else {
            self.lifecycle.stage = next_stage;
        }
        self.enter_version(next, current);
        self.status(id, false)
    }

    /// Ends an update without a new version: one of weights only before its drain succeeded, any other at any time.
    pub fn cancel_update(&mut self, id: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        self.advance(now);
        self.lifecycle.check_alive()?;
        let (kind, phase) = self.lifecycle.find(id).map(|update| (update.kind, update.phase))?;
        match (kind, phase) {
            (_, UpdatePhase::Cancelled) => return self.replayed(id),
            (_, UpdatePhase::Published | UpdatePhase::Failed) | (UpdateKind::Weights, UpdatePhase::Updating) => {
                return Err(impossible("cancelling", format!("update {id} is {phase}")));
            }
            _ => {}
        }
        let next = self.lifecycle.at_rest();
        self.note_over();
        self.lifecycle.end_update(UpdatePhase::Cancelled, next);
        self.note_update(id, UpdatePhase::Cancelled);
        self.pump();
        self.update_status(id)
    }

    /// Ends an update that failed: the pool fails.
    pub fn fail_update(&mut self, id: &str, reason: &str, now: Timestamp) -> Result<UpdateStatus, Error> {
        self.advance(now);
        if let Ok(known) = self.lifecycle.find(id)
            && known.phase == UpdatePhase::Failed
        {
            self.totals.replays.updates += 1;
            return Ok(self.status_of_update(known, true));
        }
        self.lifecycle.check_alive()?;
        let phase = self.lifecycle.find(id)?.phase;
        if self.lifecycle.update().is_none_or(|update| *update.id != *id) {
            return Err(impossible("failing an update", format!("update {id} is {phase}")));
        }
        self.fail_with(Cause::UpdateFailed {
            update: id.to_owned(),
            reason: reason.to_owned(),
        });
        self.update_status(id)
    }

    /// How an update in progress, or one of the last results, stands.
    pub fn update_status(&self, id: &str) -> Result<UpdateStatus, Error> {
        self.status(id, false)
    }

    /// Where the pool is in its life.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.lifecycle.state()
    }

    /// Whether the servers count as paused: from the begin of an update to the end of its server pause.
    #[must_use]
    pub const fn server_paused(&self) -> bool {
        self.lifecycle.paused_for.is_some()
    }

    /// The published version.
    #[must_use]
    pub const fn published(&self) -> Option<Published> {
        self.lifecycle.published
    }

    /// The `pool_gen` of the APIs: grows with every update that begins.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.lifecycle.generation
    }

    /// Grows with every change that a watcher or a drain may wait for (state, fences, version, membership, health); not
    /// with grants and settlements.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.lifecycle.revision
    }
}
