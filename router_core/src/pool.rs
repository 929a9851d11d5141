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

mod fences;
mod observation;
mod parking;
mod probing;
mod roster;
mod senders;
mod traffic;
mod updates;
mod weights;

pub use crate::config::PoolConfig;

use crate::event::{EventKind, EventRing};
use crate::health::Vitals;
use crate::lease::{LeaseId, Ledger};
use crate::membership::{BackendInfo, BackendRef, Membership};
use crate::select::Tournament;
pub use crate::select::{PickReason, RepinReason};
use crate::session::SessionTable;
use crate::stats::Totals;
use crate::sender::RequestKey;
use crate::time::Timestamp;
use crate::version::Published;
use std::fmt;
use std::sync::Arc;

/// What a caller wants to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireRequest<'a> {
    /// The session this turn belongs to, if any.
    pub session: Option<&'a str>,
    /// Backends already tried for this execution; unknown and removed ones are ignored.
    pub exclude: &'a [BackendRef],
    /// The sender and the number of the request. Without one it belongs to the default owner, and a repeated call is
    /// another request.
    pub key: Option<RequestKey<'a>>,
    /// The only version it may be granted under.
    pub expect_version: Option<u64>,
}

impl<'a> AcquireRequest<'a> {
    /// A turn of the session called `key`.
    #[must_use]
    pub const fn for_session(key: &'a str) -> Self {
        Self {
            session: Some(key),
            exclude: &[],
            key: None,
            expect_version: None,
        }
    }

    /// An execution that belongs to no session.
    #[must_use]
    pub const fn unpinned() -> Self {
        Self {
            session: None,
            exclude: &[],
            key: None,
            expect_version: None,
        }
    }

    /// The same as the request of a sender: calls with the same key are one request. Same body, same answer; a key with
    /// another session or version is refused. (Excluded backends are a hint, and may differ.)
    #[must_use]
    pub const fn keyed(mut self, key: RequestKey<'a>) -> Self {
        self.key = Some(key);
        self
    }

    /// The same, to be granted under this version only.
    #[must_use]
    pub const fn expecting(mut self, version: u64) -> Self {
        self.expect_version = Some(version);
        self
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
    /// The weights that will run it; `None` while no version is published.
    pub version: Option<Published>,
    /// Whether this is the answer to an earlier call with the same key.
    pub replayed: bool,
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
    /// When the first suspicion may end; [`Timestamp::MAX`] when nobody is suspect.
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
            self.decay_suspicions();
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
        // Another failure of a suspect moves the end of its suspicion, which is then found too early, never too late.
        if let Some(end) = backend.vitals.suspicion_ends(self.config.suspect_decay) {
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
    fn decay_suspicions(&mut self) {
        let (decay, now) = (self.config.suspect_decay, self.clock);
        let suspects: Vec<u32> = self
            .backends
            .live()
            .filter(|backend| backend.vitals.suspicion_ends(decay).is_some())
            .map(|backend| backend.info.reference.slot())
            .collect();
        self.next_decay = Timestamp::MAX;
        for slot in suspects {
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
