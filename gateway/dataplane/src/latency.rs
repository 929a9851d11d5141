//! How long the phases of relayed requests take.
//!
//! Every request counts three times, from any thread. The threads have counters of their own, so that they do not pass
//! a cache line around; whoever looks adds them up. Each counter is exact, and a snapshot is not of one instant.

use router_core::histogram::{BUCKETS, Histogram, bucket_of};
use std::array;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Sets of counters; more threads than that share them.
const SHARDS: usize = 8;

/// A part of the life of a relayed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestPhase {
    /// Until its lease was granted, or refused after a wait. It begins when the request is known and looks for a
    /// backend; each attempt counts.
    Queue,
    /// From there to the head of the engine's answer, the connection included.
    FirstByte,
    /// From the begin of the first to the end of the answer, however it ended. Requests that reached no engine do not
    /// count.
    Total,
}

impl RequestPhase {
    /// Every phase, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Queue, Self::FirstByte, Self::Total];

    /// The lower-case name used in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::FirstByte => "first_byte",
            Self::Total => "total",
        }
    }
}

/// The phases of the requests of one pool.
#[derive(Default)]
pub(crate) struct Latencies {
    shards: [Shard; SHARDS],
}

/// The counters of some threads, on cache lines of their own.
#[repr(align(128))]
struct Shard {
    phases: [Counts; RequestPhase::ALL.len()],
}

struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for Shard {
    fn default() -> Self {
        let counts = || Counts {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        };
        Self {
            phases: array::from_fn(|_| counts()),
        }
    }
}

thread_local! {
    static SHARD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Relaxed) % SHARDS
    };
}

impl Latencies {
    pub(crate) fn record(&self, phase: RequestPhase, duration: Duration) {
        // 584 years.
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let counts = &self.shards[SHARD.with(|shard| *shard)].phases[phase as usize];
        counts.buckets[bucket_of(nanoseconds)].fetch_add(1, Relaxed);
        counts.sum.fetch_add(nanoseconds, Relaxed);
    }

    pub(crate) fn snapshot(&self, phase: RequestPhase) -> Histogram {
        let counts = || self.shards.iter().map(|shard| &shard.phases[phase as usize]);
        let bucket = |index: usize| counts().map(|counts| counts.buckets[index].load(Relaxed)).sum();
        let sum = counts().map(|counts| counts.sum.load(Relaxed)).sum();
        Histogram::from_parts(array::from_fn(bucket), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What any thread recorded is in the snapshot, under its phase only.
    #[test]
    fn threads_are_added_up() {
        let latencies = Latencies::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| latencies.record(RequestPhase::Total, Duration::from_millis(3)));
            }
        });
        let total = latencies.snapshot(RequestPhase::Total);
        assert_eq!((total.count(), total.sum()), (16, Duration::from_millis(48)));
        assert_eq!(total.cumulative()[1..3], [0, 16]);
        assert_eq!(latencies.snapshot(RequestPhase::Queue), Histogram::default());
    }
}
