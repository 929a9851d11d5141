//! Counters of the data plane, and the frozen snapshot that tests, metrics and people read.

use http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FIRST_STATUS: u16 = 100;
const STATUS_COUNT: usize = 500;

/// A snapshot of the data plane's counters. Totals never go down; gauges say how many exist now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPlaneStatistics {
    /// Answers by status code, ascending; codes never sent are absent.
    pub requests_total: Vec<(u16, u64)>,
    /// Requests between their head and the end of their answer (gauge).
    pub open_requests: u64,
    /// Event streams being relayed (gauge).
    pub open_streams: u64,
    /// Client connections (gauge).
    pub connections: u64,
    /// Client connections ever accepted.
    pub connections_total: u64,
    /// Client connections that were answered 503 because there was no descriptor to serve them with.
    pub turned_away_total: u64,
    /// Errors of `accept`, such as a used-up descriptor limit.
    pub accept_errors_total: u64,
    /// Engine connections, busy and pooled (gauge).
    pub upstream_connections: u64,
    /// Engine connections in the pools, waiting for a request (gauge).
    pub upstream_idle: u64,
    /// Engine connections ever opened.
    pub upstream_connections_total: u64,
    /// Requests that went out on a pooled connection.
    pub upstream_reused_total: u64,
    /// Attempts after the first, each made while no byte of the request had been written.
    pub retries_total: u64,
    /// Executions whose client went away before the end.
    pub client_gone_total: u64,
    /// Abort requests sent to engines.
    pub aborts_sent_total: u64,
    /// Abort requests an engine confirmed.
    pub aborts_confirmed_total: u64,
    /// Responses that broke after their head had been relayed.
    pub broken_streams_total: u64,
    /// Liveness probes sent.
    pub probes_total: u64,
    /// Liveness probes that failed.
    pub probe_failures_total: u64,
}

/// The live counters.
pub(crate) struct Counters {
    by_status: [AtomicU64; STATUS_COUNT],
    pub(crate) open_requests: AtomicU64,
    pub(crate) open_streams: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_total: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) upstream_connections: AtomicU64,
    pub(crate) upstream_idle: AtomicU64,
    pub(crate) upstream_connections_total: AtomicU64,
    pub(crate) upstream_reused: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) client_gone: AtomicU64,
    pub(crate) aborts_sent: AtomicU64,
    pub(crate) aborts_confirmed: AtomicU64,
    pub(crate) broken_streams: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) probe_failures: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            by_status: [const { AtomicU64::new(0) }; STATUS_COUNT],
            open_requests: AtomicU64::new(0),
            open_streams: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_total: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            upstream_connections: AtomicU64::new(0),
            upstream_idle: AtomicU64::new(0),
            upstream_connections_total: AtomicU64::new(0),
            upstream_reused: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            client_gone: AtomicU64::new(0),
            aborts_sent: AtomicU64::new(0),
            aborts_confirmed: AtomicU64::new(0),
            broken_streams: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            probe_failures: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(crate) fn count_status(&self, status: StatusCode) {
        let index = usize::from(status.as_u16().saturating_sub(FIRST_STATUS));
        if let Some(counter) = self.by_status.get(index) {
            add(counter);
        }
    }

    pub(crate) fn snapshot(&self) -> DataPlaneStatistics {
        let requests_total = (FIRST_STATUS..)
            .zip(&self.by_status)
            .map(|(code, count)| (code, count.load(Relaxed)))
            .filter(|&(_, count)| count > 0)
            .collect();
        DataPlaneStatistics {
            requests_total,
            open_requests: self.open_requests.load(Relaxed),
            open_streams: self.open_streams.load(Relaxed),
            connections: self.connections.load(Relaxed),
            connections_total: self.connections_total.load(Relaxed),
            turned_away_total: self.turned_away.load(Relaxed),
            accept_errors_total: self.accept_errors.load(Relaxed),
            upstream_connections: self.upstream_connections.load(Relaxed),
            upstream_idle: self.upstream_idle.load(Relaxed),
            upstream_connections_total: self.upstream_connections_total.load(Relaxed),
            upstream_reused_total: self.upstream_reused.load(Relaxed),
            retries_total: self.retries.load(Relaxed),
            client_gone_total: self.client_gone.load(Relaxed),
            aborts_sent_total: self.aborts_sent.load(Relaxed),
            aborts_confirmed_total: self.aborts_confirmed.load(Relaxed),
            broken_streams_total: self.broken_streams.load(Relaxed),
            probes_total: self.probes.load(Relaxed),
            probe_failures_total: self.probe_failures.load(Relaxed),
        }
    }
}

/// One more.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// A gauge that is one higher for as long as this value lives.
pub(crate) struct Gauge {
    counters: Arc<Counters>,
    select: fn(&Counters) -> &AtomicU64,
}

impl Gauge {
    pub(crate) fn raise(counters: &Arc<Counters>, select: fn(&Counters) -> &AtomicU64) -> Self {
        add(select(counters));
        Self {
            counters: Arc::clone(counters),
            select,
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.select)(&self.counters).fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only codes that were sent appear, in order.
    #[test]
    fn requests_by_status() {
        let counters = Counters::default();
        for code in [502, 200, 200] {
            counters.count_status(StatusCode::from_u16(code).expect("a valid code"));
        }
        assert_eq!(counters.snapshot().requests_total, vec![(200, 2), (502, 1)]);
    }

    /// A gauge is lowered by every way out of its scope.
    #[test]
    fn a_gauge_follows_its_scope() {
        let counters = Arc::new(Counters::default());
        let gauge = Gauge::raise(&counters, |c| &c.open_streams);
        assert_eq!(counters.snapshot().open_streams, 1);
        drop(gauge);
        assert_eq!(counters.snapshot().open_streams, 0);
    }
}
