//! The one error type of the core: what went wrong, with what, and whether asking again can help.

mod display;

use crate::lease::Outcome;
use crate::poison::PoisonEntry;
use crate::state::Failure;
use crate::update::{Blocker, UpdatePhase};
use crate::version::Published;
use crate::waiters::ParkReason;
use std::sync::Arc;
use std::time::Duration;

/// Why an operation was refused. Nothing changed in the pool when one of these is returned.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An address breaks a rule of [`crate::address`].
    InvalidAddress {
        /// The text as given, with user information masked.
        value: String,
        /// The rule it breaks, as a sentence fragment ("the port is missing").
        rule: &'static str,
    },
    /// A capacity is not finite, not positive, or outside the representable range.
    InvalidCapacity {
        /// The number as given.
        value: f64,
    },
    /// A backend id is empty, too long, or already used by a backend at another address.
    InvalidBackendId {
        /// The id as given.
        id: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A session key is empty or longer than [`crate::session::MAX_KEY_BYTES`].
    InvalidSessionKey {
        /// Length of the key in bytes.
        length: usize,
    },
    /// No such backend in this pool (or only an older incarnation of it).
    UnknownBackend {
        /// The id as given.
        id: String,
    },
    /// The lease is not open: it was settled before, or never existed.
    UnknownLease,
    /// No backend may take a new execution now.
    NoEligibleBackend {
        /// Why, counted per cause.
        census: Census,
    },
    /// The pool is at its [`crate::pool::PoolConfig::max_outstanding`], which users set as `max_concurrent`.
    AtCapacity {
        /// Executions outstanding in the pool.
        outstanding: u32,
        /// The configured limit.
        limit: u32,
    },
    /// A name, or another argument of a caller's choice, breaks a rule.
    InvalidArgument {
        /// What it is ("sender name").
        what: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// No owner of that name: a fence that fences nobody would be taken for one.
    UnknownOwner {
        /// The name as given.
        owner: String,
    },
    /// No such sender, or another process of it, is attached.
    UnknownSender {
        /// The name as given.
        sender: String,
    },
    /// No such update is in progress or among the last results.
    UnknownUpdate {
        /// The id as given.
        id: String,
    },
    /// The key was used before, for something else.
    IdempotencyConflict {
        /// The kind of key ("request", "update", "operation").
        what: &'static str,
    },
    /// The request was granted a lease, which is settled.
    RequestSettled {
        /// How.
        outcome: Outcome,
    },
    /// The sender itself said that this request is settled.
    StaleRequest {
        /// The number of the request.
        seq: u64,
    },
    /// The request expects a version that is published no more.
    StaleVersion {
        /// The version the request expects.
        expected: u64,
        /// The published one.
        published: Option<Published>,
    },
    /// The lease was settled with another outcome.
    OutcomeConflict {
        /// The outcome that counts.
        recorded: Outcome,
        /// The one reported now.
        reported: Outcome,
    },
    /// Another update is in progress.
    UpdateInProgress {
        /// Its id.
        id: String,
        /// How far it is.
        phase: UpdatePhase,
        /// How long ago it began.
        age: Duration,
    },
    /// The pool, or the update, is not in a state in which this can happen.
    InvalidTransition {
        /// What was asked for.
        operation: &'static str,
        /// The state that forbids it.
        state: String,
    },
    /// The version is lower than the published one, and no new epoch was declared.
    VersionRegression {
        /// The version asked for.
        requested: u64,
        /// The published one.
        published: Published,
    },
    /// The backend still runs executions, so it is only draining.
    BackendBusy {
        /// Its id.
        id: String,
        /// Executions outstanding on it.
        outstanding: u32,
    },
    /// The session was closed while the request was parked.
    SessionClosed,
    /// The pool failed; nothing is granted any more.
    PoolFailed {
        /// The first cause.
        failure: Arc<Failure>,
    },
    /// The pool was closed by its owner.
    PoolClosed,
    /// The owner is fenced.
    Fenced {
        /// Its name.
        owner: String,
        /// The reasons, sorted.
        reasons: Vec<String>,
    },
    /// The owner has not acknowledged the published version.
    VersionNotAcked {
        /// Its name.
        owner: String,
        /// The published version.
        published: u64,
        /// The version it acknowledged last.
        acknowledged: Option<u64>,
    },
    /// The pool does not serve now, or its servers are paused.
    NotServing {
        /// The name of its state.
        state: &'static str,
        /// Whether the servers are paused.
        server_paused: bool,
        /// The update that is the cause, if one is.
        update: Option<String>,
    },
    /// The sender has too many settled requests that it did not say to be settled.
    TooManyTombstones {
        /// The configured limit.
        limit: u32,
    },
    /// Too many acquires are parked.
    TooManyWaiters {
        /// The configured limit.
        limit: u32,
    },
    /// Engines died while this request, or a turn of its session, ran on them.
    PoisonSuspected {
        /// The suspect and the evidence.
        entry: Arc<PoisonEntry>,
    },
    /// Executions were outstanding at the deadline of a drain.
    DrainTimeout {
        /// The update.
        update: String,
        /// How many executions.
        outstanding: u32,
        /// The oldest of them.
        blockers: Vec<Blocker>,
        /// Backends whose engines run something that no lease stands for.
        engines: Vec<String>,
        /// Whether the pool failed by it.
        failed: bool,
    },
}

/// Where the backends of a pool stand: the evidence behind [`Error::NoEligibleBackend`] and readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Registered backends that are not yet forgotten or removed.
    pub registered: u32,
    /// Backends that may take a new execution.
    pub eligible: u32,
    /// Backends waiting for their first proof of life.
    pub unproven: u32,
    /// Backends marked down.
    pub down: u32,
    /// Backends being drained.
    pub draining: u32,
    /// Backends whose weights are not the published version.
    pub pending_version: u32,
    /// Backends whose update failed.
    pub tainted: u32,
    /// Eligible backends that the caller excluded from this attempt.
    pub excluded: u32,
}

