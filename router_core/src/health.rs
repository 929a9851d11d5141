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
//! [`Health::Down`] and not eligible until a probe succeeds.

use crate::membership::BackendRef;
use crate::time::Timestamp;
use std::fmt;
use std::time::Duration;

/// Belief about a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Registered, never yet reached; not eligible.
    Unproven,
    /// Alive by its last evidence.
    Up,
    /// Failed lately; eligible, but new sessions prefer others.
    Suspect,
    /// Failed too often in a row; not eligible until a probe succeeds.
    Down,
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
}

/// Where a piece of evidence comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An execution: an answer, or bytes of one.
    Execution,
    /// A liveness probe.
    Probe,
}

/// The health of one incarnation and the evidence behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vitals {
    health: Health,
    failed_executions: u32,
    failed_probes: u32,
    last_failure: Timestamp,
}

impl Vitals {
    pub(crate) const fn new(proven: bool) -> Self {
        Self {
            health: if proven { Health::Up } else { Health::Unproven },
            failed_executions: 0,
            failed_probes: 0,
            last_failure: Timestamp::ZERO,
        }
    }

    pub(crate) const fn health(&self) -> Health {
        self.health
    }

    /// Consecutive failures of the kind that has more of them.
    pub(crate) fn failures(&self) -> u32 {
        self.failed_executions.max(self.failed_probes)
    }

    /// Takes in a sign of life.
    #[inline]
    pub(crate) fn note_alive(&mut self, source: Source) {
        match (source, self.health) {
            // The common case, once per settled lease.
            (Source::Execution, Health::Up) => (self.failed_executions, self.failed_probes) = (0, 0),
            // An answer may be older than the failures that brought the backend down; a probe is not.
            (Source::Execution, Health::Down) => {}
            (Source::Execution, Health::Unproven | Health::Suspect)
            | (Source::Probe, Health::Unproven | Health::Down) => *self = Self::new(true),
            (Source::Probe, Health::Up | Health::Suspect) => {
                self.failed_probes = 0;
                if self.failed_executions == 0 {
                    self.health = Health::Up;
                }
            }
        }
    }

    /// Takes in a failure; `down_after` of one kind in a row bring the backend down.
    pub(crate) fn note_failure(&mut self, source: Source, down_after: u32, now: Timestamp) {
        let count = match source {
            Source::Execution => &mut self.failed_executions,
            Source::Probe => &mut self.failed_probes,
        };
        *count = count.saturating_add(1);
        self.last_failure = now;
        self.health = match self.health {
            Health::Unproven => Health::Unproven,
            Health::Down => Health::Down,
            Health::Up | Health::Suspect if *count >= down_after => Health::Down,
            Health::Up | Health::Suspect => Health::Suspect,
        };
    }

    /// When the suspicion ends by itself, if there is one.
    pub(crate) fn suspicion_ends(&self, decay: Duration) -> Option<Timestamp> {
        (self.health == Health::Suspect).then(|| self.last_failure.after(decay))
    }

    /// Ends the suspicion when its time has come. The failure counts stay: no sign of life has interrupted the row.
    pub(crate) fn decay(&mut self, decay: Duration, now: Timestamp) {
        if self.suspicion_ends(decay).is_some_and(|end| end <= now) {
            self.health = Health::Up;
        }
    }
}

#[cfg(test)]
mod tests;
