//! Acquires, settlements and calls that wait.

use super::{SENDERS, TOMBSTONE_CAP, Trial};
use crate::model::{Code, Record, Waiter};
use proptest::prelude::*;
use proptest::sample::Index;
use router_core::config::OnAmbiguous;
use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::pool::{AcquireRequest, Grant};
use router_core::sender::RequestKey;
use router_core::waiters::{Acquisition, Ticket};
use std::time::Duration;

/// What is expected of an acquire.
enum Expected {
    /// The lease of this number is told again.
    Replay(u64),
    /// The call joins this one.
    Join(Ticket),
    Refused(Code),
    /// A new lease, or a new wait, for this owner, request and session.
    New {
        owner: usize,
        request: Option<(u64, u64)>,
        session: (u64, u8),
    },
}

fn is_worth_waiting(code: Code) -> bool {
    [
        "fenced",
        "not_serving",
        "version_not_acked",
        "at_capacity",
        "no_eligible_backend",
    ]
    .contains(&code)
}

impl Trial {
    pub(super) fn acquire(
        &mut self,
        sender: u8,
        incarnation: u8,
        offset: u64,
        session: u8,
        wait: Option<u64>,
    ) -> Result<(), TestCaseError> {
        let base = self.base[usize::from(sender)];
        // A few are numbers from before.
        let seq = if offset < 4 {
            base - 4 + offset
        } else {
            base + (offset - 4) % 8
        };
        // The session of a request is mostly the same when it is repeated.
        let session = if session == 3 {
            3
        } else {
            u8::try_from(seq % 3).expect("small")
        };
        let (name, owner) = SENDERS[usize::from(sender)];
        let now = self.model.now;
        let known = self.model.senders.get_mut(&sender);
        let known = known.filter(|sender| sender.incarnation == incarnation);
        let expected = match known {
            None => Expected::Refused("unknown_sender"),
            Some(sender) => {
                sender.heard = now;
                let namespace = sender.namespace;
                let buried = sender.records.values().filter(
                    |(_, record)| matches!(record, Record::Leased(number) if !self.model.leases.contains_key(number)),
                );
                if sender.settled.contains(&seq) {
                    Expected::Refused("stale_request")
                } else if let Some((of, record)) = sender.records.get(&seq) {
                    match record {
                        _ if *of != session => Expected::Refused("idempotency_conflict"),
                        Record::Parked(ticket) => Expected::Join(*ticket),
                        Record::Leased(number) if self.model.leases.contains_key(number) => Expected::Replay(*number),
                        Record::Leased(_) => Expected::Refused("request_settled"),
                    }
                } else if buried.count() >= TOMBSTONE_CAP as usize {
                    Expected::Refused("too_many_tombstones")
                } else {
                    Expected::New {
                        owner,
                        request: Some((namespace, seq)),
                        session: (namespace, session),
                    }
                }
            }
        };
        let (incarnation, session) = (incarnation.to_string(), session.to_string());
        let request = AcquireRequest::for_session(&session).keyed(RequestKey {
            sender: name,
            incarnation: &incarnation,
            seq,
        });
        self.acquire_and_compare(&request, wait, &expected)
    }

    pub(super) fn acquire_plain(&mut self, session: u8, wait: Option<u64>) -> Result<(), TestCaseError> {
        let expected = Expected::New {
            owner: 0,
            request: None,
            session: (0, session),
        };
        let session = session.to_string();
        self.acquire_and_compare(&AcquireRequest::for_session(&session), wait, &expected)
    }

    fn acquire_and_compare(
        &mut self,
        request: &AcquireRequest<'_>,
        wait: Option<u64>,
        expected: &Expected,
    ) -> Result<(), TestCaseError> {
        let now = self.now();
        let answer = match wait {
            None => self.pool.acquire(request, now).map(Acquisition::Granted),
            Some(seconds) => {
                let deadline = now.after(Duration::from_secs(seconds));
                self.pool.acquire_or_park(request, deadline, now)
            }
        };
        match *expected {
            Expected::Refused(code) => drop(self.agree(answer, Some(code))?),
            Expected::Replay(number) => {
                let Some(Acquisition::Granted(grant)) = self.agree(answer, None)? else {
                    return Err(TestCaseError::fail("parked, though it was granted before"));
                };
                let mut waiters = self.model.waiters.iter_mut();
                if let Some(waiter) = waiters.find(|waiter| waiter.answer == Some(Ok(number))) {
                    waiter.told = true;
                }
                prop_assert!(grant.replayed);
                self.note("replayed");
                self.told(number, &grant)?;
            }
            Expected::Join(ticket) => self.join(answer, wait, ticket)?,
            Expected::New {
                owner,
                request,
                session,
            } => match (self.model.obstacle(owner), wait) {
                (Some(code), Some(seconds)) if is_worth_waiting(code) => {
                    let Some(Acquisition::Parked(parked)) = self.agree(answer, None)? else {
                        return Err(TestCaseError::fail(format!("granted, though {code}")));
                    };
                    prop_assert_eq!(parked.reason.as_str(), code);
                    self.park(parked.ticket, owner, request, session, seconds, code);
                }
                (Some(code), _) => drop(self.agree(answer, Some(code))?),
                (None, _) => {
                    let Some(Acquisition::Granted(grant)) = self.agree(answer, None)? else {
                        return Err(TestCaseError::fail("parked, though nothing was in the way"));
                    };
                    prop_assert!(!grant.replayed);
                    let number = self.model.grant(owner, request, session);
                    self.told(number, &grant)?;
                }
            },
        }
        Ok(())
    }