impl Error {
    /// The machine-readable code, the same in HTTP answers, Python exceptions and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidAddress { .. } => "invalid_address",
            Self::InvalidCapacity { .. } => "invalid_capacity",
            Self::InvalidBackendId { .. }
            | Self::InvalidSessionKey { .. }
            | Self::InvalidArgument { .. }
            | Self::UnknownOwner { .. } => "invalid_request",
            Self::UnknownBackend { .. } => "unknown_backend",
            Self::UnknownLease => "unknown_lease",
            Self::NoEligibleBackend { .. } => "no_eligible_backend",
            Self::AtCapacity { .. } => "at_capacity",
            Self::UnknownSender { .. } => "unknown_sender",
            Self::UnknownUpdate { .. } => "unknown_update",
            Self::IdempotencyConflict { .. } => "idempotency_conflict",
            Self::RequestSettled { .. } => "request_settled",
            Self::StaleRequest { .. } | Self::StaleVersion { .. } => "stale_request",
            Self::OutcomeConflict { .. } => "outcome_conflict",
            Self::UpdateInProgress { .. } => "update_in_progress",
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::VersionRegression { .. } => "version_regression",
            Self::BackendBusy { .. } => "backend_busy",
            Self::SessionClosed => "session_closed",
            Self::PoolFailed { .. } => "pool_failed",
            Self::PoolClosed => "pool_closed",
            Self::Fenced { .. } => "fenced",
            Self::VersionNotAcked { .. } => "version_not_acked",
            Self::NotServing { .. } => "not_serving",
            Self::TooManyTombstones { .. } => "too_many_tombstones",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::PoisonSuspected { .. } => "poison_suspected",
            Self::DrainTimeout { .. } => "drain_timeout",
        }
    }

    /// What an acquire that got this error could wait for, if waiting can help.
    pub(crate) const fn park_reason(&self) -> Option<ParkReason> {
        match self {
            Self::Fenced { .. } => Some(ParkReason::Fenced),
            Self::NotServing { .. } => Some(ParkReason::NotServing),
            Self::VersionNotAcked { .. } => Some(ParkReason::VersionNotAcked),
            Self::AtCapacity { .. } => Some(ParkReason::AtCapacity),
            // Somebody who excludes all that could serve would only keep others waiting.
            Self::NoEligibleBackend { census } if census.excluded == 0 => Some(ParkReason::NoEligibleBackend),
            _ => None,
        }
    }

    /// Whether the same call can succeed later without any change by the caller.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        match self {
            Self::NoEligibleBackend { .. }
            | Self::AtCapacity { .. }
            | Self::Fenced { .. }
            | Self::VersionNotAcked { .. }
            | Self::NotServing { .. }
            | Self::TooManyTombstones { .. }
            | Self::TooManyWaiters { .. }
            | Self::UpdateInProgress { .. }
            | Self::BackendBusy { .. } => true,
            Self::DrainTimeout { failed, .. } => !*failed,
            _ => false,
        }
    }
}
