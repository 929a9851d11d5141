//! What the pool's work costs when there is little in it and when there is much, for counting instructions.
//!
//! `python -m benches.router.growth` runs this under valgrind's callgrind, which counts what happens within
//! [`counted_section`] and writes one count per call. This prints, in the same order, one line per call: the case, its
//! size (`few` or `many`) and how many operations are in it.
//!
//! The sizes of a case differ in what should not matter. Everything is made in the same order with the same numbers, so
//! the counts repeat to the instruction.

use router_core::fence::DEFAULT_OWNER;
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::sender::{Attach, RequestKey};
use router_core::time::Timestamp;
use router_core::waiters::{Acquisition, Ticket};
use std::hint::black_box;

const NOW: Timestamp = Timestamp::ZERO;
const INCARNATION: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const MILLION: usize = 1_000_000;
const FEW: &str = "few";
const MANY: &str = "many";

/// What is counted. Its name is all that the checker knows of this program.
#[inline(never)]
fn counted_section(work: &mut dyn FnMut()) {
    work();
}

#[expect(clippy::print_stdout, reason = "the checker reads it")]
fn count(case: &str, size: &str, operations: usize, mut work: impl FnMut()) {
    counted_section(&mut work);
    println!("{case} {size} {operations}");
}

/// Counts so many runs of one operation, which is told its number.
fn count_each(case: &str, size: &str, operations: usize, mut work: impl FnMut(usize)) {
    count(case, size, operations, || (0..operations).for_each(&mut work));
}

/// A pool in the middle of its work: unequal capacities, three executions outstanding per backend.
fn busy_pool(backends: u32, session_cap: usize) -> Pool {
    let mut pool = Pool::new(PoolConfig {
        session_cap,
        ..PoolConfig::default()
    });
    for number in 0..backends {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{}", number + 1), f64::from(1 + number % 3));
        pool.add_backend(spec.expect("a valid backend"), NOW)
            .expect("a new backend");
    }
    for _ in 0..3 * backends {
        pool.acquire(&AcquireRequest::unpinned(), NOW)
            .expect("an eligible backend");
    }
    pool
}

fn turn(pool: &mut Pool, request: &AcquireRequest<'_>) {
    let grant = pool.acquire(black_box(request), NOW).expect("an eligible backend");
    pool.settle(grant.lease, Settlement::new(Outcome::Completed), NOW)
        .expect("an open lease");
    black_box(grant.backend);
}

/// The key of a session: a UUID.
struct Key([u8; 36]);

impl Key {
    fn new() -> Self {
        Self(*b"00000000-0000-4000-8000-000000000000")
    }

    fn of(&mut self, number: usize) -> &str {
        for (position, digit) in self.0[28..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (4 * position)) & 15];
        }
        std::str::from_utf8(&self.0).expect("hexadecimal digits and dashes")
    }
}

/// The next turn of a known session, and the first and only turn of a new one.
fn sessions(size: &str, pool: &mut Pool, sessions: usize) {
    let mut key = Key::new();
    let mut random = 1_u64;
    count_each("turn", size, 20_000, |_| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = usize::try_from(random >> 40).expect("24 bits") % sessions;
        turn(pool, &AcquireRequest::for_session(key.of(number)));
    });
    count_each("new_session", size, 10_000, |number| {
        let key = key.of(2 * MILLION + number);
        turn(pool, &AcquireRequest::for_session(key));
        pool.close_session(key, NOW);
    });
}

fn fill(pool: &mut Pool, sessions: usize) {
    let mut key = Key::new();
    for number in 0..sessions {
        turn(pool, &AcquireRequest::for_session(key.of(number)));
    }
}

fn attach(pool: &mut Pool, sender: &str) {
    pool.attach_sender(&Attach::new(sender, INCARNATION, "train"), NOW)
        .expect("a new sender");
}

const fn request_key(sender: &str, seq: u64) -> RequestKey<'_> {
    RequestKey {
        sender,
        incarnation: INCARNATION,
        seq,
    }
}