    fn join(
        &mut self,
        answer: Result<Acquisition, Error>,
        wait: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), TestCaseError> {
        let waiter = self.model.waiters.iter().position(|waiter| waiter.ticket == ticket);
        let waiter = waiter.expect("parked");
        let obstacle = self.model.obstacle(self.model.waiters[waiter].owner);
        let Some(seconds) = wait else {
            self.agree(answer, obstacle)?;
            return Ok(());
        };
        let Some(Acquisition::Parked(parked)) = self.agree(answer, None)? else {
            return Err(TestCaseError::fail("granted, though it is parked"));
        };
        prop_assert_eq!((parked.ticket, Some(parked.reason.as_str())), (ticket, obstacle));
        let deadline = self.model.now + seconds;
        let waiter = &mut self.model.waiters[waiter];
        waiter.calls += 1;
        waiter.deadline = waiter.deadline.max(deadline);
        self.calls.push(ticket);
        Ok(())
    }

    fn park(
        &mut self,
        ticket: Ticket,
        owner: usize,
        request: Option<(u64, u64)>,
        session: (u64, u8),
        seconds: u64,
        why: Code,
    ) {
        self.model.waiters.push(Waiter {
            ticket,
            owner,
            request,
            session,
            hold: self.model.sessions.get(&session).copied(),
            deadline: self.model.now + seconds,
            why,
            calls: 1,
            answer: None,
            told: false,
        });
        if let Some((namespace, seq)) = request {
            let sender = self.model.sender_of(namespace).expect("attached");
            sender.records.insert(seq, (session.1, Record::Parked(ticket)));
        }
        self.calls.push(ticket);
    }

    /// A call was told of the lease with this number.
    fn told(&mut self, number: u64, grant: &Grant) -> Result<(), TestCaseError> {
        let lease = self.model.leases.get_mut(&number).expect("an open lease");
        prop_assert_eq!(lease.id.unwrap_or(grant.lease), grant.lease);
        let generation = grant.backend.reference.generation();
        prop_assert_eq!(lease.backend.unwrap_or(generation), generation);
        let version = grant.version.map(|published| (published.epoch, published.version));
        prop_assert_eq!(version, lease.version);
        (lease.id, lease.backend) = (Some(grant.lease), Some(generation));
        Ok(())
    }

    pub(super) fn settle(&mut self, index: Index, outcome: Outcome) -> Result<(), TestCaseError> {
        let known = self
            .model
            .leases
            .iter()
            .filter_map(|(number, lease)| Some((*number, lease.id?)));
        let known: Vec<(u64, LeaseId)> = known.collect();
        if known.is_empty() {
            return Ok(());
        }
        let (number, id) = *index.get(&known);
        let is_ambiguous = self.model.leases[&number].ambiguous;
        let now = self.now();
        let answer = self.pool.settle(id, Settlement::new(outcome), now);
        if outcome == Outcome::Lost && !is_ambiguous {
            self.agree(answer, Some("invalid_transition"))?;
            return Ok(());
        }
        let settled = self.agree(answer, None)?.expect("settled");
        prop_assert_eq!(settled.outcome, outcome);
        prop_assert_eq!(settled.already, is_ambiguous && outcome == Outcome::Ambiguous);
        if settled.already {
            return Ok(());
        }
        if outcome == Outcome::Ambiguous && self.model.policy == OnAmbiguous::Resolve {
            self.model.leases.get_mut(&number).expect("open").ambiguous = true;
            return Ok(());
        }
        self.close(number, id, outcome);
        if outcome == Outcome::Ambiguous && self.model.policy == OnAmbiguous::FailPool {
            self.model.fail();
        }
        self.model.after_settling();
        Ok(())
    }

    pub(super) fn close(&mut self, number: u64, id: LeaseId, outcome: Outcome) {
        self.model.close(number, outcome);
        self.settled.push(id);
    }

