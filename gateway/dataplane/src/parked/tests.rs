//! Calls polled by hand, so that every order of grant, wake-up, poll and drop is chosen by the test.

use super::*;
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, PoolConfig};
use router_core::sender::{Attach, RequestKey};
use router_core::waiters::Acquisition;
use std::sync::Mutex;
use std::task::Wake;
use std::time::Duration;

/// Writes its number down when it is woken.
struct Note {
    number: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.woken.lock().expect("no panic").push(self.number);
    }
}

struct World {
    pool: Arc<SharedPool>,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl World {
    /// A pool with one backend, and the sender `s` of the fenced owner `o`.
    fn fenced() -> Self {
        let pool = SharedPool::new("p", PoolConfig::default());
        pool.with(|pool, now| {
            pool.add_backend(BackendSpec::parse("h:1", 1.0).expect("a URL"), now)?;
            pool.attach_sender(&Attach::new("s", "1", "o"), now)?;
            pool.fence("o", "why", None, now)
        })
        .expect("fenced");
        Self {
            pool,
            woken: Arc::default(),
        }
    }

    fn unfence(&self) {
        self.pool
            .with(|pool, now| pool.unfence("o", "why", None, now))
            .expect("open");
    }

    fn park(&self, seq: u64) -> ParkedCall {
        let key = RequestKey {
            sender: "s",
            incarnation: "1",
            seq,
        };
        let request = AcquireRequest::unpinned().keyed(key);
        let acquisition = self
            .pool
            .with(|pool, now| pool.acquire_or_park(&request, now.after(Duration::from_secs(60)), now));
        match acquisition.expect("it may wait") {
            Acquisition::Parked(parked) => ParkedCall::new(Arc::clone(&self.pool), parked),
            Acquisition::Granted(_) => panic!("granted through a fence"),
        }
    }

    /// Polls with a waker called `number`.
    fn poll(&self, call: &mut ParkedCall, number: u64) -> Poll<Result<Grant, Error>> {
        let woken = Arc::clone(&self.woken);
        let waker = Waker::from(Arc::new(Note { number, woken }));
        Pin::new(call).poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> Vec<u64> {
        std::mem::take(&mut self.woken.lock().expect("no panic"))
    }

    /// Open leases, parked acquires and wakers.
    fn counts(&self) -> (u32, u32, usize) {
        self.pool.with_wakers(|pool, wakers, _| {
            let statistics = pool.statistics();
            (statistics.outstanding, statistics.control.waiters, wakers.len())
        })
    }
}

/// Calls are woken in the order of their arrival, whichever way they were polled; each gets its own grant.
#[test]
fn woken_in_order() {
    let world = World::fenced();
    let mut calls: Vec<ParkedCall> = (1..=50).map(|seq| world.park(seq)).collect();
    for (index, call) in calls.iter_mut().enumerate().rev() {
        assert!(world.poll(call, index as u64).is_pending());
    }
    assert_eq!(world.counts(), (0, 50, 50));
    world.unfence();
    assert_eq!(world.woken(), (0..50).collect::<Vec<u64>>());
    for call in &mut calls {
        let Poll::Ready(Ok(grant)) = world.poll(call, 0) else {
            panic!("woken without an answer")
        };
        let settled = world
            .pool
            .with(|pool, now| pool.settle(grant.lease, Settlement::new(Outcome::Completed), now));
        assert!(!settled.expect("open").already);
    }
    assert_eq!(world.counts(), (0, 0, 0));
}

/// Only the waker of the last poll is woken, and once.
#[test]
fn the_last_waker_counts() {
    let world = World::fenced();
    let mut call = world.park(1);
    for number in 1..=3 {
        assert!(world.poll(&mut call, number).is_pending());
    }
    assert_eq!(world.counts(), (0, 1, 1));
    world.unfence();
    assert_eq!(world.woken(), [3]);
    assert!(world.poll(&mut call, 4).is_ready());
}

/// A grant that is made before the first poll is found by it: no wake-up can be lost.
#[test]
fn granted_before_the_first_poll() {
    let world = World::fenced();
    let mut call = world.park(1);
    world.unfence();
    assert!(world.woken().is_empty());
    assert!(matches!(world.poll(&mut call, 1), Poll::Ready(Ok(_))));
    assert_eq!(world.counts(), (1, 0, 0));
}

/// A call that is dropped while it waits leaves nothing behind, polled or not.
#[test]
fn dropped_while_waiting() {
    let world = World::fenced();
    let mut polled = world.park(1);
    assert!(world.poll(&mut polled, 1).is_pending());
    drop(polled);
    drop(world.park(2));
    assert_eq!(world.counts(), (0, 0, 0));
    world.unfence();
    assert!(world.woken().is_empty());
    assert_eq!(world.counts(), (0, 0, 0));
}

/// A call that is dropped after its grant was made, and before it was told, gives the lease back as not sent.
#[test]
fn dropped_after_the_grant() {
    let world = World::fenced();
    let mut call = world.park(1);
    assert!(world.poll(&mut call, 1).is_pending());
    world.unfence();
    assert_eq!((world.woken(), world.counts()), (vec![1], (1, 0, 0)));
    drop(call);
    assert_eq!(world.counts(), (0, 0, 0));
    let outcomes = world.pool.with(|pool, _| pool.statistics().outcomes);
    assert_eq!(outcomes.get(Outcome::NotSent), 1);
}

/// Two calls with one key share the grant; one of them may leave without taking it from the other.
#[test]
fn two_calls_with_one_key() {
    let world = World::fenced();
    let (mut first, mut second, mut third) = (world.park(1), world.park(1), world.park(1));
    for (number, call) in [&mut first, &mut second, &mut third].into_iter().enumerate() {
        assert!(world.poll(call, number as u64).is_pending());
    }
    drop(third);
    assert_eq!(world.counts(), (0, 1, 2));
    world.unfence();
    assert_eq!(world.woken(), [0, 1]);
    let Poll::Ready(Ok(grant)) = world.poll(&mut first, 0) else {
        panic!("no grant")
    };
    drop(first);
    let Poll::Ready(Ok(same)) = world.poll(&mut second, 1) else {
        panic!("no grant")
    };
    assert_eq!(grant.lease, same.lease);
    assert_eq!(world.counts(), (1, 0, 0));
}

/// Giving up tells what was waited for, or takes the grant that was made at that moment.
#[test]
fn giving_up() {
    let world = World::fenced();
    let (mut early, mut late) = (world.park(1), world.park(2));
    assert!(world.poll(&mut early, 1).is_pending() && world.poll(&mut late, 2).is_pending());
    assert!(matches!(early.give_up(), Err(Error::Fenced { .. })));
    assert_eq!(world.counts(), (0, 1, 1));
    world.unfence();
    assert!(late.give_up().is_ok());
    assert_eq!(world.counts(), (1, 0, 0));
}
