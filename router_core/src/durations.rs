//! How long things take in a pool: waits for a lease, executions, and the steps of updates.
//!
//! The pool sees every lease, whoever runs it: those of direct clients are in these numbers as well as those that a
//! gateway relays.

use crate::histogram::Histogram;
use crate::lease::Outcome;
use crate::update::UpdateKind;
use std::time::Duration;

/// A step of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateStep {
    /// From its begin until nothing was outstanding.
    Quiesce,
    /// From then until the controller was told so.
    Confirm,
    /// From then until the new version was published, or the update was cancelled.
    Transfer,
    /// From its begin until the servers ran again.
    Pause,
    /// From its begin until it was published or cancelled.
    Total,
}

impl UpdateStep {
    /// Every step, in the order of declaration.
    pub const ALL: [Self; 5] = [Self::Quiesce, Self::Confirm, Self::Transfer, Self::Pause, Self::Total];

    /// The lower-case name used in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiesce => "quiesce",
            Self::Confirm => "confirm",
            Self::Transfer => "transfer",
            Self::Pause => "pause",
            Self::Total => "total",
        }
    }
}

/// Every duration that a pool measures. What never happened is a histogram without counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    leases: [Histogram; Outcome::ALL.len()],
    /// Only of those that had to wait, when recorded by the pool; see [`Self::of_grants`].
    acquires: Histogram,
    drains: Histogram,
    updates: [[Histogram; UpdateStep::ALL.len()]; UpdateKind::ALL.len()],
}

impl Durations {
    /// From the grant of leases that ended so to their settlement.
    #[must_use]
    pub const fn lease(&self, outcome: Outcome) -> &Histogram {
        &self.leases[outcome.index()]
    }

    /// From the call to the grant, of every lease.
    #[must_use]
    pub const fn acquire(&self) -> &Histogram {
        &self.acquires
    }

    /// From the begin of updates until their controller was told that nothing is outstanding.
    #[must_use]
    pub const fn drain(&self) -> &Histogram {
        &self.drains
    }

    /// The steps of the updates of a kind; those of failed updates are not counted.
    #[must_use]
    pub const fn update(&self, kind: UpdateKind, step: UpdateStep) -> &Histogram {
        &self.updates[kind as usize][step as usize]
    }

    #[inline]
    pub(crate) fn note_lease(&mut self, outcome: Outcome, age: Duration) {
        self.leases[outcome.index()].record(age);
    }

    pub(crate) fn note_wait(&mut self, waited: Duration) {
        self.acquires.record(waited);
    }

    pub(crate) fn note_drain(&mut self, duration: Duration) {
        self.drains.record(duration);
    }

    pub(crate) fn note_step(&mut self, kind: UpdateKind, step: UpdateStep, duration: Duration) {
        self.updates[kind as usize][step as usize].record(duration);
    }

    /// The same with the grants that did not wait, which the pool does not record one by one.
    pub(crate) fn of_grants(&self, grants: u64) -> Self {
        let mut all = self.clone();
        let at_once = grants.saturating_sub(all.acquires.count());
        all.acquires = all.acquires.with_zeros(at_once);
        all
    }
}
