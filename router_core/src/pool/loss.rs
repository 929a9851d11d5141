//! What cannot be made certain again: failed pools, closed pools, and senders that are gone.

use super::Pool;
use crate::config::OnAmbiguous;
use crate::error::Error;
use crate::event::EventKind;
use crate::health::Evidence;
use crate::lease::{LeaseId, Outcome, Settlement};
use crate::sender::Answer;
use crate::slab::Handle;
use crate::state::{Cause, Failure};
use crate::time::Timestamp;
use crate::update::{Stage, UpdatePhase};
use std::sync::Arc;

impl Pool {
    /// Fails the pool for good: parked and new acquires get [`Error::PoolFailed`]; open leases can be settled. The
    /// first cause stays. Nothing happens to a pool that is closed.
    pub fn fail(&mut self, reason: &str, now: Timestamp) {
        self.advance(now);
        let reason = reason.to_owned();
        self.fail_with(Cause::Reported { reason });
    }

    /// Closes the pool for good: parked and new acquires get [`Error::PoolClosed`], and whatever ends badly from now
    /// on is no failure. A failed pool stays failed.
    pub fn close(&mut self, now: Timestamp) {
        self.advance(now);
        if self.lifecycle.check_alive().is_err() {
            return;
        }
        self.lifecycle.end_update(UpdatePhase::Cancelled, Stage::Closed);
        self.lifecycle.stage = Stage::Closed;
        self.record(EventKind::PoolClosed);
        self.changed();
        self.refuse_all_waiters(&Error::PoolClosed);
    }

    pub(super) fn fail_with(&mut self, cause: Cause) {
        match self.lifecycle.stage {
            Stage::Closed => {}
            Stage::Failed(_) => self.lifecycle.later_failures += 1,
            Stage::Init | Stage::Serving | Stage::Updating(_) => {
                let failure = Arc::new(Failure { cause, at: self.clock });
                let failed = || Stage::Failed(Arc::clone(&failure));
                self.lifecycle.end_update(UpdatePhase::Failed, failed());
                self.lifecycle.stage = failed();
                self.record(EventKind::PoolFailed {
                    failure: Arc::clone(&failure),
                });
                self.changed();
                self.refuse_all_waiters(&Error::PoolFailed { failure });
            }
        }
    }

    /// Takes in that something is uncertain which no lease of ours stands for.
    pub(super) fn note_uncertain(&mut self, cause: Cause) {
        if self.config.on_ambiguous == OnAmbiguous::FailPool {
            self.fail_with(cause);
        }
    }

    /// Ends the leases of a sender that is gone, as ambiguous, and forgets it. A lease that no call was told of was
    /// never used.
    pub(super) fn lose_sender(&mut self, handle: Handle, why: &'static str) {
        let name = self.senders.at(handle).name.to_string();
        let leases = self.drop_sender(handle, why);
        let held = u32::try_from(leases.iter().filter(|(_, told)| *told).count()).unwrap_or(u32::MAX);
        for (lease, told) in leases {
            let Some(open) = self.leases.get(lease).copied() else {
                continue;
            };
            if !told {
                let unused = Settlement::new(Outcome::NotSent);
                self.finish(lease, &open, &unused, Evidence::None, self.clock);
            } else if open.ambiguous {
                // It waits to be resolved already.
            } else if self.config.on_ambiguous == OnAmbiguous::Resolve {
                self.keep_counted(lease, &open, Evidence::None);
            } else {
                // Whoever vanished says nothing about the engine.
                let unknown = Settlement::new(Outcome::Ambiguous);
                self.finish(lease, &open, &unknown, Evidence::None, self.clock);
            }
        }
        if held > 0 {
            self.note_uncertain(Cause::SenderLost {
                sender: name,
                leases: held,
            });
        }
        self.after_settling();
    }

    /// Forgets a sender: its parked acquires fail, its sessions end, its tombstones go. Returns its open leases, and
    /// whether a call was told of each. Call [`Self::forget_departed`] afterwards.
    pub(super) fn drop_sender(&mut self, handle: Handle, why: &'static str) -> Vec<(LeaseId, bool)> {
        let Some(sender) = self.senders.remove(handle) else {
            return Vec::new();
        };
        let mut open = Vec::new();
        for record in sender.records.values() {
            match record.answer {
                Answer::Parked(ticket) => {
                    let sender = sender.name.to_string();
                    self.refuse_waiter(ticket, Error::UnknownSender { sender });
                }
                Answer::Leased { lease, ticket } if self.leases.get(lease).is_some() => {
                    let waiter = ticket.and_then(|ticket| self.waiters.get(ticket));
                    open.push((lease, waiter.is_none_or(|waiter| waiter.told)));
                }
                Answer::Leased { lease, .. } => self.leases.forget(lease),
            }
        }
        self.sessions.close_namespace(sender.namespace);
        self.record(EventKind::SenderGone {
            sender: sender.name.to_string(),
            why,
            open_leases: sender.held,
        });
        self.changed();
        open
    }

    /// Loses every sender that was silent for longer than the TTL.
    pub(super) fn expire_senders(&mut self) {
        let silent: Vec<Handle> = self
            .senders
            .iter()
            .filter(|(_, sender)| self.clock.since(sender.heard) > self.config.sender_ttl)
            .map(|(handle, _)| handle)
            .collect();
        for handle in silent {
            self.lose_sender(handle, "it was silent for longer than its TTL");
        }
    }
}
