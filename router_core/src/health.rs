//! What the core believes about a backend's life, from evidence the shell reports.
//!
//! Bytes from the engine prove life; a busy engine is not a dead one. Evidence comes from settled leases and from the
//! shell's liveness probes, and the two are not worth the same: an engine whose process answers probes can still fail
//! every generation. So each kind counts its own consecutive failures, and either count can bring a backend down.
//!
//! A backend that fails becomes [`Health::Suspect`] at once, so that a failure never looks like a fast engine: new
//! sessions avoid it while any other backend is eligible. It is trusted again when an execution gets an answer, or
//! when [`crate::pool::PoolConfig::suspect_decay`] has passed without another failure, or, when only probes had
//! failed, at the next good probe. After [`crate::pool::PoolConfig::down_after`] consecutive failures it is
//! [`Health::Down`] and not eligible.
//!
//! Down by failed probes ends with a good one. Down by failed executions is a breaker: a process that answers probes
//! proved nothing yet, so it becomes [`Health::HalfOpen`], after a good probe or a time, and exactly one execution may
//! try it. Success closes the breaker; failure opens it again for twice as long.

mod vitals;

use crate::membership::BackendRef;
use crate::time::Timestamp;
use std::fmt;

pub(crate) use vitals::{Evidence, Patience, Source, Vitals};

/// Belief about a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Registered, never yet reached; not eligible.
    Unproven,
    /// Alive by its last evidence.
    Up,
    /// Failed lately; eligible, but new sessions prefer others.
    Suspect,
    /// Failed too often in a row; not eligible.
    Down,
    /// Was down by failed executions; eligible for one execution at a time until one succeeds.
    HalfOpen,
}

impl Health {
    /// The lower-case name used in snapshots and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a probe should ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// Whether the process answers at all: cheap, and instant also on a paused engine.
    Liveness,
    /// Whether it generates: one token, with an abort of its own. Asked for only when the backend is suspect.
    Generate,
}

/// A probe that was begun: what to ask, and the stamps that tell whether its answer still means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The incarnation to ask.
    pub backend: BackendRef,
    /// What to ask.
    pub kind: ProbeKind,
    /// The generation of the pool at its begin.
    pub pool_generation: u32,
    /// Which probe of this backend it is.
    pub seq: u32,
    /// When it began.
    pub begun: Timestamp,
}

#[cfg(test)]
mod tests;