    /// A settlement of what was settled never changes anything, and is counted as told again.
    pub(super) fn settle_again(&mut self, index: Index, outcome: Outcome) -> Result<(), TestCaseError> {
        if self.settled.is_empty() {
            return Ok(());
        }
        let id = *index.get(&self.settled);
        let recorded = self.model.tombstones.values().find(|(of, _)| *of == Some(id));
        let expected = match recorded.map(|(_, recorded)| *recorded) {
            None => Some("unknown_lease"),
            Some(recorded) if recorded == outcome => None,
            Some(Outcome::Lost) if outcome == Outcome::Ambiguous => None,
            Some(_) => Some("outcome_conflict"),
        };
        let now = self.now();
        // Takes the pool's clock along, which alone would be a difference.
        self.pool.close_session("nobody", now);
        let mut before = self.pool.statistics();
        let answer = self.pool.settle(id, Settlement::new(outcome), now);
        if let Some(settled) = self.agree(answer, expected)? {
            prop_assert!(settled.already);
            before.control.replays.settlements += 1;
        }
        prop_assert!(
            self.pool.statistics() == before,
            "a settlement told again changed something"
        );
        Ok(())
    }

    fn pick(&self, index: Index) -> Option<usize> {
        (!self.calls.is_empty()).then(|| index.index(self.calls.len()))
    }

    /// What a call that claims is told, by the model.
    fn expected_answer(&self, ticket: Ticket) -> Option<Result<u64, Code>> {
        let waiter = self.model.waiters.iter().find(|waiter| waiter.ticket == ticket);
        let answer = waiter.expect("a waiter").answer?;
        Some(answer.and_then(|number| {
            if self.model.leases.contains_key(&number) {
                Ok(number)
            } else if self.model.tombstones.contains_key(&number) {
                Err("request_settled")
            } else {
                Err("unknown_lease")
            }
        }))
    }

    pub(super) fn claim(&mut self, index: Index) -> Result<(), TestCaseError> {
        let Some(position) = self.pick(index) else {
            return Ok(());
        };
        let ticket = self.calls[position];
        let expected = self.expected_answer(ticket);
        let now = self.now();
        let answer = self.pool.claim(ticket, now);
        prop_assert_eq!(answer.is_some(), expected.is_some());
        if let (Some(answer), Some(expected)) = (answer, expected) {
            self.compare_claim(position, answer, expected)?;
        }
        Ok(())
    }

    pub(super) fn give_up(&mut self, index: Index) -> Result<(), TestCaseError> {
        let Some(position) = self.pick(index) else {
            return Ok(());
        };
        let ticket = self.calls[position];
        let expected = self.expected_answer(ticket);
        let waiter = self.model.waiters.iter().find(|waiter| waiter.ticket == ticket);
        let obstacle = self.model.obstacle(waiter.expect("a waiter").owner);
        let now = self.now();
        let answer = self.pool.give_up(ticket, now);
        if let Some(expected) = expected {
            return self.compare_claim(position, answer, expected);
        }
        self.agree(answer, obstacle)?;
        self.calls.swap_remove(position);
        self.model.leave(ticket);
        Ok(())
    }

    fn compare_claim(
        &mut self,
        position: usize,
        answer: Result<Grant, Error>,
        expected: Result<u64, Code>,
    ) -> Result<(), TestCaseError> {
        let ticket = self.calls.swap_remove(position);
        let mut waiters = self.model.waiters.iter_mut();
        let waiter = waiters.find(|waiter| waiter.ticket == ticket).expect("a waiter");
        let was_told = std::mem::replace(&mut waiter.told, true);
        let grant = self.agree(answer, expected.err())?;
        if let (Some(grant), Ok(number)) = (grant, expected) {
            prop_assert_eq!(grant.replayed, was_told);
            self.told(number, &grant)?;
        }
        self.model.leave(ticket);
        Ok(())
    }

    pub(super) fn abandon(&mut self, index: Index) {
        let Some(position) = self.pick(index) else { return };
        let ticket = self.calls.swap_remove(position);
        let now = self.now();
        self.pool.abandon(ticket, now);
        self.model_abandon(ticket);
    }

    pub(super) fn model_abandon(&mut self, ticket: Ticket) {
        let waiter = self.model.waiters.iter().find(|waiter| waiter.ticket == ticket);
        let waiter = waiter.expect("a waiter").clone();
        self.model.leave(ticket);
        if let Some(Ok(number)) = waiter.answer
            && waiter.calls == 1
            && !waiter.told
            && self.model.leases.contains_key(&number)
        {
            self.model.close(number, Outcome::NotSent);
            self.model.after_settling();
        }
    }
}
