//! A pool with its lock and its clock, and the lease guard that alone counts executions.

use crate::clock::Clock;
use crate::latency::{Latencies, RequestPhase};
use crate::parked::Wakers;
use crate::poison::Printer;
use crate::request_id::AbortIds;
use crate::resolve::{Clue, Clues};
use http::HeaderValue;
use parking_lot::Mutex;
use router_core::config::OnAmbiguous;
use router_core::error::Error;
use router_core::histogram::Histogram;
use router_core::lease::{LeaseId, Outcome, Settled, Settlement};
use router_core::membership::BackendInfo;
use router_core::pool::{AcquireRequest, Grant, Pool, PoolConfig};
use router_core::select::PickReason;
use router_core::time::Timestamp;
use router_core::version::Published;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::watch;

/// One routing pool, shared by the data plane, the control app and in-process clients.
///
/// Every operation is one critical section under one lock, held for about a hundred nanoseconds and never across an
/// await point or a call into Python.
pub struct SharedPool {
    name: String,
    clock: Clock,
    state: Mutex<State>,
    /// Answers whose weights were not those of their lease.
    version_mismatches: AtomicU64,
    latencies: Latencies,
    /// How to find out how executions ended, when the pool wants that.
    clues: Option<Clues>,
    /// Hashes the bodies of requests; `None` when requests that kill engines are not looked for.
    printer: Option<Printer>,
    /// Whether requests have to show their fingerprints: something broke off lately, or is suspect.
    watchful: AtomicBool,
    /// Whether a manager runs the engines, so that nobody else may change them.
    managed: AtomicBool,
    /// The latest revision of the pool, for those who wait for a change of its control side.
    revision: watch::Sender<u64>,
}

struct State {
    pool: Pool,
    wakers: Wakers,
}

impl SharedPool {
    /// A new pool; `name` appears in statistics and in `/ready` (for example `rollout/default`).
    #[must_use]
    pub fn new(name: impl Into<String>, config: PoolConfig) -> Arc<Self> {
        Self::with_clock(name, config, Clock::monotonic())
    }

    /// The same on a clock of the caller's choice.
    #[must_use]
    pub fn with_clock(name: impl Into<String>, config: PoolConfig, clock: Clock) -> Arc<Self> {
        let printer = (config.poison_deaths > 0).then(|| Printer::new(config.hash_seed));
        let clues = (config.on_ambiguous == OnAmbiguous::Resolve).then(Clues::default);
        Arc::new(Self {
            name: name.into(),
            clock,
            state: Mutex::new(State {
                pool: Pool::new(config),
                wakers: Wakers::default(),
            }),
            version_mismatches: AtomicU64::new(0),
            latencies: Latencies::default(),
            clues,
            printer,
            watchful: AtomicBool::new(false),
            managed: AtomicBool::new(false),
            revision: watch::Sender::new(0),
        })
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Answers, relayed here or reported by direct clients, whose engine said to have run other weights than those of the lease; never
    /// decreases.
    #[must_use]
    pub fn version_mismatches(&self) -> u64 {
        self.version_mismatches.load(Relaxed)
    }

    /// How long a phase of the requests took that a data plane relayed.
    #[must_use]
    pub fn request_seconds(&self, phase: RequestPhase) -> Histogram {
        self.latencies.snapshot(phase)
    }

    pub(crate) fn note_phase(&self, phase: RequestPhase, duration: Duration) {
        self.latencies.record(phase, duration);
    }

    pub(crate) fn note_version_mismatch(&self) {
        self.version_mismatches.fetch_add(1, Relaxed);
    }

    /// Whether executions with an unknown end stay counted until their engine no longer has them.
    pub(crate) fn resolves(&self) -> bool {
        self.clues.is_some()
    }

    /// By which ids engines know executions of the pool; `None` unless it [resolves](Self::resolves).
    pub(crate) fn clues(&self) -> Option<&Clues> {
        self.clues.as_ref()
    }

    /// How bodies are hashed; `None` when requests that kill engines are not looked for.
    pub(crate) fn printer(&self) -> Option<&Printer> {
        self.printer.as_ref()
    }

    /// Whether requests have to show their fingerprints.
    pub(crate) fn is_watchful(&self) -> bool {
        self.watchful.load(Relaxed)
    }

    /// Whether a manager runs the engines: the lease API then leaves backends, updates and the pool's end to it.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.managed.load(Relaxed)
    }

    /// Says whether a manager runs the engines.
    pub fn set_managed(&self, managed: bool) {
        self.managed.store(managed, Relaxed);
    }

    /// Ends an execution whose end is unknown and that is over now.
    pub fn settle_lost(&self, lease: LeaseId) -> Result<Settled, Error> {
        let settled = self.with(|pool, now| pool.settle(lease, Settlement::new(Outcome::Lost), now));
        if let Some(clues) = self.clues() {
            clues.forget(lease);
        }
        settled
    }

    /// The current time on this pool's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs `operation` in one critical section, with the time at which it holds the lock.
    ///
    /// `operation` must not call back into this pool: the lock is not re-entrant.
    pub fn with<R>(&self, operation: impl FnOnce(&mut Pool, Timestamp) -> R) -> R {
        self.with_wakers(|pool, _, now| operation(pool, now))
    }

