//! Settling: the end of an execution, and what it says.

use super::Pool;
use crate::config::OnAmbiguous;
use crate::error::Error;
use crate::health::Evidence;
use crate::lease::{Entry, Lease, LeaseId, Outcome, Request, Settled, Settlement};
use crate::membership::Phase;
use crate::state::Cause;
use crate::time::Timestamp;
use crate::update::Stage;
use std::sync::Arc;

impl Pool {
    /// Ends an execution and takes in what its end says about the backend.
    ///
    /// The lease of a sender can be settled again: the same outcome is `already` there, another one is
    /// [`Error::OutcomeConflict`]. What an ambiguous end leads to is configured ([`OnAmbiguous`]).
    ///
    /// Fails with [`Error::UnknownLease`] when the lease is not open, nor remembered; then nothing changed.
    pub fn settle(&mut self, lease: LeaseId, settlement: Settlement, now: Timestamp) -> Result<Settled, Error> {
        let now = self.advance(now);
        let reported = settlement.outcome;
        let open = match self.leases.find(lease) {
            None => return Err(Error::UnknownLease),
            Some(Entry::Settled(recorded)) => {
                let answer = repeated(*recorded, reported)?;
                self.totals.replays.settlements += 1;
                return Ok(answer);
            }
            Some(Entry::Open(open)) => *open,
        };
        let settled = Settled {
            outcome: reported,
            already: false,
        };
        match reported {
            Outcome::Ambiguous if open.ambiguous => return repeated(Outcome::Ambiguous, reported),
            Outcome::Ambiguous => {
                self.settle_ambiguous(lease, &open, &settlement, now);
                return Ok(settled);
            }
            Outcome::Lost if !open.ambiguous => {
                return Err(Error::InvalidTransition {
                    operation: "settling a lease as lost",
                    state: "its end is not known to be unknown".to_owned(),
                });
            }
            _ => {}
        }
        let evidence = self.evidence(&open, &settlement);
        self.finish(lease, &open, &settlement, evidence, now);
        self.after_settling();
        Ok(settled)
    }

    fn settle_ambiguous(&mut self, lease: LeaseId, open: &Lease, settlement: &Settlement, now: Timestamp) {
        let backend = Arc::clone(&self.backends.at(open.backend.slot()).info);
        let evidence = self.evidence(open, settlement);
        if evidence == Evidence::Failure {
            self.note_break(open, settlement);
        }
        if self.config.on_ambiguous == OnAmbiguous::Resolve {
            self.keep_counted(lease, open, evidence);
            return;
        }
        self.finish(lease, open, settlement, evidence, now);
        if self.config.on_ambiguous == OnAmbiguous::FailPool {
            let backend = backend.id.clone();
            self.fail_with(Cause::Ambiguous { lease, backend });
        }
        self.after_settling();
    }

    /// Leaves a lease counted until its end is known.
    pub(super) fn keep_counted(&mut self, lease: LeaseId, open: &Lease, evidence: Evidence) {
        self.leases.mark_ambiguous(lease);
        let backend = self.backends.at_mut(open.backend.slot());
        backend.unresolved += 1;
        if backend.phase != Phase::Removed {
            self.take_evidence(open, evidence);
        }
        self.changed();
    }

    /// What the end of an execution says. An update since its grant makes it say nothing: it may have been cut short
    /// by us, and the engine it speaks of has changed.
    fn evidence(&mut self, open: &Lease, settlement: &Settlement) -> Evidence {
        let is_current = open.pool_generation == self.lifecycle.generation;
        match settlement.outcome {
            _ if !is_current || !settlement.is_evidence => Evidence::None,
            Outcome::Completed | Outcome::Rejected => Evidence::Alive,
            Outcome::Aborted => {
                self.totals.unexpected_aborts += 1;
                if settlement.output_tokens == Some(0) {
                    Evidence::EmptyAbort
                } else {
                    Evidence::Alive
                }
            }
            // Once a lease is ambiguous, that was counted; how it is resolved is no second failure.
            Outcome::Failed | Outcome::NotSent | Outcome::Ambiguous if !open.ambiguous => Evidence::Failure,
            // The caller's decision says nothing about the engine.
            _ => Evidence::None,
        }
    }

    /// Closes an open lease and gives back everything it reserved.
    pub(super) fn finish(
        &mut self,
        lease: LeaseId,
        open: &Lease,
        settlement: &Settlement,
        evidence: Evidence,
        now: Timestamp,
    ) {
        let outcome = settlement.outcome;
        let tokens = settlement.output_tokens.unwrap_or(0);
        let slot = open.backend.slot();
        let backend = self.backends.at_mut(slot);
        backend.outstanding -= 1;
        backend.outcomes.add(outcome);
        backend.output_tokens = backend.output_tokens.saturating_add(tokens);
        if open.ambiguous {
            self.note_resolved(slot);
        }
        let backend = self.backends.at(slot);
        let (phase, outstanding) = (backend.phase, backend.outstanding);
        self.owners.at_mut(open.owner).outstanding -= 1;
        self.totals.outcomes.add(outcome);
        self.durations.note_lease(outcome, now.since(open.granted));
        self.totals.output_tokens = self.totals.output_tokens.saturating_add(tokens);
        match open.request {
            Some(request) => self.bury(lease, request, outcome),
            None => self.leases.close(lease),
        }
        if let Some(session) = open.session {
            if let Some(tokens) = settlement.context_tokens {
                self.sessions.note_context(session, tokens);
            }
            // Elsewhere only when the session moved while this lease was open.
            let pinned = self.close_session_lease(session, now);
            if let Some(pinned) = pinned.filter(|&pinned| pinned != slot) {
                self.refresh(pinned);
            }
        }
        if phase != Phase::Serving && outstanding == 0 {
            self.changed();
        }
        if phase != Phase::Removed {
            self.refresh(slot);
            self.take_evidence(open, evidence);
        } else if outstanding == 0 {
            self.forget(slot);
        }
    }

    /// Closes the lease of a sender, and remembers how unless the sender needs that no more.
    fn bury(&mut self, lease: LeaseId, request: Request, outcome: Outcome) {
        let Some(sender) = self.senders.get_mut(request.sender) else {
            self.leases.close(lease);
            return;
        };
        sender.held -= 1;
        if sender.settled.contains(request.seq) {
            sender.records.remove(&request.seq);
            self.leases.close(lease);
        } else {
            sender.tombstones += 1;
            self.leases.bury(lease, outcome);
        }
    }

    #[inline]
    fn take_evidence(&mut self, open: &Lease, evidence: Evidence) {
        let (patience, at) = (self.patience, self.instant());
        if evidence == Evidence::Alive {
            self.backends.at_mut(open.backend.slot()).heard = at.1;
        }
        self.examine(open.backend.slot(), |vitals| {
            vitals.note_end(open.trial, evidence, &patience, at);
        });
    }

    /// What the end of a lease may bring about: the end of a drain, or a grant for whoever waits.
    #[inline]
    pub(super) fn after_settling(&mut self) {
        if let Stage::Updating(_) = self.lifecycle.stage {
            self.note_drained();
        }
        self.pump();
    }
}

/// The answer to a settlement of a lease that was settled before.
fn repeated(recorded: Outcome, reported: Outcome) -> Result<Settled, Error> {
    // Whoever said "ambiguous" is right that it was, also after it was resolved.
    let is_same = recorded == reported || (recorded, reported) == (Outcome::Lost, Outcome::Ambiguous);
    if is_same {
        Ok(Settled {
            outcome: recorded,
            already: true,
        })
    } else {
        Err(Error::OutcomeConflict { recorded, reported })
    }
}
