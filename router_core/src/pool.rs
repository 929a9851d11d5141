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
mod keyed;
mod loss;
mod observation;
mod parking;
mod passing;
mod placing;
mod poisoning;
mod probing;
mod resolving;
mod roster;
mod senders;
mod sessions;
mod settling;
mod traffic;
mod transaction;
mod updates;
mod weights;

pub use crate::config::PoolConfig;

use crate::clock::ActiveClock;
use crate::durations::Durations;
use crate::event::{EventKind, EventRing};
use crate::fence::Owners;
use crate::health::{Health, Patience, Vitals};
use crate::lease::{LeaseId, Ledger};
use crate::membership::{Backend, BackendInfo, BackendRef, Membership};
use crate::poison::Guard;
pub use crate::select::{PickReason, RepinReason};
use crate::select::{Standing, Tier, Tournament};
use crate::sender::RequestKey;
use crate::sender::Senders;
use crate::session::SessionTable;
use crate::stats::Totals;
use crate::time::Timestamp;
use crate::update::{Lifecycle, Stage};
use crate::version::Published;
use crate::waiters::Waiters;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the load of a backend that ramps counts: it is taken for one of a quarter of its capacity.
const RAMP_WEIGHT: u64 = 4;

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
    /// The fingerprint of what is to run, when the caller knows it; see [`crate::poison`].
    pub fingerprint: Option<u64>,
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
            fingerprint: None,
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
            fingerprint: None,
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

    /// The same, of a body with this fingerprint.
    #[must_use]
    pub const fn printed(mut self, fingerprint: u64) -> Self {
        self.fingerprint = Some(fingerprint);
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
    /// Whether the engine had named its version when it was last asked: if it names none with its answer, it was started
    /// anew, with other weights.
    pub names_version: bool,
    /// When it was granted, on the shell's clock.
    pub granted: Timestamp,
    /// Whether this is the answer to an earlier call with the same key.
    pub replayed: bool,
}

/// What [`Pool::close_session`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedSession {
    /// Whether there was such a session.
    pub known: bool,
    /// Its leases that are still open, and its parked acquires. Leases run on and are settled as usual; an acquire that
    /// is parked fails with [`crate::error::Error::SessionClosed`] when it would be granted.
    pub open_leases: u32,
}

/// The routing state of one model of one role.
pub struct Pool {
    config: PoolConfig,
    patience: Patience,
    backends: Membership,
    tournament: Tournament,
    sessions: SessionTable,
    leases: Ledger,
    owners: Owners,
    senders: Senders,
    waiters: Waiters,
    lifecycle: Lifecycle,
    active: ActiveClock,
    poison: Guard,
    /// Since when sessions that spill are counted, and how many did.
    spills: (Timestamp, u32),
    events: EventRing,
    totals: Totals,
    durations: Durations,
    /// The latest timestamp seen.
    clock: Timestamp,
    /// When time alone may change something next; [`Timestamp::MAX`] when nothing waits for it.
    next_change: Timestamp,
    /// The last recency given to a granted backend.
    last_recency: u64,
}

impl Pool {
    /// A pool without backends.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self {
            patience: Patience::of(&config),
            backends: Membership::new(config.hash_seed),
            tournament: Tournament::new(),
            sessions: SessionTable::new(config.session_ttl, config.session_cap, config.hash_seed),
            leases: Ledger::new(config.lease_seed),
            owners: Owners::new(),
            senders: Senders::new(config.hash_seed),
            waiters: Waiters::default(),
            lifecycle: Lifecycle::new(config.start),
            active: ActiveClock::new(config.tick_limit),
            poison: Guard::new(&config),
            spills: (Timestamp::ZERO, 0),
            events: EventRing::default(),
            totals: Totals::default(),
            durations: Durations::default(),
            clock: Timestamp::ZERO,
            next_change: Timestamp::MAX,
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

    /// Moves the clock and lets what is due happen; returns the time at which this operation happens.
    #[inline]
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.clock = self.clock.max(now);
        if self.next_change <= self.clock {
            self.pass_time();
        }
        self.clock
    }

    /// Tells selection how the backend at `slot` stands now.
    #[inline]
    fn refresh(&mut self, slot: u32) {
        if let Some(ramp) = self.config.ramp {
            self.follow_ramp(slot, ramp);
        }
        let backend = self.backends.at(slot);
        let standing = backend
            .is_eligible(self.lifecycle.published)
            .then(|| self.standing(backend));
        self.tournament.update(slot, standing);
    }

    /// What selection compares about an eligible backend.
    #[inline]
    fn standing(&self, backend: &Backend) -> Standing {
        let load = self.config.load.measure(backend.outstanding, backend.idle_sessions);
        let is_ramping = backend.ramp_end.is_some_and(|end| end > self.clock);
        let weight = if is_ramping { RAMP_WEIGHT } else { 1 };
        let tier = if backend.is_suspect() {
            Tier::Suspect
        } else {
            Tier::Ready
        };
        Standing {
            tier,
            capacity: backend.info.capacity,
            load: load.saturating_mul(weight),
            sessions: backend.sessions,
            recency: backend.recency,
        }
    }

    /// Begins the ramp of a backend that is in use again or for the first time, whatever it waited for. One on trial is
    /// not back yet, and one that says during an update what it runs by now was not away: nobody was granted anything.
    #[cold]
    fn follow_ramp(&mut self, slot: u32, ramp: Duration) {
        let end = self.clock.after(ramp);
        let is_updating = matches!(self.lifecycle.stage, Stage::Updating(_));
        let backend = self.backends.at_mut(slot);
        let has_weights = is_updating || backend.weights.fit(self.lifecycle.published);
        if !backend.is_in_service() || backend.vitals.health() == Health::HalfOpen || !has_weights {
            backend.ramp_end = None;
        } else if backend.ramp_end.is_none() {
            backend.ramp_end = Some(end);
            self.next_change = self.next_change.min(end);
        }
    }

    /// Lets watchers know that something changed which they may wait for.
    #[inline]
    fn changed(&mut self) {
        self.lifecycle.revision += 1;
    }

    fn record(&mut self, kind: EventKind) {
        self.events.push(self.clock, kind);
    }

    /// Now, on the shell's clock and on the active one.
    fn instant(&self) -> (Timestamp, Duration) {
        (self.clock, self.active.elapsed())
    }

    /// Applies evidence to the backend at `slot`; a changed belief changes its eligibility and makes an event.
    #[inline]
    fn examine(&mut self, slot: u32, evidence: impl FnOnce(&mut Vitals)) {
        let backend = self.backends.at_mut(slot);
        let from = backend.vitals.health();
        evidence(&mut backend.vitals);
        let to = backend.vitals.health();
        // Another failure of a suspect moves the end of its suspicion, which is then found too early, never too late.
        if let Some(due) = backend.vitals.next_change(&self.patience) {
            self.next_change = self.next_change.min(due);
        }
        if from != to {
            self.note_health(slot, from, to);
        } else if to == Health::HalfOpen {
            // The trial may be free again.
            self.refresh(slot);
        }
    }

    #[cold]
    fn note_health(&mut self, slot: u32, from: Health, to: Health) {
        let backend = self.backends.at(slot);
        let failures = backend.vitals.failures();
        let backend = Arc::clone(&backend.info);
        self.record(EventKind::HealthChanged {
            backend,
            from,
            to,
            failures,
        });
        self.changed();
        self.refresh(slot);
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
