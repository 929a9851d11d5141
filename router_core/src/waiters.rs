//! Parked acquires: requests that cannot be granted yet and wait for it, each with its own deadline.
//!
//! What an acquire waits for is a property of its owner and of the pool, never of the acquire: the owner is fenced or
//! has not acknowledged, the pool does not serve, no backend is eligible. So each owner has one queue in order of
//! arrival, with one reason at a time, and whoever lifts a reason serves the queue from its head: a waiter is touched
//! once when it parks and once when it leaves, and never while it cannot be granted.
//!
//! Waiting itself is the shell's: it keeps a future per call under its [`Ticket`]. See [`crate::pool::Pool::acquire_or_park`].

use crate::pool::Grant;
use crate::time::Timestamp;
use std::fmt;

/// Names one parked acquire; two calls with the same request key share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// Why an acquire cannot be granted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// Its owner is fenced.
    Fenced,
    /// The pool is not serving, or its servers are paused.
    NotServing,
    /// Its owner has not acknowledged the published version.
    VersionNotAcked,
    /// The pool is at its `max_outstanding`.
    AtCapacity,
    /// No backend is eligible.
    NoEligibleBackend,
}

impl ParkReason {
    /// Every reason, in the order in which they are looked for.
    pub const ALL: [Self; 5] = [
        Self::Fenced,
        Self::NotServing,
        Self::VersionNotAcked,
        Self::AtCapacity,
        Self::NoEligibleBackend,
    ];

    /// The lower-case name used in snapshots, metrics and APIs; also the code of the error at the deadline.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::NotServing => "not_serving",
            Self::VersionNotAcked => "version_not_acked",
            Self::AtCapacity => "at_capacity",
            Self::NoEligibleBackend => "no_eligible_backend",
        }
    }

    /// Position in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for ParkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An acquire that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// What to claim, give up or abandon; every call that got a ticket does exactly one of the three.
    pub ticket: Ticket,
    /// What it waits for now.
    pub reason: ParkReason,
    /// When this call gives up.
    pub deadline: Timestamp,
}

/// The answer to an acquire that may wait.
#[derive(Clone, Debug)]
pub enum Acquisition {
    /// Granted at once.
    Granted(Grant),
    /// Not yet.
    Parked(Parked),
}

mod queue;

pub(crate) use queue::{Waiter, Waiters};
