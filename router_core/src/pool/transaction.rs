//! The rules of the update transaction.

use super::Pool;
use crate::config::OnDrainTimeout;
use crate::durations::UpdateStep;
use crate::error::Error;
use crate::event::EventKind;
use crate::lease::LeaseId;
use crate::state::Cause;
use crate::time::Timestamp;
use crate::update::{Blocker, MAX_BLOCKERS, Stage, Update, UpdateKind, UpdatePhase, UpdateStatus};
use crate::version::Published;
use std::sync::Arc;

impl Pool {
    /// Ends the quiescing of the update in progress, if nothing is outstanding any more.
    pub(super) fn note_drained(&mut self) {
        if self.leases.len() == 0
            && let Stage::Updating(update) = &mut self.lifecycle.stage
            && update.phase == UpdatePhase::Quiescing
        {
            update.phase = UpdatePhase::Drained;
            update.drained = Some(self.clock);
            let quiesced = self.clock.since(update.began);
            self.durations.note_step(update.kind, UpdateStep::Quiesce, quiesced);
            let id = Arc::clone(&update.id);
            self.note_update(&id, UpdatePhase::Drained);
        }
    }

    pub(super) fn note_update(&mut self, id: &str, phase: UpdatePhase) {
        let update = id.to_owned();
        self.record(EventKind::UpdateMoved { update, phase });
        self.changed();
    }

    /// The controller of the update in progress is told that nothing is outstanding.
    pub(super) fn note_told(&mut self) {
        let now = self.clock;
        if let Stage::Updating(update) = &mut self.lifecycle.stage {
            update.phase = UpdatePhase::Updating;
            update.told = Some(now);
            self.durations.note_drain(now.since(update.began));
            let confirmed = now.since(update.drained.unwrap_or(now));
            self.durations.note_step(update.kind, UpdateStep::Confirm, confirmed);
        }
    }

    /// The update in progress ends well.
    pub(super) fn note_over(&mut self) {
        let now = self.clock;
        if let Some(update) = self.lifecycle.update() {
            let total = now.since(update.began);
            self.durations.note_step(update.kind, UpdateStep::Total, total);
            if let Some(drained) = update.told.or(update.drained) {
                self.durations
                    .note_step(update.kind, UpdateStep::Transfer, now.since(drained));
            }
        }
    }

    /// The answer to a call about an update whose effect is there already.
    pub(super) fn replayed(&mut self, id: &str) -> Result<UpdateStatus, Error> {
        self.totals.replays.updates += 1;
        self.status(id, true)
    }

