//! Time as the core sees it: a number the shell passes in.

use std::time::Duration;

/// A point on the shell's monotonic clock, in nanoseconds since an origin of the shell's choice.
///
/// The core only compares and subtracts timestamps. A timestamp that runs backwards is treated as "no time passed".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the shell's clock.
    pub const ZERO: Self = Self(0);

    /// The end of time, which no shell's clock reaches.
    pub const MAX: Self = Self(u64::MAX);

    /// A timestamp `nanoseconds` after the origin.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This timestamp moved by `duration`; saturates at the end of time (584 years).
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}
