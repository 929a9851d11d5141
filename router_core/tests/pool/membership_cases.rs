//! Who is in the pool, under which name, and what evidence does to them.

use crate::support::Bench;
use router_core::error::{Census, Error};
use router_core::event::EventKind;
use router_core::health::Health;
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, PickReason, PoolConfig};
use router_core::waiters::Acquisition;
use std::time::Duration;

fn spec(address: &str) -> BackendSpec {
    BackendSpec::parse(address, 1.0).expect("a valid backend")
}

/// Registering the same backend again changes its capacity and nothing else.
#[test]
fn registering_again_updates_the_capacity() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0, 1.0]);
    let lease = bench.acquire("s");
    let updated = bench.add(0, 7.0);
    assert_eq!(updated.reference, lease.backend.reference);
    let backend = bench.backend("e0");
    assert_eq!((backend.outstanding, backend.sessions), (1, 1));
    assert!((backend.info.capacity.as_f64() - 7.0).abs() < f64::EPSILON);
    // (1 + 1) / 7 is less than 1 / 1: selection knows the new capacity.
    assert_eq!(bench.acquire_unpinned().backend.id, "e0");
}

/// A backend is named after its address unless it is given a name; names and addresses are unique.
#[test]
fn ids_and_addresses_belong_together() {
    let mut bench = Bench::new(PoolConfig::default(), &[]);
    let plain = bench.pool.add_backend(spec("HTTP://Host:1/"), bench.now).expect("new");
    assert_eq!((plain.id.as_str(), plain.reference.generation()), ("host:1", 1));
    let named = bench
        .pool
        .add_backend(spec("host:2").with_id("two"), bench.now)
        .expect("new");
    assert_eq!(bench.pool.find_backend("two"), Some(&named));
    for (refused, rule) in [
        (spec("host:1").with_id("one"), "another id"),
        (spec("host:3").with_id("two"), "another address"),
        (spec("host:1").with_id("two"), "another address"),
        (spec("host:3").with_id(""), "empty"),
        (spec("host:3").with_id("x".repeat(257)), "256 bytes"),
        (spec("host:3").with_id("a b"), "visible ASCII"),
        (spec("host:3").with_id("a\r\nx-evil: 1"), "visible ASCII"),
    ] {
        let error = bench.pool.add_backend(refused.clone(), bench.now).expect_err("refused");
        assert!(error.to_string().contains(rule), "{refused:?} gave {error}");
        assert_eq!(error.code(), "invalid_request");
    }
    assert_eq!(bench.pool.backends().count(), 2);
}

/// A backend that is not there cannot be drained or removed, also when it was there once.
#[test]
fn unknown_backends_are_named() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let lease = bench.acquire_unpinned();
    bench.remove("e0");
    for id in ["e0", "nobody"] {
        let unknown = Error::UnknownBackend { id: id.to_owned() };
        assert_eq!(bench.pool.drain_backend(id, bench.now), Err(unknown.clone()));
        assert_eq!(bench.pool.resume_backend(id, bench.now), Err(unknown.clone()));
        assert_eq!(bench.pool.remove_backend(id, bench.now), Err(unknown));
        assert_eq!(bench.pool.find_backend(id), None);
    }
    bench.settle(lease.lease, Outcome::Completed);
}

/// Draining is idempotent, outlasts a repeated registration, and is counted as such whatever the health.
#[test]
fn draining_stays() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let lease = bench.acquire_unpinned();
    assert_eq!((bench.drain("e0"), bench.drain("e0")), (1, 1));
    bench.add(0, 2.0);
    bench.bring_down("e0");
    let census = Census {
        registered: 1,
        draining: 1,
        ..Census::default()
    };
    assert_eq!(
        bench.try_acquire(None, &[]).expect_err("draining"),
        Error::NoEligibleBackend { census }
    );
    bench.settle(lease.lease, Outcome::Completed);
    assert_eq!(bench.drain("e0"), 0);
    let (events, _) = bench.pool.take_events();
    let drains = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::BackendDraining { .. }));
    assert_eq!(drains.count(), 1);
}