    pub(super) fn check_no_other_update(&self, id: &str) -> Result<(), Error> {
        match self.lifecycle.update() {
            Some(other) if *other.id != *id => Err(Error::UpdateInProgress {
                id: other.id.to_string(),
                phase: other.phase,
                age: self.clock.since(other.began),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a drain of a pool that is over; the drain that failed it gets its own error again.
    pub(super) fn check_drain(&self, id: &str) -> Result<(), Error> {
        if let Stage::Failed(failure) = &self.lifecycle.stage
            && let Cause::DrainTimeout { update, engines, .. } = &failure.cause
            && **update == *id
        {
            return Err(self.drain_timeout(id, engines, true));
        }
        self.lifecycle.check_alive()
    }

    /// What happens at the deadline of a drain.
    pub(super) fn give_up_drain(&mut self, id: &str, engines: &[String]) -> Error {
        let outstanding = self.leases.len();
        let fails = self.config.on_drain_timeout == OnDrainTimeout::Fail;
        let error = self.drain_timeout(id, engines, fails);
        if fails {
            let update = id.to_owned();
            let engines = engines.to_vec();
            self.fail_with(Cause::DrainTimeout {
                update,
                outstanding,
                engines,
            });
        }
        error
    }

    /// Fails the pool when its drain is overdue, though nobody asks.
    pub(super) fn fail_overdue_drain(&mut self) {
        let overdue = self.lifecycle.update().filter(|update| {
            update.phase == UpdatePhase::Quiescing && update.deadline.is_some_and(|deadline| deadline <= self.clock)
        });
        if let Some(update) = overdue {
            let id = Arc::clone(&update.id);
            self.give_up_drain(&id, &[]);
        }
    }

    fn drain_timeout(&self, id: &str, engines: &[String], failed: bool) -> Error {
        Error::DrainTimeout {
            update: id.to_owned(),
            outstanding: self.leases.len(),
            blockers: self.blockers(),
            engines: engines.to_vec(),
            failed,
        }
    }

    /// The oldest open leases: what a drain waits for. At most [`MAX_BLOCKERS`].
    #[must_use]
    pub fn blockers(&self) -> Vec<Blocker> {
        let mut oldest: Vec<(Timestamp, LeaseId)> = self.leases.iter().map(|(id, lease)| (lease.granted, id)).collect();
        oldest.sort_unstable();
        oldest.truncate(MAX_BLOCKERS);
        let open = oldest
            .into_iter()
            .filter_map(|(_, id)| Some((id, self.leases.get(id)?)));
        open.map(|(id, lease)| Blocker {
            lease: id,
            backend: Arc::clone(&self.backends.at(lease.backend.slot()).info),
            session: lease.session.and_then(|session| self.sessions.key(session)),
            sender: lease
                .request
                .and_then(|request| self.senders.get(request.sender))
                .map(|sender| sender.name.to_string()),
            age: self.clock.since(lease.granted),
            ambiguous: lease.ambiguous,
        })
        .collect()
    }

    /// What would be published; refuses to go back.
    pub(super) fn next_version(&self, version: u64, epoch: Option<u64>) -> Result<Published, Error> {
        let Some(published) = self.lifecycle.published else {
            let epoch = epoch.unwrap_or(0);
            return Ok(Published { epoch, version });
        };
        let epoch = epoch.unwrap_or(published.epoch);
        let next = Published { epoch, version };
        if next < published {
            return Err(Error::VersionRegression {
                requested: version,
                published,
            });
        }
        Ok(next)
    }

    /// Refuses the publication of an update that is not ready for it, or that announced something else.
    pub(super) fn check_publishable(&self, id: &str, version: u64) -> Result<(), Error> {
        self.check_no_other_update(id)?;
        let update = self.lifecycle.find(id)?;
        if update.kind != UpdateKind::Weights {
            return Err(impossible(
                "publishing",
                format!("update {id} is of kind {}: cancel it", update.kind.as_str()),
            ));
        }
        if update.announced.is_some_and(|announced| announced != version) {
            return Err(Error::IdempotencyConflict { what: "update" });
        }
        if update.phase == UpdatePhase::Quiescing {
            let outstanding = self.leases.len();
            let state = format!("update {id} is not drained, {outstanding} executions are outstanding");
            return Err(impossible("publishing", state));
        }
        Ok(())
    }

    /// Refuses a first version under which open leases would carry another one.
    pub(super) fn check_first_version(&self, version: u64) -> Result<(), Error> {
        let others = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.version.map(|published| published.version) != Some(version))
            .count();
        if others > 0 {
            let state = format!("{others} leases of another version, or of none, are open: begin an update first");
            return Err(impossible("publishing", state));
        }
        Ok(())
    }

    /// Makes a version the published one for backends, owners and sessions.
    pub(super) fn enter_version(&mut self, next: Published, before: Option<Published>) {
        let is_new_epoch = before.is_some_and(|before| before.epoch != next.epoch);
        self.lifecycle.publications = self.lifecycle.publications.wrapping_add(1);
        if is_new_epoch {
            self.owners.forget_acknowledgements();
        }
        self.promote_backends(next, before.is_none(), is_new_epoch);
        self.leases.set_epoch(next.epoch);
        self.record(EventKind::VersionPublished { published: next });
        self.changed();
        self.pump();
    }

    /// How the update called `id` stands.
    pub(super) fn status(&self, id: &str, replayed: bool) -> Result<UpdateStatus, Error> {
        self.lifecycle
            .find(id)
            .map(|update| self.status_of_update(update, replayed))
    }

    pub(super) fn status_of_update(&self, update: &Update, replayed: bool) -> UpdateStatus {
        UpdateStatus {
            id: update.id.to_string(),
            kind: update.kind,
            to_version: update.version.or(update.announced),
            phase: update.phase,
            server_paused: self.lifecycle.paused_for.as_ref() == Some(&update.id),
            outstanding: self.leases.len(),
            published: self.lifecycle.published,
            began: update.began,
            drain_deadline: update.deadline,
            replayed,
        }
    }
}

pub(super) fn impossible(operation: &'static str, state: String) -> Error {
    Error::InvalidTransition { operation, state }
}

/// A publication without a transaction: the first one, or one that another controller made.
pub(super) fn finished(id: &str, version: u64, now: Timestamp) -> Update {
    Update {
        id: id.into(),
        kind: UpdateKind::Weights,
        announced: None,
        version: Some(version),
        phase: UpdatePhase::Published,
        began: now,
        drained: None,
        told: None,
        deadline: None,
    }
}
