//! What the pool costs in memory, measured by counting allocations: bytes per idle session, nothing on the sticky
//! path, and nothing left behind by churn.

use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::sender::{Attach, RequestKey};
use router_core::time::Timestamp;
use router_core::waiters::Acquisition;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counters for the current thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(allocations: usize, more: usize, less: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    // Memory of another thread may be freed here, so the difference wraps rather than panics inside the allocator.
    LIVE_BYTES.set(LIVE_BYTES.get().wrapping_add(more).wrapping_sub(less));
}

#[expect(
    unsafe_code,
    reason = "only an allocator can count allocations; every call is handed on to the system's"
)]
// SAFETY: all methods pass their arguments unchanged to `System`, which upholds the contract of `GlobalAlloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn pool(backends: u16) -> Pool {
    let mut pool = Pool::new(PoolConfig::default());
    for port in 1..=backends {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{port}"), 1.0).expect("a valid backend");
        pool.add_backend(spec, Timestamp::ZERO).expect("a new backend");
    }
    pool
}

fn turn(pool: &mut Pool, key: &str) {
    let grant = pool
        .acquire(&AcquireRequest::for_session(key), Timestamp::ZERO)
        .expect("an eligible backend");
    pool.settle(grant.lease, Settlement::new(Outcome::Completed), Timestamp::ZERO)
        .expect("an open lease");
}

/// A session key of the usual length: a UUID.
fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// At most 200 bytes per idle session, at the sizes where growing tables have just doubled as well.
#[test]
fn idle_sessions_are_small() {
    let mut pool = pool(16);
    let empty = LIVE_BYTES.get();
    let mut sessions = 0;
    for size in [100_000, (1 << 17) + 1, 250_000, (1 << 18) + 1] {
        while sessions < size {
            turn(&mut pool, &uuid(sessions));
            sessions += 1;
        }
        let per_session = (LIVE_BYTES.get() - empty) / size;
        assert!(per_session <= 200, "{per_session} bytes per session at {size} sessions");
    }
}

/// A turn of a known session allocates nothing.
#[test]
fn the_sticky_path_does_not_allocate() {
    let mut pool = pool(16);
    let keys: Vec<String> = (0..1000).map(uuid).collect();
    for key in &keys {
        turn(&mut pool, key);
    }
    let before = ALLOCATIONS.get();
    for key in &keys {
        turn(&mut pool, key);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

/// I7: sessions that come and go leave no memory behind, whichever way they end.
#[test]
fn i7_churn_leaves_nothing_behind() {
    let mut pool = pool(16);
    let mut churn = || {
        for number in 0..10_000 {
            let key = uuid(number);
            turn(&mut pool, &key);
            pool.close_session(&key, Timestamp::ZERO);
        }
        assert_eq!(pool.statistics().sessions, 0);
        LIVE_BYTES.get()
    };
    let first = churn();
    assert_eq!((churn(), churn()), (first, first));
}

/// I7: neither do requests of senders, once they are said to be settled, nor acquires that park and leave.
#[test]
fn i7_keyed_churn_leaves_nothing_behind() {
    let mut pool = pool(16);
    let now = Timestamp::ZERO;
    pool.attach_sender(&Attach::new("t", "1", "train"), now)
        .expect("a new sender");
    let mut seq = 0;
    let mut churn = || {
        for _ in 0..10_000 {
            seq += 1;
            let key = RequestKey {
                sender: "t",
                incarnation: "1",
                seq,
            };
            let request = AcquireRequest::for_session("s").keyed(key);
            pool.fence("train", "pause", None, now).expect("known");
            let parked = pool.acquire_or_park(&request, Timestamp::MAX, now).expect("waits");
            pool.unfence("train", "pause", None, now).expect("known");
            let Acquisition::Parked(parked) = parked else {
                panic!("granted")
            };
            assert_eq!(pool.take_wakes(), [parked.ticket]);
            let grant = pool.claim(parked.ticket, now).expect("woken").expect("granted");
            pool.settle(grant.lease, Settlement::new(Outcome::Completed), now)
                .expect("open");
            pool.heartbeat("t", "1", &[(0, seq)], now).expect("attached");
        }
        // Their number is bounded, and the lines are of different lengths.
        pool.take_events();
        LIVE_BYTES.get()
    };
    churn();
    let first = churn();
    assert_eq!((churn(), churn()), (first, first));
}

/// I7: neither do senders that come, leave sessions behind and go.
#[test]
fn i7_departures_leave_nothing_behind() {
    let mut pool = pool(16);
    let now = Timestamp::ZERO;
    let mut churn = || {
        for round in 0..20 {
            for (number, sender) in ["a", "b", "c"].into_iter().enumerate() {
                pool.attach_sender(&Attach::new(sender, "1", "train"), now)
                    .expect("a new sender");
                for seq in 0..600 {
                    let key = RequestKey {
                        sender,
                        incarnation: "1",
                        seq,
                    };
                    let session = uuid(usize::try_from(seq).expect("few"));
                    let grant = pool
                        .acquire(&AcquireRequest::for_session(&session).keyed(key), now)
                        .expect("an eligible backend");
                    pool.settle(grant.lease, Settlement::new(Outcome::Completed), now)
                        .expect("open");
                }
                assert_eq!(pool.statistics().sessions, 600 * (number + 1), "round {round}");
            }
            for sender in ["a", "b", "c"] {
                pool.detach_sender(sender, "1", now).expect("it holds no leases");
            }
            pool.tick(now);
            assert_eq!(pool.statistics().sessions, 0);
        }
        pool.take_events();
        LIVE_BYTES.get()
    };
    churn();
    let first = churn();
    assert_eq!((churn(), churn()), (first, first));
}

/// B69: neither do incarnations that come and go, with events that nobody reads.
#[test]
fn b69_membership_churn_leaves_nothing_behind() {
    let mut pool = pool(4);
    let mut churn = || {
        for _ in 0..2_000 {
            let spec = BackendSpec::parse("10.0.0.9:9", 1.0).expect("a valid backend");
            pool.add_backend(spec, Timestamp::ZERO).expect("a new backend");
            turn(&mut pool, "s");
            pool.remove_backend("10.0.0.9:9", Timestamp::ZERO)
                .expect("a known backend");
        }
        LIVE_BYTES.get()
    };
    let first = churn();
    assert_eq!((churn(), churn()), (first, first));
}
