//! The pool and the model side by side: every operation is done to both, and both answer alike.

mod backends;
mod control;
mod senders;
mod traffic;

use crate::model::{Code, Life, Model, Phase};
use crate::operations::Operation;
use proptest::prelude::*;
use router_core::config::{OnAmbiguous, OnDrainTimeout, PoolConfig, Start};
use router_core::error::Error;
use router_core::health::Probe;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::BackendRef;
use router_core::pool::Pool;
use router_core::stats::PoolStatistics;
use router_core::time::Timestamp;
use router_core::waiters::Ticket;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const OWNERS: [&str; 3] = ["default", "train", "eval"];
/// The senders: two of train, one of eval.
pub(crate) const SENDERS: [(&str, usize); 3] = [("t0", 1), ("t1", 1), ("v0", 2)];
const LIMIT: usize = 6;
const SENDER_TTL: u64 = 60;
const TOMBSTONE_CAP: u32 = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) policy: OnAmbiguous,
    pub(crate) reports_timeouts: bool,
    pub(crate) awaits: bool,
}

pub(crate) struct Trial {
    pub(crate) setting: Setting,
    pub(crate) pool: Pool,
    pub(crate) model: Model,
    /// The first number that each sender has not settled.
    base: [u64; 3],
    last_update: u32,
    /// One entry per call that waits.
    calls: Vec<Ticket>,
    settled: Vec<LeaseId>,
    references: Vec<BackendRef>,
    probes: Vec<Probe>,
    /// The highest version ever published, to see that it never decreases.
    highest: Option<(u64, u64)>,
    seen: BTreeMap<Code, usize>,
}

impl Trial {
    pub(crate) fn new(setting: Setting) -> Self {
        let config = PoolConfig {
            on_ambiguous: setting.policy,
            on_drain_timeout: if setting.reports_timeouts {
                OnDrainTimeout::Report
            } else {
                OnDrainTimeout::Fail
            },
            start: if setting.awaits {
                Start::AwaitVersion
            } else {
                Start::Serving
            },
            max_outstanding: Some(u32::try_from(LIMIT).expect("small")),
            sender_ttl: Duration::from_secs(SENDER_TTL),
            tombstone_cap: TOMBSTONE_CAP,
            // Health has tests of its own: here nobody goes down.
            down_after: u32::MAX,
            zero_token_aborts: u32::MAX,
            session_ttl: Duration::from_secs(1_000_000),
            hash_seed: 7,
            ..PoolConfig::default()
        };
        let mut pool = Pool::new(config);
        for owner in &OWNERS[1..] {
            pool.attach_owner(owner, None, Timestamp::ZERO).expect("a new owner");
        }
        Self {
            setting,
            pool,
            model: Model::new(
                setting.policy,
                setting.reports_timeouts,
                setting.awaits,
                LIMIT,
                SENDER_TTL,
            ),
            base: [4; 3],
            last_update: 0,
            calls: Vec::new(),
            settled: Vec::new(),
            references: Vec::new(),
            probes: Vec::new(),
            highest: None,
            seen: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(Duration::from_secs(self.model.now))
    }

    pub(crate) fn seen(&self, what: &str) -> usize {
        self.seen.get(what).copied().unwrap_or(0)
    }

    fn note(&mut self, what: Code) {
        *self.seen.entry(what).or_insert(0) += 1;
    }

    /// Both answered, and alike.
    fn agree<T>(&mut self, answer: Result<T, Error>, expected: Option<Code>) -> Result<Option<T>, TestCaseError> {
        if let Some(code) = expected {
            self.note(code);
        }
        prop_assert_eq!(answer.as_ref().err().map(Error::code), expected);
        Ok(answer.ok())
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Acquire {
                sender,
                incarnation,
                seq,
                session,
                wait,
            } => self.acquire(sender, incarnation, seq, session, wait)?,
            Operation::Plain { session, wait } => self.acquire_plain(session, wait)?,
            Operation::Settle { lease, outcome } => self.settle(lease, outcome)?,
            Operation::SettleAgain { lease, outcome } => self.settle_again(lease, outcome)?,
            Operation::Claim { ticket } => self.claim(ticket)?,
            Operation::GiveUp { ticket } => self.give_up(ticket)?,
            Operation::Abandon { ticket } => self.abandon(ticket),
            Operation::Heartbeat { sender, from, count } => self.heartbeat(sender, from, count)?,
            Operation::Attach { sender, incarnation } => self.attach(sender, incarnation)?,
            Operation::Detach { sender } => self.detach(sender)?,
            Operation::CloseSession { sender, session } => self.close_session(sender, session),
            ref control => self.apply_control(control)?,
        }
        let wakes = std::mem::take(&mut self.model.wakes);
        prop_assert_eq!(self.pool.has_wakes(), !wakes.is_empty());
        prop_assert_eq!(&self.pool.take_wakes(), &wakes);
        for _ in wakes {
            self.note("woken");
        }
        Ok(())
    }

