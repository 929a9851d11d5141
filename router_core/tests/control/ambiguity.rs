//! 6.2: an unclear failure stops the pool, or waits to be resolved; nothing uncertain runs twice.

use crate::desk::{Desk, code, resolving, seconds, strict};
use router_core::config::{OnAmbiguous, PoolConfig};
use router_core::error::Error;
use router_core::health::Health;
use router_core::lease::{Outcome, Settled};
use router_core::state::{Cause, PoolState};

/// (a) Whether a byte was written decides: before, the request may be tried again; after, the pool fails.
#[test]
fn s62_a_before_and_after_the_first_byte() {
    let mut desk = Desk::training(strict(), 2);
    let before = desk.acquire("t", 1, "s").lease;
    desk.settle(before, Outcome::NotSent);
    assert_eq!(desk.state(), "serving");
    let after = desk.acquire("t", 2, "s");
    desk.settle(after.lease, Outcome::Ambiguous);
    let PoolState::Failed(failure) = desk.pool.state() else {
        panic!("not failed")
    };
    assert_eq!(
        failure.cause,
        Cause::Ambiguous {
            lease: after.lease,
            backend: after.backend.id.clone()
        }
    );
}

/// (b) The end and the timeout in the same instant: whichever is told first counts, and only that.
#[test]
fn s62_b_exactly_one_outcome() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);
    assert_eq!(code(desk.try_settle(lease, Outcome::Ambiguous)), "outcome_conflict");
    assert_eq!(desk.state(), "serving");

    let lease = desk.acquire("t", 2, "s").lease;
    desk.settle(lease, Outcome::Ambiguous);
    assert_eq!(code(desk.try_settle(lease, Outcome::Completed)), "outcome_conflict");
    assert_eq!((desk.state(), desk.outstanding()), ("failed", 0));
}

/// (c) Other executions end as they end; the pool stays failed, and says the first cause.
#[test]
fn s62_c_others_settle_in_a_failed_pool() {
    let mut desk = Desk::training(strict(), 2);
    let (bad, good) = (desk.acquire("t", 1, "a").lease, desk.acquire("t", 2, "b").lease);
    desk.settle(bad, Outcome::Ambiguous);
    let first = desk.pool.state();
    desk.settle(good, Outcome::Completed);
    assert_eq!((desk.pool.state(), desk.outstanding()), (first, 0));
    assert!(desk.pool.close_sender_session("t", "b", desk.now).expect("known").known);
}

/// (d) While a pool quiesces, an unclear end is the end of the drain at once, not at its deadline.
#[test]
fn s62_d_a_drain_ends_with_the_failure() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    desk.drain("u").expect("not yet");
    let revision = desk.pool.revision();
    desk.settle(lease, Outcome::Ambiguous);
    assert!(desk.pool.revision() > revision, "whoever waits for the drain is woken");
    assert_eq!(code(desk.drain("u")), "pool_failed");
    assert_eq!(
        desk.control().last_updates.last().expect("kept").phase.as_str(),
        "failed"
    );
}

/// (e) After the owner closed the pool, what ends badly is no failure.
#[test]
fn s62_e_nothing_fails_after_close() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.pool.close(desk.now);
    desk.settle(lease, Outcome::Ambiguous);
    desk.pool.fail("too late", desk.now);
    assert_eq!((desk.state(), desk.outstanding()), ("closed", 0));
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "pool_closed");
}

/// (f) Told twice it is one failure; a second one is counted and changes nothing.
#[test]
fn s62_f_the_first_failure_counts() {
    let mut desk = Desk::training(strict(), 2);
    let (one, other) = (desk.acquire("t", 1, "a").lease, desk.acquire("t", 2, "b").lease);
    desk.settle(one, Outcome::Ambiguous);
    let first = desk.pool.state();
    assert!(desk.try_settle(one, Outcome::Ambiguous).expect("the same").already);
    assert_eq!(desk.control().later_failures, 0);
    desk.settle(other, Outcome::Ambiguous);
    assert_eq!((desk.pool.state(), desk.control().later_failures), (first, 1));
}

/// (g) A client that died after the whole answer and before its settlement: uncertain, when its time is up.
#[test]
fn s62_g_death_before_the_settlement() {
    let mut desk = Desk::training(strict(), 1);
    desk.acquire("t", 1, "s");
    desk.pass(120);
    assert_eq!((desk.state(), desk.outstanding()), ("serving", 1));
    desk.pass(1);
    let PoolState::Failed(failure) = desk.pool.state() else {
        panic!("not failed")
    };
    assert_eq!(
        failure.cause,
        Cause::SenderLost {
            sender: "t".to_owned(),
            leases: 1
        }
    );
}

