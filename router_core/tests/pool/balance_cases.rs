//! The public bug cases about balance, by number: each is a way in which other routers were seen to pile work up.

use crate::support::{Bench, spread};
use router_core::error::Error;
use router_core::lease::Outcome;
use router_core::load::Capacity;
use router_core::membership::BackendSpec;
use router_core::pool::{PickReason, PoolConfig};

/// B25: settling executions of a removed incarnation never touches the one that came back at the same address.
#[test]
fn b25_a_returning_address_counts_from_zero() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let old: Vec<_> = (0..3).map(|_| bench.acquire_unpinned()).collect();
    assert_eq!(bench.remove("e0"), 3);
    let returned = bench.add(0, 1.0);
    assert!(returned.reference.generation() > old[0].backend.reference.generation());
    let new: Vec<_> = (0..2).map(|_| bench.acquire_unpinned()).collect();

    for (settled, lease) in (1..).zip(&old) {
        assert_eq!(lease.backend.address, returned.address);
        bench.settle(lease.lease, Outcome::Completed);
        let statistics = bench.statistics();
        assert_eq!(statistics.backends[0].outstanding, 2);
        assert_eq!(statistics.outstanding, 5 - settled);
        assert_eq!(
            statistics.retired.len(),
            usize::from(settled < 3),
            "forgotten with its last lease"
        );
    }
    for lease in new {
        bench.settle(lease.lease, Outcome::Completed);
    }
    assert_eq!(bench.backend("e0").outstanding, 0);
    assert_eq!(
        bench.statistics().outcomes.get(Outcome::Completed),
        5,
        "totals outlive the incarnation"
    );
}

/// B29: requests that never overlap are spread evenly, not sent to the first backend.
#[test]
fn b29_sequential_requests_go_round() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0; 4]);
    for _ in 0..200 {
        let grant = bench.acquire_unpinned();
        bench.settle(grant.lease, Outcome::Completed);
    }
    assert_eq!(bench.per_backend(|backend| backend.picks), [50; 4]);
}

/// B29: so are sessions whose first turns never overlap, as sessions that will come back count.
#[test]
fn b29_sequential_sessions_are_spread() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0; 4]);
    for number in 0..40 {
        bench.turn(&format!("s{number}"));
    }
    assert_eq!(bench.per_backend(|backend| backend.sessions.into()), [10; 4]);
}

/// B29: among backends that were never chosen the first registered goes first, also when another one took the place
/// of a removed backend.
#[test]
fn b29_ties_of_newcomers_go_by_registration() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0; 3]);
    bench.remove("e0");
    bench.add(3, 1.0);
    let order: Vec<String> = (0..3).map(|_| bench.acquire_unpinned().backend.id.clone()).collect();
    assert_eq!(order, ["e1", "e2", "e3"]);
}

/// B29: in the same way by capacity.
#[test]
fn b29_sequential_sessions_follow_capacity() {
    let mut bench = Bench::new(PoolConfig::default(), &[3.0, 1.0]);
    for number in 0..40 {
        // Without overlap the larger backend always has the smaller (outstanding + 1) / capacity ...
        bench.turn(&format!("s{number}"));
    }
    assert_eq!(bench.per_backend(|backend| backend.sessions.into()), [40, 0]);
    // ... while overlapping sessions are shared by size.
    let mut bench = Bench::new(PoolConfig::default(), &[3.0, 1.0]);
    for number in 0..40 {
        bench.acquire(&format!("s{number}"));
    }
    assert_eq!(bench.per_backend(|backend| backend.sessions.into()), [30, 10]);
}

/// B30: a burst of acquires sees its own reservations.
#[test]
fn b30_a_burst_is_spread() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0; 8]);
    for number in 0..1000 {
        if number % 2 == 0 {
            bench.acquire_unpinned();
        } else {
            bench.acquire(&format!("s{number}"));
        }
        assert!(spread(&bench.per_backend(|backend| backend.outstanding.into())) <= 1);
    }
    assert_eq!(bench.per_backend(|backend| backend.outstanding.into()), [125; 8]);
}

/// B83: engines of different size get traffic by size.
#[test]
fn b83_capacities_are_followed() {
    let mut bench = Bench::new(PoolConfig::default(), &[8.0, 2.0]);
    for number in 0..1000 {
        assert_eq!(bench.acquire(&format!("s{number}")).reason, PickReason::New);
    }
    let outstanding = bench.per_backend(|backend| backend.outstanding.into());
    assert!(
        outstanding[0].abs_diff(800) <= 2 && outstanding[1].abs_diff(200) <= 2,
        "{outstanding:?}"
    );
}

