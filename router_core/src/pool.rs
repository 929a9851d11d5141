//! The pool: the public face of the core. Each operation is one critical section.
//!
//! A pool is the routing state of one model of one role: its backends, its sessions, its open leases. The caller owns
//! the lock and the clock. Picking and reserving are one operation, so a burst of acquires sees each other's
//! reservations; stickiness is applied after eligibility, so a pin never leads to a backend that cannot serve.
//!
//! Time never runs backwards here: an operation with an earlier timestamp than the one before happens at the same
//! time as that one.
//!
//! The operations are grouped by who calls them: every request ([`Pool::acquire`] and on), the owner of the membership
//! ([`Pool::add_backend`] and on), and whoever watches ([`Pool::statistics`] and on).

mod observation;
mod roster;
mod traffic;

use crate::event::{EventKind, EventRing};
use crate::health::Vitals;
use crate::lease::{LeaseId, Ledger};
use crate::membership::{BackendInfo, BackendRef, Membership};
use crate::select::Tournament;
pub use crate::select::{PickReason, RepinReason};
use crate::session::SessionTable;
use crate::stats::Totals;
use crate::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What can be set about a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How long a session may be idle (no open lease) before it is forgotten. Default: one hour.
    pub session_ttl: Duration,
    /// Sessions kept at most; the one idle for longest makes room. Default: 1,000,000.
    pub session_cap: usize,
    /// Executions outstanding at most, over all backends; `None` is no limit, the default.
    pub max_outstanding: Option<u32>,
    /// Consecutive failures that bring a backend down; 0 counts as 1. Default: 3.
    pub down_after: u32,
    /// How long after a failure new sessions avoid a backend. Default: 10 s.
    pub suspect_decay: Duration,
    /// Seed of the hash tables: an argument, so that runs can be repeated. Default: 0.
    pub hash_seed: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_secs(3600),
            session_cap: 1_000_000,
            max_outstanding: None,
            down_after: 3,
            suspect_decay: Duration::from_secs(10),
            hash_seed: 0,
        }
    }
}

/// What a caller wants to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireRequest<'a> {
    /// The session this turn belongs to, if any.
    pub session: Option<&'a str>,
    /// Backends already tried for this execution; unknown and removed ones are ignored.
    pub exclude: &'a [BackendRef],
}

impl<'a> AcquireRequest<'a> {
    /// A turn of the session called `key`.
    #[must_use]
    pub const fn for_session(key: &'a str) -> Self {
        Self {
            session: Some(key),
            exclude: &[],
        }
    }

    /// An execution that belongs to no session.
    #[must_use]
    pub const fn unpinned() -> Self {
        Self {
            session: None,
            exclude: &[],
        }
    }

    /// The same, on none of `backends`.
    #[must_use]
    pub const fn excluding(mut self, backends: &'a [BackendRef]) -> Self {
        self.exclude = backends;
        self
    }
}

/// A reservation: an execution that is counted from now on, until its lease is settled.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What to settle.
    pub lease: LeaseId,
    /// Where to run.
    pub backend: Arc<BackendInfo>,
    /// Why there.
    pub reason: PickReason,
}

/// What [`Pool::close_session`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedSession {
    /// Whether there was such a session.
    pub known: bool,
    /// Its leases that are still open; they run on and are settled as usual.
    pub open_leases: u32,
}

/// The routing state of one model of one role.
pub struct Pool {
    config: PoolConfig,
    backends: Membership,
    tournament: Tournament,
    sessions: SessionTable,
    leases: Ledger,
    events: EventRing,
    totals: Totals,
    /// The latest timestamp seen.
    clock: Timestamp,
    /// When the first belief may become milder; [`Timestamp::MAX`] when nobody is suspect or down.
    next_decay: Timestamp,
    /// The last recency given to a granted backend.
    last_recency: u64,
}

impl Pool {
    /// A pool without backends.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self {
            backends: Membership::new(config.hash_seed),
            tournament: Tournament::new(),
            sessions: SessionTable::new(config.session_ttl, config.session_cap, config.hash_seed),
            leases: Ledger::default(),
            events: EventRing::default(),
            totals: Totals::default(),
            clock: Timestamp::ZERO,
            next_decay: Timestamp::MAX,
            // Above every generation, which is the recency of a backend never granted.
            last_recency: u64::from(u32::MAX),
            config,
        }
    }

    /// What the pool was made with.
    #[must_use]
    pub const fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Moves the clock and lets due suspicions end; returns the time at which this operation happens.
    #[inline]
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.clock = self.clock.max(now);
        if self.next_decay <= self.clock {
            self.decay_beliefs();
        }
        self.clock
    }

    /// Tells selection how the backend at `slot` stands now.
    #[inline]
    fn refresh(&mut self, slot: u32) {
        self.tournament.update(slot, self.backends.at(slot).standing());
    }

    fn record(&mut self, kind: EventKind) {
        self.events.push(self.clock, kind);
    }

    /// Applies evidence to the backend at `slot`; a changed belief changes its eligibility and makes an event.
    #[inline]
    fn examine(&mut self, slot: u32, evidence: impl FnOnce(&mut Vitals)) {
        let backend = self.backends.at_mut(slot);
        let from = backend.vitals.health();
        evidence(&mut backend.vitals);
        let to = backend.vitals.health();
        // Another failure moves the time of the decay, which is then looked at too early, never too late.
        if let Some(end) = backend.vitals.decays_at(self.config.suspect_decay) {
            self.next_decay = self.next_decay.min(end);
        }
        if from != to {
            let failures = backend.vitals.failures();
            let backend = Arc::clone(&backend.info);
            self.record(EventKind::HealthChanged {
                backend,
                from,
                to,
                failures,
            });
            self.refresh(slot);
        }
    }

    #[cold]
    fn decay_beliefs(&mut self) {
        let (decay, now) = (self.config.suspect_decay, self.clock);
        let distrusted: Vec<u32> = self
            .backends
            .live()
            .filter(|backend| backend.vitals.decays_at(decay).is_some())
            .map(|backend| backend.info.reference.slot())
            .collect();
        self.next_decay = Timestamp::MAX;
        for slot in distrusted {
            self.examine(slot, |vitals| vitals.decay(decay, now));
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("config", &self.config)
            .field("census", &self.census())
            .field("outstanding", &self.leases.len())
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}