/// The next turn of a session of a sender, with what is settled sent along.
fn sender_turn(size: &str, pool: &mut Pool) {
    let sender = "rollout/0";
    attach(pool, sender);
    let mut key = Key::new();
    let (mut seq, warm_up) = (0, 1000);
    let mut next = |number: usize| {
        let settled = [(0, seq)];
        let settled = if seq == 0 { &[] } else { settled.as_slice() };
        pool.report_settled(sender, INCARNATION, settled, NOW)
            .expect("attached");
        seq += 1;
        let request = AcquireRequest::for_session(key.of(number % warm_up));
        turn(pool, &request.keyed(request_key(sender, seq)));
    };
    (0..warm_up).for_each(&mut next);
    count_each("sender_turn", size, 10_000, next);
}

/// A sender that has so many sessions departs.
fn departure(case: &str, size: &str, pool: &mut Pool, sessions: usize) {
    let sender = "rollout/departing";
    attach(pool, sender);
    let mut key = Key::new();
    let mut seq = 0;
    for number in 0..sessions {
        seq += 1;
        turn(
            pool,
            &AcquireRequest::for_session(key.of(number)).keyed(request_key(sender, seq)),
        );
        pool.report_settled(sender, INCARNATION, &[(1, seq)], NOW)
            .expect("attached");
    }
    count(case, size, 1, || {
        pool.detach_sender(sender, INCARNATION, NOW)
            .expect("it holds no leases");
    });
}

/// A new session comes when the table is full, and the one that is idle for longest goes.
fn eviction(size: &str, cap: usize) {
    let mut pool = busy_pool(16, cap);
    fill(&mut pool, cap);
    let mut key = Key::new();
    count_each("eviction", size, 1000, |number| {
        turn(&mut pool, &AcquireRequest::for_session(key.of(cap + number)));
    });
}

fn park(pool: &mut Pool, request: &AcquireRequest<'_>) -> Ticket {
    match pool.acquire_or_park(request, Timestamp::MAX, NOW) {
        Ok(Acquisition::Parked(parked)) => parked.ticket,
        other => panic!("not parked: {other:?}"),
    }
}

/// One acquire parks, is woken, claims and settles, while so many others stay parked; then those are woken at once.
fn parking(size: &str, others: usize) {
    let mut pool = busy_pool(16, MILLION);
    attach(&mut pool, "rollout/0");
    pool.fence("train", "pause", None, NOW).expect("a known owner");
    for seq in (0..).take(others) {
        park(
            &mut pool,
            &AcquireRequest::unpinned().keyed(request_key("rollout/0", seq)),
        );
    }
    count_each("park_wake", size, 1000, |_| {
        pool.fence(DEFAULT_OWNER, "pause", None, NOW).expect("known");
        let ticket = park(&mut pool, &AcquireRequest::unpinned());
        pool.unfence(DEFAULT_OWNER, "pause", None, NOW).expect("known");
        black_box(pool.take_wakes());
        let grant = pool.claim(ticket, NOW).expect("woken").expect("granted");
        pool.settle(grant.lease, Settlement::new(Outcome::Completed), NOW)
            .expect("open");
    });
    let mut woken = Vec::new();
    // One operation per waiter.
    count("wake_each", size, others, || {
        pool.unfence("train", "pause", None, NOW).expect("known");
        woken = pool.take_wakes();
    });
    assert_eq!(woken.len(), others);
}

fn main() {
    let mut few = busy_pool(16, 2 * MILLION);
    fill(&mut few, 1000);
    sessions(FEW, &mut few, 1000);
    sender_turn(FEW, &mut few);
    departure("departure", FEW, &mut few, 1000);
    departure("large_departure", FEW, &mut few, 2000);

    let mut many = busy_pool(1000, 2 * MILLION);
    fill(&mut many, MILLION);
    sessions(MANY, &mut many, MILLION);
    for number in 1..1000 {
        attach(&mut many, &format!("rollout/{number}"));
    }
    sender_turn(MANY, &mut many);
    departure("departure", MANY, &mut many, 1000);
    departure("large_departure", MANY, &mut many, 50_000);

    eviction(FEW, 1000);
    eviction(MANY, 100_000);
    parking(FEW, 100);
    parking(MANY, 50_000);
}
