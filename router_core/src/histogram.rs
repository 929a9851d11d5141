//! Durations counted in buckets: what a percentile over a fleet is computed from.
//!
//! Every histogram has the same bounds, so that any two can be added up. They reach from the wait for a lock to the
//! longest rollout, at two or three bounds per decade: a percentile is known to about a factor of two, which tells a
//! queue from none and a slow engine from a stuck one. Recording is a search among twenty numbers and two additions.

use std::array;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// The upper bounds of the buckets, in nanoseconds, each included in its bucket. One more bucket has no bound.
pub const BOUNDS: [u64; 20] = [
    MILLISECOND / 10,
    MILLISECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    5 * SECOND / 2,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
    600 * SECOND,
    1800 * SECOND,
    3600 * SECOND,
];

/// How many buckets a histogram has.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// The bucket of a duration.
#[inline]
#[must_use]
pub fn bucket_of(nanoseconds: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < nanoseconds)
}

/// Durations, counted by [`BOUNDS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Histogram {
    /// A histogram of these counts per bucket, whose durations sum up to `sum` nanoseconds.
    #[must_use]
    pub const fn from_parts(counts: [u64; BUCKETS], sum: u64) -> Self {
        Self { counts, sum }
    }

    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        // 584 years.
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanoseconds)] += 1;
        self.sum = self.sum.saturating_add(nanoseconds);
    }

    /// The same with `count` more durations that were nothing.
    #[must_use]
    pub const fn with_zeros(mut self, count: u64) -> Self {
        self.counts[0] += count;
        self
    }

    /// How many durations are at most as long as each bound, and then how many there are.
    #[must_use]
    pub fn cumulative(&self) -> [u64; BUCKETS] {
        let mut total = 0;
        array::from_fn(|bucket| {
            total += self.counts[bucket];
            total
        })
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound belongs to its bucket, and what is longer than every bound is counted too.
    #[test]
    fn a_bound_is_included() {
        let mut histogram = Histogram::default();
        for nanoseconds in [0, MILLISECOND, MILLISECOND + 1, 3601 * SECOND] {
            histogram.record(Duration::from_nanos(nanoseconds));
        }
        let cumulative = histogram.cumulative();
        assert_eq!(cumulative[..4], [1, 2, 3, 3]);
        assert_eq!(cumulative[BUCKETS - 2..], [3, 4]);
        assert_eq!(histogram.count(), 4);
        assert_eq!(
            histogram.sum(),
            Duration::from_nanos(2 * MILLISECOND + 1 + 3601 * SECOND)
        );
    }

    /// The bounds ascend, or the search among them would lie.
    #[test]
    fn bounds_ascend() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next));
    }
}
