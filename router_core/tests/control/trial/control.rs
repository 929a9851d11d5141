//! Controllers and time.

use super::{OWNERS, Trial};
use crate::model::{Code, Life, Phase, Update, Weights};
use crate::operations::Operation;
use proptest::prelude::*;
use router_core::update::{BeginUpdate, UpdateKind};

pub(super) fn moved(number: u64, by: i8) -> u64 {
    number.saturating_add_signed(i64::from(by))
}

impl Trial {
    pub(super) fn apply_control(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Fence { owner, reason } => self.fence(owner, reason, true)?,
            Operation::Unfence { owner, reason } => self.fence(owner, reason, false)?,
            Operation::Ack { owner, ahead } => self.ack(owner, ahead)?,
            Operation::Begin { id, offload } => self.begin(id, offload)?,
            Operation::Drain { id, patience } => self.drain(id, patience)?,
            Operation::Resume { id } => self.resume(id)?,
            Operation::Publish { id, ahead, epochs } => self.publish(id, ahead, epochs)?,
            Operation::Cancel { id } => self.cancel(id)?,
            Operation::FailUpdate { id } => self.fail_update(id)?,
            Operation::Pass { seconds } => self.model.now += seconds,
            Operation::Tick => self.tick(),
            Operation::Close => {
                let now = self.now();
                self.pool.close(now);
                self.model.shut();
            }
            ref about_backends => self.apply_to_backends(about_backends)?,
        }
        Ok(())
    }

    fn fence(&mut self, owner: u8, reason: u8, fences: bool) -> Result<(), TestCaseError> {
        let (now, index) = (self.now(), usize::from(owner));
        let (owner, text) = (OWNERS[index], reason.to_string());
        if fences {
            let answer = self.pool.fence(owner, &text, None, now);
            self.agree(answer, None)?;
            self.model.owners[index].fences.insert(reason);
        } else {
            let answer = self.pool.unfence(owner, &text, None, now);
            if self.agree(answer, self.model.over())?.is_some() {
                self.model.owners[index].fences.remove(&reason);
                self.model.pump();
            }
        }
        Ok(())
    }

    fn ack(&mut self, owner: u8, ahead: i8) -> Result<(), TestCaseError> {
        let (now, index) = (self.now(), usize::from(owner));
        let version = moved(self.model.published.map_or(0, |(_, version)| version), ahead);
        let answer = self.pool.ack(OWNERS[index], version, now);
        if self.agree(answer, self.model.over())?.is_some() {
            let known = &mut self.model.owners[index].acknowledged;
            *known = (*known).max(Some(version));
            self.model.pump();
        }
        Ok(())
    }

    /// An update in progress mostly, then one that is over, one that is new, and one that never was.
    fn update_id(&mut self, choice: u8) -> u32 {
        let current = match self.model.life {
            Life::Updating(update) => Some(update.id),
            _ => self.model.paused_for,
        };
        match (choice, current) {
            (0..=2, Some(current)) => current,
            (3, _) if !self.model.results.is_empty() => self.model.results[self.model.results.len() - 1].id,
            (5, _) => u32::MAX,
            _ => self.last_update + 1,
        }
    }

    fn begin(&mut self, choice: u8, offload: bool) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let kind = if offload {
            UpdateKind::Offload
        } else {
            UpdateKind::Weights
        };
        let text = id.to_string();
        let begin = BeginUpdate {
            id: &text,
            kind,
            to_version: None,
        };
        let answer = self.pool.begin_update(&begin, now);
        let known = self.model.find_update(id);
        let expected = match (self.model.over(), known, self.model.life) {
            (Some(over), ..) => Some(over),
            (None, Some(known), _) if known.offload != offload => Some("idempotency_conflict"),
            (None, None, Life::Updating(_)) => Some("update_in_progress"),
            _ => None,
        };
        if let Some(status) = self.agree(answer, expected)? {
            prop_assert_eq!(status.replayed, known.is_some());
            if known.is_none() {
                self.begun(id, offload);
            }
        }
        Ok(())
    }

    fn begun(&mut self, id: u32, offload: bool) {
        self.last_update = if id == u32::MAX {
            self.last_update
        } else {
            self.last_update.max(id)
        };
        let published = self.model.published;
        for backend in &mut self.model.backends {
            backend.enrolled = match (backend.weights, published) {
                (Weights::Tainted, _) | (Weights::Unknown, Some(_)) => false,
                (_, None) => true,
                (Weights::Version(version), Some((_, published))) => version == published,
            };
        }
        let drained = self.model.leases.is_empty();
        self.model.paused_for = Some(id);
        self.model.life = Life::Updating(Update {
            id,
            offload,
            phase: if drained { Phase::Drained } else { Phase::Quiescing },
            version: None,
            deadline: None,
        });
    }

    fn drain(&mut self, choice: u8, patience: u64) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let deadline = now.after(std::time::Duration::from_secs(patience));
        let answer = self.pool.drain(&id.to_string(), deadline, now);
        let known = self.model.find_update(id);
        // Only a drain at its deadline leaves this code behind; which one that was is checked elsewhere.
        if self.model.life == Life::Failed {
            let code = answer.err().map(|error| error.code());
            prop_assert!(matches!(code, Some("pool_failed" | "drain_timeout")));
            return Ok(());
        }
        let over: Option<Code> = self.model.over().or(known.is_none().then_some("unknown_update"));
        let Life::Updating(update) = &mut self.model.life else {
            self.agree(answer, over)?;
            return Ok(());
        };
        if update.id != id || over.is_some() {
            self.agree(answer, over)?;
            return Ok(());
        }
        match update.phase {
            Phase::Quiescing => {
                let deadline = *update.deadline.get_or_insert(self.model.now + patience);
                if deadline > self.model.now {
                    self.agree(answer, None)?;
                    return Ok(());
                }
                update.deadline = None;
                self.agree(answer, Some("drain_timeout"))?;
                if !self.model.reports_timeouts {
                    self.model.fail();
                }
            }
            Phase::Drained => {
                update.phase = Phase::Updating;
                let status = self.agree(answer, None)?.expect("drained");
                prop_assert!(!status.replayed);
            }
            _ => {
                let status = self.agree(answer, None)?.expect("drained");
                prop_assert!(status.replayed);
            }
        }
        Ok(())
    }

    fn resume(&mut self, choice: u8) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let answer = self.pool.end_server_pause(&id.to_string(), now);
        let unknown = self.model.find_update(id).is_none().then_some("unknown_update");
        let expected = self.model.over().or(unknown);
        if let Some(status) = self.agree(answer, expected)? {
            let ends = self.model.paused_for == Some(id);
            prop_assert_eq!(status.replayed, !ends);
            if ends {
                self.model.paused_for = None;
                self.model.pump();
            }
        }
        Ok(())
    }

    fn publish(&mut self, choice: u8, ahead: i8, epochs: i8) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let current = self.model.published;
        let version = moved(current.map_or(0, |(_, version)| version), ahead);
        let epoch = (epochs != 0).then(|| moved(current.map_or(0, |(epoch, _)| epoch), epochs));
        let next = (epoch.unwrap_or(current.map_or(0, |(epoch, _)| epoch)), version);
        let answer = self.pool.publish(&id.to_string(), version, epoch, now);
        let result = self.model.results.iter().find(|update| update.id == id).copied();
        let mut replayed = false;
        let expected = match (self.model.over(), result, self.model.life) {
            (Some(over), ..) => Some(over),
            (_, Some(result), _) if result.phase != Phase::Published => Some("invalid_transition"),
            (_, Some(result), _) if result.version != Some(version) => Some("idempotency_conflict"),
            (_, Some(_), _) => {
                replayed = true;
                None
            }
            _ if current.is_some_and(|current| next < current) => Some("version_regression"),
            (.., Life::Updating(update)) if update.id != id => Some("update_in_progress"),
            (.., Life::Updating(update)) if update.offload || update.phase == Phase::Quiescing => {
                Some("invalid_transition")
            }
            (.., Life::Updating(_)) => None,
            _ if current == Some(next) => {
                replayed = true;
                None
            }
            _ if current.is_some() => Some("unknown_update"),
            _ if !self.model.leases.is_empty() => Some("invalid_transition"),
            _ => None,
        };
        if let Some(status) = self.agree(answer, expected)? {
            prop_assert_eq!(status.replayed, replayed);
            if !replayed {
                self.published(id, next);
            }
        }
        Ok(())
    }

    fn published(&mut self, id: u32, next: (u64, u64)) {
        let before = self.model.published.replace(next);
        let at_rest = self.model.at_rest(self.setting.awaits);
        if let Life::Updating(update) = &mut self.model.life {
            update.version = Some(next.1);
            self.model.end_update(Phase::Published, at_rest);
        } else {
            self.last_update = if id == u32::MAX {
                self.last_update
            } else {
                self.last_update.max(id)
            };
            let update = Update {
                id,
                offload: false,
                phase: Phase::Published,
                version: Some(next.1),
                deadline: None,
            };
            self.model.life = Life::Updating(update);
            self.model.end_update(Phase::Published, at_rest);
        }
        let is_new_epoch = before.is_some_and(|(epoch, _)| epoch != next.0);
        if is_new_epoch {
            for owner in &mut self.model.owners {
                owner.acknowledged = None;
            }
        }
        for backend in &mut self.model.backends {
            let takes_it = backend.enrolled || (before.is_none() && backend.weights == Weights::Unknown);
            backend.enrolled = false;
            if backend.weights == Weights::Tainted {
                continue;
            }
            if is_new_epoch {
                backend.weights = Weights::Unknown;
            } else if takes_it {
                backend.weights = Weights::Version(next.1);
            }
        }
        self.model.pump();
    }

    fn cancel(&mut self, choice: u8) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let answer = self.pool.cancel_update(&id.to_string(), now);
        let known = self.model.find_update(id);
        let expected = match (self.model.over(), known) {
            (Some(over), _) => Some(over),
            (_, None) => Some("unknown_update"),
            (_, Some(update)) => match update.phase {
                Phase::Published | Phase::Failed => Some("invalid_transition"),
                Phase::Updating if !update.offload => Some("invalid_transition"),
                _ => None,
            },
        };
        let cancelled = self.agree(answer, expected)?.is_some();
        if cancelled && matches!(self.model.life, Life::Updating(update) if update.id == id) {
            let at_rest = self.model.at_rest(self.setting.awaits);
            self.model.end_update(Phase::Cancelled, at_rest);
            self.model.pump();
        }
        Ok(())
    }

    fn fail_update(&mut self, choice: u8) -> Result<(), TestCaseError> {
        let (id, now) = (self.update_id(choice), self.now());
        let answer = self.pool.fail_update(&id.to_string(), "for the test", now);
        let known = self.model.find_update(id);
        let expected = match (known.map(|update| update.phase), self.model.over()) {
            (Some(Phase::Failed), _) => None,
            (_, Some(over)) => Some(over),
            (None, _) => Some("unknown_update"),
            (Some(Phase::Published | Phase::Cancelled), _) => Some("invalid_transition"),
            _ => None,
        };
        if self.agree(answer, expected)?.is_some() {
            self.model.fail();
        }
        Ok(())
    }

    fn tick(&mut self) {
        let now = self.now();
        self.pool.tick(now);
        let silent = |sender: &crate::model::Sender| self.model.now - sender.heard > self.model.sender_ttl;
        let mut silent: Vec<(u64, u8)> = self
            .model
            .senders
            .iter()
            .filter(|(_, sender)| silent(sender))
            .map(|(name, sender)| (sender.namespace, *name))
            .collect();
        silent.sort_unstable();
        for (_, name) in silent {
            self.model.lose_sender(name);
        }
        let overdue = matches!(self.model.life, Life::Updating(update)
            if update.phase == Phase::Quiescing && update.deadline.is_some_and(|deadline| deadline <= self.model.now));
        if overdue && !self.model.reports_timeouts {
            self.model.fail();
        }
        self.model.pump();
    }
}
