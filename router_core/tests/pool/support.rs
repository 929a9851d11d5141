//! A pool with a clock that tests move by hand.

use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::{BackendInfo, BackendRef, BackendSpec};
use router_core::pool::{AcquireRequest, Grant, Pool, PoolConfig};
use router_core::stats::{BackendStatistics, PoolStatistics};
use router_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// A pool and the time it is told.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    pub(crate) now: Timestamp,
}

impl Bench {
    /// A pool whose backends `e0`, `e1`, ... have these capacities.
    pub(crate) fn new(config: PoolConfig, capacities: &[f64]) -> Self {
        let mut bench = Self {
            pool: Pool::new(config),
            now: Timestamp::ZERO,
        };
        for (number, capacity) in capacities.iter().enumerate() {
            bench.add(number, *capacity);
        }
        bench
    }

    /// Registers `e<number>`, always at the same address.
    pub(crate) fn add(&mut self, number: usize, capacity: f64) -> Arc<BackendInfo> {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{}", 1000 + number), capacity).expect("a valid backend");
        self.pool
            .add_backend(spec.with_id(format!("e{number}")), self.now)
            .expect("a new or equal backend")
    }

    pub(crate) fn remove(&mut self, id: &str) -> u32 {
        self.pool.remove_backend(id, self.now).expect("a known backend")
    }

    pub(crate) fn drain(&mut self, id: &str) -> u32 {
        self.pool.drain_backend(id, self.now).expect("a known backend")
    }

    pub(crate) fn advance(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
    }

    pub(crate) fn try_acquire(&mut self, session: Option<&str>, exclude: &[BackendRef]) -> Result<Grant, Error> {
        let request = AcquireRequest {
            session,
            exclude,
            ..AcquireRequest::unpinned()
        };
        self.pool.acquire(&request, self.now)
    }

    pub(crate) fn acquire(&mut self, session: &str) -> Grant {
        self.try_acquire(Some(session), &[]).expect("an eligible backend")
    }

    pub(crate) fn acquire_unpinned(&mut self) -> Grant {
        self.try_acquire(None, &[]).expect("an eligible backend")
    }

    pub(crate) fn settle(&mut self, lease: LeaseId, outcome: Outcome) {
        self.pool
            .settle(lease, Settlement::new(outcome), self.now)
            .expect("an open lease");
    }

    /// One whole turn; returns the id of the backend that ran it.
    pub(crate) fn turn(&mut self, session: &str) -> String {
        let grant = self.acquire(session);
        self.settle(grant.lease, Outcome::Completed);
        grant.backend.id.clone()
    }

    /// Makes the backend called `id` fail as often as brings it down.
    pub(crate) fn bring_down(&mut self, id: &str) {
        let backend = self.reference(id);
        for _ in 0..self.pool.config().down_after {
            self.pool.report_probe(backend, false, self.now);
        }
    }

    pub(crate) fn reference(&self, id: &str) -> BackendRef {
        self.pool.find_backend(id).expect("a known backend").reference
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        self.pool.statistics()
    }

    pub(crate) fn backend(&self, id: &str) -> BackendStatistics {
        self.statistics()
            .backends
            .into_iter()
            .find(|backend| backend.info.id == id)
            .expect("a known backend")
    }

    /// One number about every backend, in the order of registration.
    pub(crate) fn per_backend(&self, number: impl Fn(&BackendStatistics) -> u64) -> Vec<u64> {
        let mut backends = self.statistics().backends;
        backends.sort_by_key(|backend| backend.info.reference.generation());
        backends.iter().map(number).collect()
    }
}

/// Largest minus smallest.
pub(crate) fn spread(numbers: &[u64]) -> u64 {
    numbers.iter().max().expect("not empty") - numbers.iter().min().expect("not empty")
}