/// (h) A request that an engine's gate holds for the whole pause stays counted for as long, and its late completion is
/// an ordinary one.
#[test]
fn s62_h_gate_held_requests_stay_counted() {
    let config = PoolConfig {
        on_drain_timeout: router_core::config::OnDrainTimeout::Report,
        ..strict()
    };
    let mut desk = Desk::training(config, 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    for _ in 0..120 {
        desk.pass(60);
        desk.heartbeat("t", &[]);
        desk.heartbeat("v", &[]);
    }
    assert_eq!((desk.state(), desk.outstanding()), ("quiescing", 1));
    desk.settle(lease, Outcome::Completed);
    assert_eq!(desk.state(), "drained");
}

/// (i) Cut short and refused are different outcomes, and neither is a failure of anything.
#[test]
fn s62_i_aborted_and_rejected_are_no_failures() {
    for outcome in [Outcome::Aborted, Outcome::Rejected] {
        let mut desk = Desk::training(strict(), 1);
        let lease = desk.acquire("t", 1, "s").lease;
        desk.settle(lease, outcome);
        assert_eq!((desk.state(), desk.backend("e0").health), ("serving", Health::Up));
    }
}

/// (j) An engine's own 503 is over and counts against its health; one from in between is uncertain.
#[test]
fn s62_j_failed_is_not_ambiguous() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Failed);
    assert_eq!((desk.state(), desk.backend("e0").health), ("serving", Health::Suspect));
    let lease = desk.acquire("t", 2, "s").lease;
    desk.settle(lease, Outcome::Ambiguous);
    assert_eq!(desk.state(), "failed");
}

/// (k) The second turn of a trajectory fails unclearly after the first gave tokens: nothing of it goes on.
#[test]
fn s62_k_a_later_turn_fails_the_trajectory() {
    let mut desk = Desk::training(strict(), 2);
    let first = desk.acquire("t", 1, "s").lease;
    desk.settle(first, Outcome::Completed);
    let second = desk.acquire("t", 2, "s").lease;
    desk.settle(second, Outcome::Ambiguous);
    assert_eq!(code(desk.try_acquire("t", 3, "s")), "pool_failed");
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "request_settled");
}

/// Failed is absorbing: nothing that opens a pool opens this one, and settling and closing still work.
#[test]
fn s62_failed_is_absorbing() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    desk.pool.fail("by the controller", desk.now);
    let failed = desk.pool.state();
    assert_eq!(code(desk.begin("u2")), "pool_failed");
    assert_eq!(code(desk.publish("u", 1)), "pool_failed");
    assert_eq!(code(desk.resume("u")), "pool_failed");
    assert_eq!(code(desk.pool.cancel_update("u", desk.now)), "pool_failed");
    assert_eq!(code(desk.pool.unfence("train", "x", None, desk.now)), "pool_failed");
    assert_eq!(code(desk.pool.ack("train", 1, desk.now)), "pool_failed");
    assert_eq!(code(desk.attach_as("late", "1", "train")), "pool_failed");
    desk.fence("train", "still possible");
    desk.pool.close(desk.now);
    desk.settle(lease, Outcome::Completed);
    assert_eq!(desk.pool.state(), failed);
}

/// Whoever is parked when the pool fails is told so, and so is whoever comes later.
#[test]
fn s62_parked_acquires_fail_with_the_pool() {
    let mut desk = Desk::training(strict(), 1);
    let bad = desk.acquire("v", 1, "s").lease;
    desk.fence("train", "pause");
    let tickets = [desk.park("t", 1, "a").ticket, desk.park("t", 2, "b").ticket];
    desk.settle(bad, Outcome::Ambiguous);
    assert_eq!(desk.pool.take_wakes(), tickets);
    for ticket in tickets {
        let error = desk.claim(ticket).expect_err("failed");
        assert_eq!((error.code(), error.retryable()), ("pool_failed", false));
    }
    assert_eq!(desk.control().waiters, 0);
}