    /// The same, for operations that register who is to be woken.
    ///
    /// Whoever got an answer by `operation` is woken after the lock was given back, in the order of the answers.
    pub(crate) fn with_wakers<R>(&self, operation: impl FnOnce(&mut Pool, &mut Wakers, Timestamp) -> R) -> R {
        let mut state = self.state.lock();
        let State { pool, wakers } = &mut *state;
        // Read under the lock, so that the core sees time in the order of its operations.
        let now = self.now();
        let before = pool.revision();
        let answer = operation(pool, wakers, now);
        let after = pool.revision();
        let watchful = pool.is_watchful();
        // Looking first keeps the cache line shared between the threads.
        if watchful != self.watchful.load(Relaxed) {
            self.watchful.store(watchful, Relaxed);
        }
        let woken = if pool.has_wakes() {
            wakers.take(&pool.take_wakes())
        } else {
            Vec::new()
        };
        drop(state);
        if after != before {
            self.announce(after);
        }
        woken.into_iter().for_each(Waker::wake);
        answer
    }

    /// A receiver that is told whenever [`Pool::revision`] has grown. Subscribe first, then look at the pool.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    #[cold]
    fn announce(&self, revision: u64) {
        // Announcements of two threads may arrive in the other order.
        self.revision.send_if_modified(|latest| {
            let newer = revision > *latest;
            *latest = revision.max(*latest);
            newer
        });
    }

    /// Picks a backend and reserves it; the guard gives it back.
    pub fn acquire(self: &Arc<Self>, request: &AcquireRequest<'_>) -> Result<LeaseGuard, Error> {
        let grant = self.with(|pool, now| pool.acquire(request, now))?;
        Ok(LeaseGuard::new(Arc::clone(self), grant))
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
    version: Option<Published>,
    names_version: bool,
    granted: Timestamp,
    pool: Arc<SharedPool>,
    open: bool,
}

impl LeaseGuard {
    /// The guard of a grant of `pool`.
    pub fn new(pool: Arc<SharedPool>, grant: Grant) -> Self {
        Self {
            lease: grant.lease,
            backend: grant.backend,
            reason: grant.reason,
            version: grant.version,
            names_version: grant.names_version,
            granted: grant.granted,
            pool,
            open: true,
        }
    }

    /// The weights that run the execution; `None` when no version was published at the grant.
    #[must_use]
    pub fn version(&self) -> Option<Published> {
        self.version
    }

    /// See [`Grant::names_version`].
    #[must_use]
    pub fn names_version(&self) -> bool {
        self.names_version
    }

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

    /// When the lease was granted, on the clock of its pool.
    #[must_use]
    pub fn granted(&self) -> Timestamp {
        self.granted
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

    /// The same for the lease of a request that began then. The request is over with it, unless nothing was sent.
    pub(crate) fn settle_request(mut self, settlement: Settlement, began: Timestamp) {
        if let Some(now) = self.close(settlement)
            && settlement.outcome != Outcome::NotSent
        {
            self.pool.note_phase(RequestPhase::Total, now.since(began));
        }
    }

    /// The same for whoever can be told that it came too late: the pool takes the leases of a lost sender back.
    pub fn try_settle(mut self, settlement: Settlement) -> Result<Settled, Error> {
        self.open = false;
        self.pool.with(|pool, now| pool.settle(self.lease, settlement, now))
    }

    /// Says by which ids the engine knows the execution, whose end is about to become unknown.
    pub(crate) fn leave_clue(&self, ids: &AbortIds, authorization: Option<&HeaderValue>) {
        if let Some(clues) = self.pool.clues() {
            let (ids, authorization) = (ids.clone(), authorization.cloned());
            clues.note(self.lease, Clue { ids, authorization });
        }
    }

    /// Ends the lease, if it is open; when that was.
    fn close(&mut self, settlement: Settlement) -> Option<Timestamp> {
        std::mem::take(&mut self.open).then(|| {
            // The guard is the only holder of this lease id, so "unknown lease" cannot happen; were the pool ever to
            // disagree, a destructor has nobody to tell.
            self.pool.with(|pool, now| {
                let _ = pool.settle(self.lease, settlement, now);
                now
            })
        })
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

    /// Whoever can be told learns that the pool has ended the lease without them; the destructor adds nothing.
    #[test]
    fn a_settlement_that_came_too_late_is_refused() {
        let pool = pool();
        let lease = pool.acquire(&AcquireRequest::unpinned()).expect("eligible");
        pool.with(|pool, now| pool.settle(lease.id(), Settlement::new(Outcome::Failed), now))
            .expect("open");
        let late = lease.try_settle(Settlement::new(Outcome::Completed));
        assert_eq!(late, Err(Error::UnknownLease));
        assert_eq!(pool.with(|pool, _| pool.statistics().outcomes.total()), 1);
        let lease = pool.acquire(&AcquireRequest::unpinned()).expect("eligible");
        let settled = lease.try_settle(Settlement::new(Outcome::Completed)).expect("open");
        assert!(!settled.already);
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
