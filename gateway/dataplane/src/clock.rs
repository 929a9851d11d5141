//! What a pool takes for the time.
//!
//! The core is told the time with every operation, so a pool has exactly one place that reads a clock. In production it
//! is the monotonic clock of the machine. A test of a TTL of an hour has an hour only if it can make one: with a
//! [`ManualClock`], time passes when it is told to, and never otherwise.

use router_core::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where a pool reads the time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's monotonic clock, from this moment on.
    Monotonic(Instant),
    /// A clock that is moved by hand.
    Manual(Arc<ManualClock>),
}

impl Clock {
    /// The machine's monotonic clock, which reads 0 now.
    #[must_use]
    pub fn monotonic() -> Self {
        Self::Monotonic(Instant::now())
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(origin) => Timestamp::ZERO.after(origin.elapsed()),
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// A clock that stands still until it is moved, and moves forward only.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// What it reads.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Relaxed))
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        // Saturating: a clock that wrapped round would go back.
        let _ = self
            .0
            .fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_add(nanos)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It stands still, moves by what it is told, and does not wrap round.
    #[test]
    fn a_manual_clock_moves_by_hand() {
        let manual = Arc::new(ManualClock::default());
        let clock = Clock::Manual(Arc::clone(&manual));
        assert_eq!(clock.now(), Timestamp::ZERO);
        manual.advance(Duration::from_millis(1500));
        assert_eq!(clock.now(), Timestamp::from_nanos(1_500_000_000));
        manual.advance(Duration::MAX);
        manual.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp::from_nanos(u64::MAX));
    }
}