/// With `resolve`, an unclear execution stays counted until the engine is known not to run it, and the pool goes on.
#[test]
fn resolve_keeps_the_lease_counted() {
    let mut desk = Desk::training(resolving(), 2);
    let grant = desk.acquire("t", 1, "s");
    desk.settle(grant.lease, Outcome::Ambiguous);
    assert!(
        desk.try_settle(grant.lease, Outcome::Ambiguous)
            .expect("the same")
            .already
    );
    let unresolved = desk.pool.unresolved();
    assert_eq!(
        (unresolved.len(), desk.pool.unresolved().len()),
        (1, 1),
        "told as often as asked"
    );
    assert_eq!(
        (unresolved[0].lease, &unresolved[0].backend),
        (grant.lease, &grant.backend)
    );
    assert_eq!(
        (desk.state(), desk.outstanding(), desk.control().unresolved),
        ("serving", 1, 1)
    );
    assert_eq!(desk.backend(&grant.backend.id).failures, 1);

    // It holds an update up, as it may be running.
    desk.begin("u").expect("begun");
    assert_eq!(desk.state(), "quiescing");
    desk.settle(grant.lease, Outcome::Lost);
    assert_eq!((desk.state(), desk.control().unresolved), ("drained", 0));
    assert_eq!(desk.statistics().outcomes.get(Outcome::Lost), 1);
    // Whoever said "ambiguous" is told what became of it; "completed" comes too late.
    let lost = Settled {
        outcome: Outcome::Lost,
        already: true,
    };
    assert_eq!(desk.try_settle(grant.lease, Outcome::Ambiguous), Ok(lost));
    assert_eq!(
        code(desk.try_settle(grant.lease, Outcome::Completed)),
        "outcome_conflict"
    );
}

/// With `resolve`, the true end may still be told; nothing else can be "lost".
#[test]
fn resolve_takes_the_true_end() {
    let mut desk = Desk::training(resolving(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    assert_eq!(code(desk.try_settle(lease, Outcome::Lost)), "invalid_transition");
    desk.settle(lease, Outcome::Ambiguous);
    desk.settle(lease, Outcome::Completed);
    assert_eq!((desk.outstanding(), desk.control().unresolved), (0, 0));
}

/// By default an unclear end is counted and over, as in a pool that nobody updates.
#[test]
fn settle_is_the_default() {
    let mut desk = Desk::training(PoolConfig::default(), 1);
    assert_eq!(desk.pool.config().on_ambiguous, OnAmbiguous::Settle);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Ambiguous);
    assert_eq!((desk.state(), desk.outstanding()), ("serving", 0));
    desk.advance(seconds(1));
    let error = desk.try_settle(lease, Outcome::Completed);
    assert_eq!(
        error,
        Err(Error::OutcomeConflict {
            recorded: Outcome::Ambiguous,
            reported: Outcome::Completed
        })
    );
}

/// A backend that is held back gets nothing more, its sessions move, and it serves again once everything on it is
/// resolved; without anything unresolved nothing is held back.
#[test]
fn resolve_can_hold_a_backend_back() {
    let mut desk = Desk::training(resolving(), 2);
    let (one, two) = (desk.acquire("t", 1, "s"), desk.acquire("t", 2, "s"));
    assert_eq!(one.backend, two.backend, "one session");
    let backend = one.backend.reference;
    desk.pool.hold_back(backend, desk.now);
    assert_eq!(desk.pool.census().eligible, 2);
    desk.settle(one.lease, Outcome::Ambiguous);
    desk.settle(two.lease, Outcome::Ambiguous);
    desk.pool.hold_back(backend, desk.now);
    let census = desk.pool.census();
    assert_eq!((census.eligible, census.draining), (1, 1));
    assert!(desk.backend(&one.backend.id).draining);
    assert_eq!(desk.backend(&one.backend.id).unresolved, 2);
    let moved = desk.acquire("t", 3, "s");
    assert_ne!(moved.backend, one.backend);
    assert_eq!(moved.reason.as_str(), "repin:draining");
    desk.settle(one.lease, Outcome::Lost);
    assert_eq!(desk.pool.census().eligible, 1, "one is left");
    desk.settle(two.lease, Outcome::Completed);
    assert_eq!(desk.pool.census().eligible, 2);
    let told: Vec<String> = desk
        .pool
        .take_events()
        .0
        .iter()
        .map(|event| event.kind.to_string())
        .collect();
    assert!(
        told.iter()
            .any(|line| line.contains("gets nothing more until it is known how 2 executions"))
    );
    assert_eq!(told.iter().filter(|line| line.contains("serves again")).count(), 1);
}

/// Whoever waits for a backend that was held back is served when it is released.
#[test]
fn a_released_backend_serves_those_who_wait() {
    let mut desk = Desk::training(resolving(), 1);
    let grant = desk.acquire("t", 1, "s");
    desk.settle(grant.lease, Outcome::Ambiguous);
    desk.pool.hold_back(grant.backend.reference, desk.now);
    let ticket = desk.park("t", 2, "s").ticket;
    desk.settle(grant.lease, Outcome::Lost);
    assert_eq!(desk.claim(ticket).expect("granted").backend, grant.backend);
}