/// A cancelled drain: the same incarnation serves again, with its counts, and resuming it twice is once.
#[test]
fn a_drained_backend_is_resumed() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let running = bench.acquire("s");
    bench.drain("e0");
    bench.try_acquire(Some("s"), &[]).expect_err("draining");
    let before = bench.pool.revision();
    for _ in 0..2 {
        bench.pool.resume_backend("e0", bench.now).expect("known");
    }
    assert_eq!(bench.pool.revision(), before + 1);
    let next = bench.acquire("s");
    assert_eq!(next.backend.reference, running.backend.reference);
    assert_eq!(next.reason, PickReason::Sticky);
    assert_eq!(bench.backend("e0").outstanding, 2);
    let (events, _) = bench.pool.take_events();
    let resumed = "backend e0 (generation 1) takes executions again";
    assert_eq!(events.iter().filter(|event| event.to_string() == resumed).count(), 1);
}

/// Whoever parked while the only backend was draining is granted it at the instant of the resume.
#[test]
fn resuming_wakes_who_waits() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    bench.drain("e0");
    let patience = bench.now.after(Duration::from_secs(10));
    let parked = bench
        .pool
        .acquire_or_park(&AcquireRequest::for_session("s"), patience, bench.now)
        .expect("parked");
    assert!(matches!(parked, Acquisition::Parked(_)));
    bench.pool.resume_backend("e0", bench.now).expect("known");
    assert_eq!(bench.backend("e0").outstanding, 1);
}

/// A backend that is being retired leaves, whoever would have it back: its owner waits for nothing but its executions.
#[test]
fn a_retiring_backend_is_not_resumed() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let lease = bench.acquire_unpinned();
    bench.pool.retire_backend("e0", None, bench.now).expect_err("busy");
    bench.drain("e0");
    let refused = bench.pool.resume_backend("e0", bench.now).expect_err("retiring");
    assert_eq!(refused.code(), "invalid_transition");
    assert!(refused.to_string().contains("backend e0 is being retired"), "{refused}");
    bench.settle(lease.lease, Outcome::Completed);
    assert_eq!(bench.pool.retire_backend("e0", None, bench.now), Ok(()));
    assert_eq!(bench.pool.find_backend("e0"), None);
}

/// The table of outcomes: which are signs of life, which are failures, which say nothing.
#[test]
fn outcomes_are_evidence() {
    for (outcome, after_success, after_failure) in [
        (Outcome::Completed, Health::Up, Health::Up),
        (Outcome::Aborted, Health::Up, Health::Up),
        (Outcome::Rejected, Health::Up, Health::Up),
        (Outcome::Cancelled, Health::Up, Health::Suspect),
        (Outcome::Failed, Health::Suspect, Health::Down),
        (Outcome::NotSent, Health::Suspect, Health::Down),
        (Outcome::Ambiguous, Health::Suspect, Health::Down),
    ] {
        let mut bench = Bench::new(
            PoolConfig {
                down_after: 2,
                ..PoolConfig::default()
            },
            &[1.0],
        );
        let lease = bench.acquire_unpinned();
        bench.settle(lease.lease, outcome);
        assert_eq!(bench.backend("e0").health, after_success, "{outcome}");

        let mut bench = Bench::new(
            PoolConfig {
                down_after: 2,
                ..PoolConfig::default()
            },
            &[1.0],
        );
        for outcome in [Outcome::Failed, outcome] {
            let lease = bench.acquire_unpinned();
            bench.settle(lease.lease, outcome);
        }
        assert_eq!(bench.backend("e0").health, after_failure, "failed, then {outcome}");
    }
}

