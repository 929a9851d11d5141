//! What can be set about a pool, one type per knob.
//!
//! Every default is that of a pool that nobody updates and nobody fences: it serves at once, knows no versions, and an
//! unclear ending of an execution is counted and over.

use crate::load::LoadSignal;
use std::time::Duration;

/// What a pool does before its first published version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// It serves, without versions. The default.
    #[default]
    Serving,
    /// It is [`crate::state::PoolState::Init`] and grants nothing until a version is published.
    AwaitVersion,
}

/// What becomes of leases that an earlier router process granted, when their senders present them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// They are adopted when backend and version match. The default.
    #[default]
    Adopt,
    /// Each is ambiguous.
    Restart,
}

/// What becomes of an execution whose end nobody knows. Never a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAmbiguous {
    /// It is counted, and over: for a pool whose weights are never updated. The default.
    #[default]
    Settle,
    /// It stays counted until the shell has seen that the engine no longer knows it, and ends as `lost`.
    Resolve,
    /// The pool fails.
    FailPool,
}

/// What happens when a drain has not ended by its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrainTimeout {
    /// The pool fails. The default.
    #[default]
    Fail,
    /// The blockers are reported; the pool goes on draining.
    Report,
}

/// What happens when a backend was unhealthy for longer than its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnhealthy {
    /// It is down. The default.
    #[default]
    Exclude,
    /// The pool fails: for a fixed membership, in which nobody can be spared.
    FailPool,
}

/// When an idle session may leave a crowded backend.
///
/// The default is a ratio of 2, a margin of 3, 65,536 tokens and 60 sessions a minute: a turn in a hundred moves, and
/// the backend that was unlucky with long sessions gives some of them away.
///
/// Example: with a ratio of 2 and a margin of 8, a session whose context has at most 4,096 tokens moves from a backend
/// with 40 executions to one with 2, and never back, as 2 is not twice 40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spill {
    /// How many times the load of the best backend the load of its own must be, at least 2.
    pub ratio: u32,
    /// By how many executions its own must be ahead, whatever the ratio.
    pub margin: u32,
    /// The longest context, in tokens, that is worth computing again. A session of unknown context stays.
    pub max_context_tokens: u32,
    /// Sessions that move per minute at most.
    pub per_minute: u32,
}

impl Default for Spill {
    fn default() -> Self {
        Self {
            ratio: 2,
            margin: 3,
            max_context_tokens: 65_536,
            per_minute: 60,
        }
    }
}

const WAITER_CAP: u32 = 100_000;

/// What can be set about a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How long a session may be idle (no open lease) before it is forgotten. Default: one hour.
    pub session_ttl: Duration,
    /// Sessions kept at most; the one idle for longest makes room. Default: 1,000,000.
    pub session_cap: usize,
    /// Executions outstanding at most, over all backends; `None` is no limit, the default.
    pub max_outstanding: Option<u32>,
    /// Requests that wait for a place at most while `max_outstanding` run, whatever they say of their patience. Default:
    /// 100,000, as many as may wait at all.
    pub queue_size: u32,
    /// How long [`crate::pool::Pool::acquire_or_queue`] waits for a place; `None`, the default, is not at all.
    pub queue_timeout: Option<Duration>,
    /// Consecutive failures that bring a backend down; 0 counts as 1. Default: 3.
    pub down_after: u32,
    /// How long after a failure new sessions avoid a backend. Default: 10 s.
    pub suspect_decay: Duration,
    /// Seed of the hash tables: an argument, so that runs can be repeated. Default: 0.
    pub hash_seed: u64,
    /// Marks the ids of leases, so that one of another router process names no lease here: an argument, so that runs can
    /// be repeated. Default: 0.
    pub lease_seed: u64,
    /// What the pool does before its first version.
    pub start: Start,
    /// What becomes of the leases of an earlier router process.
    pub recovery: Recovery,
    /// What becomes of an execution whose end nobody knows.
    pub on_ambiguous: OnAmbiguous,
    /// What happens when a drain has not ended by its deadline.
    pub on_drain_timeout: OnDrainTimeout,
    /// How long a sender may be silent before it is lost. Default: 120 s.
    pub sender_ttl: Duration,
    /// Settled requests remembered per sender at most. Default: 10,000.
    pub tombstone_cap: u32,
    /// Acquires parked at most, over all owners. Default: 100,000.
    pub waiter_cap: u32,
    /// How long a backend may be unhealthy on the active clock; `None`, the default, is for ever.
    pub unhealthy_budget: Option<Duration>,
    /// What happens then.
    pub on_unhealthy: OnUnhealthy,
    /// The most time that one tick can add to the active clock. Default: 5 s.
    pub tick_limit: Duration,
    /// How long a backend stays down before one request may try it, unless a probe says more; each failed trial doubles
    /// it, up to 16 times. `None`: only a probe reopens. Default: 30 s.
    pub half_open_after: Option<Duration>,
    /// Aborts without a token in a row, outside an update, that bring a backend down; 0 counts as 1. Default: 8.
    pub zero_token_aborts: u32,
    /// How long a backend with executions may be silent, on the active clock, before it is suspect; `None`, the
    /// default, is for ever.
    pub progress_timeout: Option<Duration>,
    /// How long a backend that has become eligible counts as a quarter of its capacity, so that one which is fresh or
    /// back is not flooded while it is cold. A preference, by which nothing is refused: when all of them ramp, nothing
    /// changes. `None`, the default, is not at all.
    pub ramp: Option<Duration>,
    /// What selection takes for the load of a backend.
    pub load: LoadSignal,
    /// When idle sessions may leave a crowded backend; `None` is never.
    pub spill: Option<Spill>,
    /// Deaths of engines that a request or session may coincide with before it is refused; 0: nothing is refused. See
    /// [`crate::poison`]. Default: 2.
    pub poison_deaths: u32,
    /// How long it is refused after the last of them, and how long a single death is remembered. Default: 600 s.
    pub poison_quarantine: Duration,
    /// Whether pins are chosen anew after a version was published, as engines then have empty caches. Default: false.
    pub rebind_on_publish: bool,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_secs(3600),
            session_cap: 1_000_000,
            max_outstanding: None,
            queue_size: WAITER_CAP,
            queue_timeout: None,
            down_after: 3,
            suspect_decay: Duration::from_secs(10),
            hash_seed: 0,
            lease_seed: 0,
            start: Start::default(),
            recovery: Recovery::default(),
            on_ambiguous: OnAmbiguous::default(),
            on_drain_timeout: OnDrainTimeout::default(),
            sender_ttl: Duration::from_secs(120),
            tombstone_cap: 10_000,
            waiter_cap: WAITER_CAP,
            unhealthy_budget: None,
            on_unhealthy: OnUnhealthy::default(),
            tick_limit: Duration::from_secs(5),
            half_open_after: Some(Duration::from_secs(30)),
            zero_token_aborts: 8,
            progress_timeout: None,
            ramp: None,
            load: LoadSignal::default(),
            spill: Some(Spill::default()),
            poison_deaths: 2,
            poison_quarantine: Duration::from_secs(600),
            rebind_on_publish: false,
        }
    }
}
