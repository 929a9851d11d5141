//! The clock by which unhealthiness is measured: time in which the pool was watching and its servers were running.
//!
//! A server that is paused on purpose cannot prove its health, and a process that was suspended has not watched. So
//! the active clock moves only in ticks, by one limit at most, and not while the servers are paused. A budget that is
//! used up by 100 of 120 seconds has 20 left after a pause, however long.

use crate::time::Timestamp;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct ActiveClock {
    elapsed: Duration,
    /// Up to where time is counted; `None` while paused.
    counted: Option<Timestamp>,
    limit: Duration,
}

impl ActiveClock {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self {
            elapsed: Duration::ZERO,
            counted: Some(Timestamp::ZERO),
            limit,
        }
    }

    /// Active time up to the last tick.
    #[inline]
    pub(crate) const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Counts the time since the last tick, up to the limit.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if let Some(counted) = &mut self.counted {
            self.elapsed += now.since(*counted).min(self.limit);
            *counted = now;
        }
    }

    /// Stands still from `now` on.
    pub(crate) fn pause(&mut self, now: Timestamp) {
        self.tick(now);
        self.counted = None;
    }

    /// Moves again from `now` on.
    pub(crate) const fn resume(&mut self, now: Timestamp) {
        if self.counted.is_none() {
            self.counted = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ActiveClock;
    use crate::time::Timestamp;
    use std::time::Duration;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    /// Pauses do not count, whatever their length, and repeated pauses and resumptions are one.
    #[test]
    fn pauses_do_not_count() {
        let mut clock = ActiveClock::new(Duration::from_secs(1000));
        clock.tick(at(100));
        clock.pause(at(101));
        clock.pause(at(300));
        clock.tick(at(500));
        clock.resume(at(701));
        clock.resume(at(702));
        clock.tick(at(710));
        assert_eq!(clock.elapsed(), Duration::from_secs(110));
    }

    /// One tick counts one limit at most: a suspended process did not watch.
    #[test]
    fn a_jump_counts_one_limit() {
        let mut clock = ActiveClock::new(Duration::from_secs(5));
        clock.tick(at(3));
        clock.tick(at(303));
        clock.tick(at(304));
        clock.tick(at(200));
        assert_eq!(clock.elapsed(), Duration::from_secs(3 + 5 + 1));
    }
}