/// Suspicion ends on time even when nobody ticks, and the pool then prefers nobody.
#[test]
fn suspicion_ends_without_a_tick() {
    let decay = Duration::from_secs(10);
    let mut bench = Bench::new(
        PoolConfig {
            suspect_decay: decay,
            ..PoolConfig::default()
        },
        &[1.0, 1.0],
    );
    let failing = bench.acquire_unpinned();
    bench.settle(failing.lease, Outcome::NotSent);
    bench.advance(decay / 2);
    bench.pool.report_probe(bench.reference("e1"), false, bench.now);
    bench.advance(decay / 2);
    let next = bench.acquire_unpinned();
    assert_eq!(next.backend.id, "e0", "trusted again, while e1 is suspect for longer");
    bench.advance(decay / 2);
    assert_eq!(bench.acquire_unpinned().backend.id, "e1");
    assert_eq!(
        bench.per_backend(|backend| backend.failures.into()),
        [1, 1],
        "no sign of life has come"
    );
}

/// A pool that nobody probes tries a backend that is down again, with one execution, after a while.
#[test]
fn a_pool_without_probes_does_not_lose_a_backend_for_good() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    for _ in 0..3 {
        let lease = bench.acquire_unpinned();
        bench.settle(lease.lease, Outcome::NotSent);
    }
    assert_eq!(bench.backend("e0").health, Health::Down);
    bench.advance(PoolConfig::default().half_open_after.expect("a default"));
    let trial = bench.acquire_unpinned();
    bench.settle(trial.lease, Outcome::Completed);
    assert_eq!(
        (bench.backend("e0").health, bench.backend("e0").failures),
        (Health::Up, 0)
    );
}

/// A settlement without evidence is counted and changes no belief.
#[test]
fn an_outcome_without_evidence_blames_nobody() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    for outcome in [Outcome::NotSent, Outcome::Failed, Outcome::Ambiguous] {
        let lease = bench.acquire_unpinned();
        let settlement = Settlement::new(outcome).without_evidence();
        bench
            .pool
            .settle(lease.lease, settlement, bench.now)
            .expect("the lease is open");
        assert_eq!(bench.backend("e0").outcomes.get(outcome), 1);
        assert_eq!(
            (bench.backend("e0").health, bench.backend("e0").failures),
            (Health::Up, 0)
        );
    }
}

/// Bytes in the middle of an answer keep a busy engine up, though its probes time out.
#[test]
fn a_busy_backend_is_not_a_dead_one() {
    let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
    let backend = bench.acquire("s").backend.reference;
    for _ in 0..20 {
        bench.pool.report_probe(backend, false, bench.now);
        bench.pool.report_probe(backend, false, bench.now);
        bench.pool.note_alive(backend, bench.now);
    }
    assert_eq!(bench.backend("e0").health, Health::Up);
    assert_eq!(bench.acquire("s").reason, PickReason::Sticky);
}

/// I6: probes and bytes of an old incarnation do not change the new one, in the same slot or another.
#[test]
fn i6_old_evidence_is_ignored() {
    for with_open_lease in [true, false] {
        let mut bench = Bench::new(PoolConfig::default(), &[1.0]);
        let old = bench.reference("e0");
        let lease = with_open_lease.then(|| bench.acquire_unpinned());
        bench.remove("e0");
        let spec = BackendSpec::parse("10.0.0.1:1000", 1.0)
            .expect("valid")
            .with_id("e0")
            .unproven();
        bench.pool.add_backend(spec, bench.now).expect("a new incarnation");
        let before = bench.statistics();
        for _ in 0..5 {
            bench.pool.report_probe(old, true, bench.now);
            bench.pool.note_alive(old, bench.now);
            bench.pool.report_probe(old, false, bench.now);
        }
        assert_eq!(bench.statistics(), before);
        assert_eq!(before.census.unproven, 1);
        if let Some(grant) = lease {
            bench.settle(grant.lease, Outcome::Completed);
            assert_eq!(bench.backend("e0").health, Health::Unproven);
        }
    }
}
