//! Frozen snapshots of a pool: what tests, metrics, status pages and people read alike.

use crate::durations::Durations;
use crate::error::Census;
use crate::fence::OwnerStatus;
use crate::health::Health;
use crate::lease::Outcome;
use crate::membership::BackendInfo;
use crate::poison::PoisonStatistics;
use crate::select::PickReason;
use crate::sender::SenderStatus;
use crate::state::PoolState;
use crate::update::UpdateStatus;
use crate::version::{Published, Weights};
use crate::waiters::ParkReason;
use std::sync::Arc;
use std::time::Duration;

/// How many leases were granted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PickCounts([u64; PickReason::ALL.len()]);

impl PickCounts {
    /// Grants for `reason` since the pool began.
    #[must_use]
    pub const fn get(&self, reason: PickReason) -> u64 {
        self.0[reason.index()]
    }

    /// Every reason with its count, in the order of [`PickReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (PickReason, u64)> + '_ {
        PickReason::ALL.into_iter().zip(self.0)
    }

    /// All grants.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) const fn add(&mut self, reason: PickReason) {
        self.0[reason.index()] += 1;
    }
}

/// How many leases were settled, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// Leases settled with `outcome`.
    #[must_use]
    pub const fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome.index()]
    }

    /// Every outcome with its count, in the order of [`Outcome::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.into_iter().zip(self.0)
    }

    /// All settled leases.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) const fn add(&mut self, outcome: Outcome) {
        self.0[outcome.index()] += 1;
    }
}

/// One incarnation at the time of the snapshot; its counters begin at 0 with the incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatistics {
    /// Which one, and its unchanging facts.
    pub info: Arc<BackendInfo>,
    /// The belief about its life.
    pub health: Health,
    /// Whether it is being drained, or held back until it is known how executions on it ended.
    pub draining: bool,
    /// Open leases on it whose end is known to be unknown.
    pub unresolved: u32,
    /// Whether it may take a new execution.
    pub eligible: bool,
    /// Open leases.
    pub outstanding: u32,
    /// Sessions pinned to it.
    pub sessions: u32,
    /// Leases granted.
    pub picks: u64,
    /// Leases settled.
    pub outcomes: OutcomeCounts,
    /// Tokens generated, as far as settlements told.
    pub output_tokens: u64,
    /// Consecutive failures of executions or of probes, whichever are more.
    pub failures: u32,
    /// For how long it has been unhealthy in a row, pauses of the servers not counted; the budget counts this.
    pub unhealthy: Duration,
    /// What is known about its weights.
    pub weights: Weights,
    /// Whether it runs the published version.
    pub weights_fit: bool,
}

/// How many acquires were parked, or are, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParkCounts([u64; ParkReason::ALL.len()]);

impl ParkCounts {
    /// Acquires parked for `reason`.
    #[must_use]
    pub const fn get(&self, reason: ParkReason) -> u64 {
        self.0[reason.index()]
    }

    /// Every reason with its count, in the order of [`ParkReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (ParkReason, u64)> + '_ {
        ParkReason::ALL.into_iter().zip(self.0)
    }

    pub(crate) const fn add(&mut self, reason: ParkReason) {
        self.0[reason.index()] += 1;
    }

    pub(crate) const fn add_many(&mut self, reason: ParkReason, count: u64) {
        self.0[reason.index()] += count;
    }
}

/// Calls that were made before and got the answer of the first one, by what they asked for; never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Acquires with the key of an earlier one.
    pub acquires: u64,
    /// Settlements of a lease that was settled.
    pub settlements: u64,
    /// Calls about an update whose effect was there already.
    pub updates: u64,
}

/// The control side of a pool at the time of the snapshot: who may do what, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlStatistics {
    /// Where the pool is in its life.
    pub state: PoolState,
    /// Whether the servers count as paused.
    pub server_paused: bool,
    /// The published version.
    pub published: Option<Published>,
    /// See [`crate::pool::Pool::generation`].
    pub generation: u32,
    /// See [`crate::pool::Pool::revision`].
    pub revision: u64,
    /// The update in progress.
    pub update: Option<UpdateStatus>,
    /// The last results, the latest last.
    pub last_updates: Vec<UpdateStatus>,
    /// Failures after the first, which alone counts; never decreases.
    pub later_failures: u64,
    /// Every owner, the default one first.
    pub owners: Vec<OwnerStatus>,
    /// Every attached sender, by name.
    pub senders: Vec<SenderStatus>,
    /// Parked acquires now.
    pub waiters: u32,
    /// The same by what they wait for now.
    pub waiting: ParkCounts,
    /// Acquires parked, by reason; never decreases.
    pub parked: ParkCounts,
    /// Settled requests that are remembered.
    pub tombstones: u32,
    /// Open leases whose end is known to be unknown.
    pub unresolved: u32,
    /// Aborted executions outside an update; never decreases.
    pub unexpected_aborts: u64,
    /// Probe answers that came too late to mean anything; never decreases.
    pub stale_probes: u64,
    /// Repeated calls.
    pub replays: ReplayCounts,
}

/// A pool at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatistics {
    /// The backends of the pool, in slot order.
    pub backends: Vec<BackendStatistics>,
    /// Removed incarnations that still have open leases.
    pub retired: Vec<BackendStatistics>,
    /// Open leases on all backends, the retired ones included.
    pub outstanding: u32,
    /// Sessions in the table: live ones, and what departed senders left until it is taken out. Those pinned to a
    /// forgotten incarnation are counted here and on no backend.
    pub sessions: usize,
    /// Open leases in the ledger; always equal to `outstanding`.
    pub leases: usize,
    /// Grants by reason; never decreases, whatever happens to the backends.
    pub picks: PickCounts,
    /// Settled leases by outcome; never decreases.
    pub outcomes: OutcomeCounts,
    /// Tokens generated, as far as settlements told; never decreases.
    pub output_tokens: u64,
    /// Sessions that ended by being idle for longer than the TTL; never decreases.
    pub sessions_expired: u64,
    /// Sessions that made room for others at the cap; never decreases.
    pub sessions_evicted: u64,
    /// Where the backends stand.
    pub census: Census,
    /// What is suspected to kill engines.
    pub poison: PoisonStatistics,
    /// The control side.
    pub control: ControlStatistics,
    /// How long things took.
    pub durations: Durations,
}

/// The counters that outlive every backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) picks: PickCounts,
    pub(crate) outcomes: OutcomeCounts,
    pub(crate) output_tokens: u64,
    pub(crate) sessions_expired: u64,
    pub(crate) sessions_evicted: u64,
    pub(crate) parked: ParkCounts,
    pub(crate) unexpected_aborts: u64,
    pub(crate) stale_probes: u64,
    pub(crate) replays: ReplayCounts,
}