    /// The invariants, and that every number is the model's.
    pub(crate) fn check(&mut self) -> Result<(), TestCaseError> {
        let statistics = self.pool.statistics();
        self.check_counts(&statistics)?;
        self.check_versions(&statistics)?;
        // Nobody waits who could be served.
        for waiter in self.model.waiters.iter().filter(|waiter| waiter.answer.is_none()) {
            prop_assert!(self.model.obstacle(waiter.owner).is_some(), "{:?}", waiter);
        }
        for (owner, standing) in statistics.control.owners.iter().zip(&self.model.owners) {
            prop_assert_eq!(owner.fences.len(), standing.fences.len());
        }
        Ok(())
    }

    /// I1.
    fn check_counts(&self, statistics: &PoolStatistics) -> Result<(), TestCaseError> {
        let model = &self.model;
        prop_assert_eq!(statistics.outstanding as usize, model.leases.len());
        prop_assert_eq!(statistics.leases, model.leases.len());
        prop_assert_eq!(statistics.outcomes.total(), model.settled);
        prop_assert_eq!(statistics.sessions, model.sessions.len());
        let control = &statistics.control;
        prop_assert_eq!(control.tombstones as usize, model.tombstones.len());
        prop_assert_eq!(control.senders.len(), model.senders.len());
        let ambiguous = model.leases.values().filter(|lease| lease.ambiguous).count();
        prop_assert_eq!(control.unresolved as usize, ambiguous);
        let queued = model.waiters.iter().filter(|waiter| waiter.answer.is_none()).count();
        prop_assert_eq!(control.waiters as usize, queued);
        let untold = model.leases.values().filter(|lease| lease.id.is_none()).count();
        let mut beyond = 0;
        for backend in statistics.backends.iter().chain(&statistics.retired) {
            let generation = backend.info.reference.generation();
            let known = model.leases.values().filter(|lease| lease.backend == Some(generation));
            let known = known.count();
            prop_assert!(backend.outstanding as usize >= known);
            beyond += backend.outstanding as usize - known;
        }
        prop_assert_eq!(beyond, untold, "what is outstanding beyond the known leases");
        for (index, owner) in control.owners.iter().enumerate() {
            let leases = model.leases.values().filter(|lease| lease.owner == index);
            prop_assert_eq!(owner.outstanding as usize, leases.count());
        }
        let eligible = model.backends.iter().filter(|backend| model.is_eligible(backend));
        prop_assert_eq!(statistics.census.eligible as usize, eligible.count());
        Ok(())
    }

    /// I3 and I4, and the state of the pool.
    fn check_versions(&mut self, statistics: &PoolStatistics) -> Result<(), TestCaseError> {
        let control = &statistics.control;
        let published = control.published.map(|published| (published.epoch, published.version));
        prop_assert_eq!(published, self.model.published);
        prop_assert!(published >= self.highest, "I4");
        self.highest = published;
        let all_current = self.model.leases.values().all(|lease| lease.version == published);
        prop_assert!(all_current, "I3");
        let expected = match self.model.life {
            Life::Init => "init",
            Life::Serving => "serving",
            Life::Updating(update) => match update.phase {
                Phase::Quiescing => "quiescing",
                Phase::Drained => "drained",
                _ => "updating",
            },
            Life::Failed => "failed",
            Life::Closed => "closed",
        };
        prop_assert_eq!(control.state.as_str(), expected);
        prop_assert_eq!(control.server_paused, self.model.paused_for.is_some());
        Ok(())
    }

    /// I7: when everybody has left and everything is settled, closed and removed, nothing is left.
    pub(crate) fn finish(mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        for ticket in std::mem::take(&mut self.calls) {
            self.pool.abandon(ticket, now);
            self.model_abandon(ticket);
        }
        self.model.wakes.clear();
        self.check()?;
        let open: Vec<LeaseId> = self.model.leases.values().filter_map(|lease| lease.id).collect();
        for lease in open {
            self.pool
                .settle(lease, Settlement::new(Outcome::Completed), now)
                .expect("open");
        }
        for (sender, (name, _)) in (0u8..).zip(SENDERS) {
            if let Some(sender) = self.model.senders.get(&sender) {
                let incarnation = sender.incarnation.to_string();
                self.pool.detach_sender(name, &incarnation, now).expect("idle");
            }
        }
        for session in 0u8..4 {
            self.pool.close_session(&session.to_string(), now);
        }
        for number in 0u8..4 {
            // Some are not registered; that is as good.
            drop(self.pool.remove_backend(&number.to_string(), now));
        }
        let statistics = self.pool.statistics();
        prop_assert_eq!((statistics.backends.len(), statistics.retired.len()), (0, 0));
        prop_assert_eq!(
            (statistics.sessions, statistics.leases, statistics.outstanding),
            (0, 0, 0)
        );
        let control = statistics.control;
        prop_assert_eq!((control.tombstones, control.waiters, control.unresolved), (0, 0, 0));
        prop_assert_eq!(control.senders.len(), 0);
        Ok(())
    }
}
