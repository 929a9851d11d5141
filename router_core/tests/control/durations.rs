//! How long things took, as the pool measures it.

use crate::desk::{Desk, seconds, strict};
use router_core::durations::UpdateStep;
use router_core::histogram::Histogram;
use router_core::lease::Outcome;
use router_core::update::UpdateKind;
use router_core::waiters::ParkReason;
use std::time::Duration;

/// How many durations, and their sum in seconds.
fn sums(histogram: &Histogram) -> (u64, u64) {
    (histogram.count(), histogram.sum().as_secs())
}

/// The age of a lease at its settlement is counted by the outcome.
#[test]
fn leases_are_timed_by_outcome() {
    let mut desk = Desk::training(strict(), 1);
    let one = desk.acquire("t", 1, "a").lease;
    let other = desk.acquire("t", 2, "b").lease;
    desk.advance(seconds(3));
    desk.settle(one, Outcome::Completed);
    desk.advance(seconds(4));
    desk.settle(other, Outcome::Aborted);
    // The same report again is no second end.
    desk.try_settle(other, Outcome::Aborted).expect("settled before");
    let durations = desk.statistics().durations;
    assert_eq!(sums(durations.lease(Outcome::Completed)), (1, 3));
    assert_eq!(sums(durations.lease(Outcome::Aborted)), (1, 7));
    assert_eq!(sums(durations.lease(Outcome::Failed)), (0, 0));
}

/// Every grant counts: those at once as nothing, those after a wait with its length.
#[test]
fn grants_are_timed() {
    let mut desk = Desk::training(strict(), 1);
    desk.acquire("t", 1, "a");
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 2, "b", ParkReason::Fenced);
    assert_eq!(sums(desk.statistics().durations.acquire()), (1, 0));
    desk.advance(seconds(5));
    desk.unfence("train", "pause");
    desk.claim(ticket).expect("granted");
    let acquire = desk.statistics().durations.acquire().clone();
    assert_eq!(sums(&acquire), (2, 5));
    assert_eq!(acquire.cumulative()[0], 1);
}

/// Each step of an update has its time; they add up, and the pause of the servers overlaps them.
#[test]
fn updates_are_timed_by_step() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "a").lease;
    desk.begin("u").expect("begun");
    desk.advance(seconds(2));
    desk.settle(lease, Outcome::Aborted);
    desk.advance(seconds(1));
    desk.drain("u").expect("drained");
    desk.advance(seconds(10));
    desk.publish("u", 1).expect("published");
    desk.advance(seconds(1));
    desk.resume("u").expect("resumed");
    let durations = desk.statistics().durations;
    let steps = UpdateStep::ALL.map(|step| (step.as_str(), sums(durations.update(UpdateKind::Weights, step)).1));
    assert_eq!(
        steps,
        [
            ("quiesce", 2),
            ("confirm", 1),
            ("transfer", 10),
            ("pause", 14),
            ("total", 13)
        ]
    );
    assert_eq!(sums(durations.drain()), (1, 3));
    assert_eq!(
        sums(durations.update(UpdateKind::Offload, UpdateStep::Total)),
        (0, 0),
        "an offload lasts as long as somebody else needs the memory: it is told apart"
    );
}

/// Waiters are shown by what they wait for now, which may be something else than when they came.
#[test]
fn waiters_are_counted_by_their_present_reason() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    desk.park("t", 1, "a");
    desk.park("t", 2, "b");
    let waiting = |desk: &Desk| {
        let counts = desk.control().waiting;
        ParkReason::ALL.map(|reason| counts.get(reason))
    };
    assert_eq!(waiting(&desk), [2, 0, 0, 0, 0]);
    desk.begin("u").expect("begun");
    desk.unfence("train", "pause");
    assert_eq!(waiting(&desk), [0, 2, 0, 0, 0]);
}

/// A repeated call is counted by what it asked for.
#[test]
fn repeated_calls_are_counted() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "a").lease;
    desk.acquire("t", 1, "a");
    desk.settle(lease, Outcome::Completed);
    desk.try_settle(lease, Outcome::Completed).expect("settled before");
    desk.try_settle(lease, Outcome::Failed)
        .expect_err("a conflict is no replay");
    desk.begin("u").expect("begun");
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    desk.drain("u").expect("drained");
    let replays = desk.control().replays;
    assert_eq!((replays.acquires, replays.settlements, replays.updates), (1, 1, 2));
}

/// The budget of a backend is used up while it is unhealthy and watched, and whole again once it is well.
#[test]
fn the_use_of_the_health_budget_is_shown() {
    let mut desk = Desk::training(strict(), 1);
    let engine = desk.reference("e0");
    desk.pass(1);
    assert_eq!(desk.backend("e0").unhealthy, Duration::ZERO);
    let now = desk.now;
    desk.pool.report_probe(engine, false, now);
    desk.pass(2);
    assert_eq!(desk.backend("e0").unhealthy, seconds(2));
    let now = desk.now;
    desk.pool.report_probe(engine, true, now);
    assert_eq!(desk.backend("e0").unhealthy, Duration::ZERO);
}