/// B83: a capacity that is no positive number is refused at registration.
#[test]
fn b83_impossible_capacities_are_refused() {
    for capacity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = BackendSpec::parse("h:1", capacity);
        assert!(
            matches!(refused, Err(Error::InvalidCapacity { .. })),
            "{capacity}: {refused:?}"
        );
        assert!(refused.expect_err("refused").to_string().contains("finite"));
    }
    assert!(
        (Capacity::default().as_f64() - 1.0).abs() < f64::EPSILON,
        "a missing capacity is 1"
    );
}

/// B83: 3/8 is less than 1/2, and 4/8 ties with it: no rounding decides.
#[test]
fn b83_shares_are_compared_exactly() {
    let mut bench = Bench::new(PoolConfig::default(), &[8.0, 2.0]);
    for expected in ["e0", "e0", "e0"] {
        assert_eq!(bench.acquire_unpinned().backend.id, expected);
    }
    // 4/8 against 1/2 is a tie in executions and in sessions (1/8 against 1/2 is not): the larger one has fewer.
    assert_eq!(bench.acquire_unpinned().backend.id, "e0");
    // 5/8 against 1/2.
    assert_eq!(bench.acquire_unpinned().backend.id, "e1");

    // Thirds of 0.3 and 0.1 tie exactly as well, and the one granted longer ago is next.
    let mut bench = Bench::new(PoolConfig::default(), &[0.3, 0.1]);
    let order: Vec<String> = (0..8).map(|_| bench.acquire_unpinned().backend.id.clone()).collect();
    assert_eq!(order, ["e0", "e0", "e0", "e1", "e0", "e0", "e0", "e1"]);
}

/// A suspect takes new work only when nobody else can.
#[test]
fn failures_do_not_look_fast() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0, 1.0]);
    let failing = bench.acquire_unpinned();
    bench.settle(failing.lease, Outcome::Failed);
    for _ in 0..10 {
        assert_ne!(bench.acquire_unpinned().backend.id, failing.backend.id);
    }
    bench.bring_down("e1");
    assert_eq!(bench.acquire_unpinned().backend.id, failing.backend.id);
}

/// A backend that nobody has reached yet gets no traffic, and the refusal says so.
#[test]
fn unproven_backends_wait() {
    let mut bench = Bench::new(PoolConfig::default(), &[]);
    let spec = BackendSpec::parse("h:1", 1.0).expect("valid").unproven();
    let backend = bench.pool.add_backend(spec, bench.now).expect("new");
    let refused = bench.try_acquire(None, &[]).expect_err("nobody is eligible");
    assert_eq!(
        refused.to_string(),
        "no backend can take a new execution now (1 registered, 1 not reached yet)"
    );
    bench.pool.report_probe(backend.reference, true, bench.now);
    bench.acquire_unpinned();
}

/// The limit of the pool counts what runs on every backend, removed ones included.
#[test]
fn the_pool_has_a_limit() {
    let mut bench = Bench::new(
        PoolConfig {
            max_outstanding: Some(2),
            ..PoolConfig::default()
        },
        &[1.0, 1.0],
    );
    let first = bench.acquire_unpinned();
    bench.acquire("s");
    bench.remove(&first.backend.id);
    let refused = bench.try_acquire(Some("s"), &[]).expect_err("the pool is full");
    assert_eq!(
        refused,
        Error::AtCapacity {
            outstanding: 2,
            limit: 2
        }
    );
    bench.settle(first.lease, Outcome::Cancelled);
    bench.acquire("s");
}

/// An execution that was excluded everywhere is refused with the reason, and the exclusion lasts for that call only.
#[test]
fn exclusion_is_for_one_call() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0, 1.0]);
    let both = [bench.reference("e0"), bench.reference("e1"), bench.reference("e0")];
    let refused = bench.try_acquire(None, &both).expect_err("all were tried");
    assert_eq!(
        refused.to_string(),
        "no backend can take a new execution now (2 registered, 2 eligible, 2 already tried)"
    );
    assert_eq!(
        bench.try_acquire(None, &both[..1]).expect("one is left").backend.id,
        "e1"
    );
    assert_eq!(bench.acquire_unpinned().backend.id, "e0");
}
