//! A pool with its lock and its clock, and the lease guard that alone counts executions.

use parking_lot::Mutex;
use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::BackendInfo;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::select::PickReason;
use router_core::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// One routing pool, shared by the data plane, the control app and in-process clients.
///
/// Every operation is one critical section under one lock, held for about a hundred nanoseconds and never across an
/// await point or a call into Python.
pub struct SharedPool {
    name: String,
    origin: Instant,
    pool: Mutex<Pool>,
}

impl SharedPool {
    /// A new pool; `name` appears in statistics and in `/ready` (for example `rollout/default`).
    #[must_use]
    pub fn new(name: impl Into<String>, config: PoolConfig) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            origin: Instant::now(),
            pool: Mutex::new(Pool::new(config)),
        })
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current time on this pool's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(self.origin.elapsed())
    }

    /// Runs `operation` in one critical section, with the time at which it holds the lock.
    ///
    /// `operation` must not call back into this pool: the lock is not re-entrant.
    pub fn with<R>(&self, operation: impl FnOnce(&mut Pool, Timestamp) -> R) -> R {
        let mut pool = self.pool.lock();
        // Read under the lock, so that the core sees time in the order of its operations.
        let now = self.now();
        operation(&mut pool, now)
    }

    /// Picks a backend and reserves it; the guard gives it back.
    pub fn acquire(self: &Arc<Self>, request: &AcquireRequest<'_>) -> Result<LeaseGuard, Error> {
        let grant = self.with(|pool, now| pool.acquire(request, now))?;
        Ok(LeaseGuard {
            lease: grant.lease,
            backend: grant.backend,
            reason: grant.reason,
            pool: Arc::clone(self),
            open: true,
        })
    }
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The right to run one execution on one backend, from the pick to its settlement.
///
/// It is settled exactly once: by [`LeaseGuard::settle`], or as [`Outcome::Ambiguous`] when it is dropped unsettled
/// (a panic, a forgotten path), because then nobody can say how the execution ended; the backend is not blamed for it.
#[derive(Debug)]
#[must_use = "dropping a lease settles it as ambiguous"]
pub struct LeaseGuard {
    lease: LeaseId,
    backend: Arc<BackendInfo>,
    reason: PickReason,
    pool: Arc<SharedPool>,
    open: bool,
}

impl LeaseGuard {
    /// The lease's id.
    #[must_use]
    pub fn id(&self) -> LeaseId {
        self.lease
    }

    /// The backend incarnation the lease is on.
    #[must_use]
    pub fn backend(&self) -> &Arc<BackendInfo> {
        &self.backend
    }

    /// Why this backend was picked.
    #[must_use]
    pub fn reason(&self) -> PickReason {
        self.reason
    }

    /// The pool that granted the lease.
    #[must_use]
    pub fn pool(&self) -> &Arc<SharedPool> {
        &self.pool
    }

    /// Ends the lease.
    pub fn settle(mut self, settlement: Settlement) {
        self.close(settlement);
    }

    fn close(&mut self, settlement: Settlement) {
        if std::mem::take(&mut self.open) {
            // The guard is the only holder of this lease id, so "unknown lease" cannot happen; were the pool ever to
            // disagree, a destructor has nobody to tell.
            let _ = self.pool.with(|pool, now| pool.settle(self.lease, settlement, now));
        }
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.close(Settlement::new(Outcome::Ambiguous).without_evidence());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_core::membership::BackendSpec;

    fn pool() -> Arc<SharedPool> {
        let pool = SharedPool::new("p", PoolConfig::default());
        let spec = BackendSpec::parse("http://127.0.0.1:1", 1.0).expect("a URL");
        pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
        pool
    }

    /// A settled lease is settled once: the destructor adds nothing.
    #[test]
    fn settling_ends_the_lease() {
        let pool = pool();
        let lease = pool.acquire(&AcquireRequest::unpinned()).expect("eligible");
        assert_eq!(pool.with(|pool, _| pool.statistics().outstanding), 1);
        lease.settle(Settlement::new(Outcome::Completed));
        let statistics = pool.with(|pool, _| pool.statistics());
        assert_eq!((statistics.outstanding, statistics.outcomes.total()), (0, 1));
        assert_eq!(statistics.outcomes.get(Outcome::Completed), 1);
    }

    /// A panic while a lease is held gives it back, as ambiguous (B1).
    #[test]
    fn b1_a_panic_gives_the_lease_back() {
        let pool = pool();
        let held = Arc::clone(&pool);
        let task = std::thread::spawn(move || {
            let _lease = held.acquire(&AcquireRequest::for_session("s")).expect("eligible");
            // Not `panic!`: its message would be printed into the test output.
            std::panic::resume_unwind(Box::new("a bug"));
        });
        assert!(task.join().is_err());
        let statistics = pool.with(|pool, _| pool.statistics());
        assert_eq!((statistics.outstanding, statistics.leases), (0, 0));
        assert_eq!(statistics.outcomes.get(Outcome::Ambiguous), 1);
    }
}
