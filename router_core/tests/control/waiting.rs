//! Parked acquires: order, deadlines, reasons, caps.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::PoolConfig;
use router_core::error::Error;
use router_core::lease::Outcome;
use router_core::pool::{AcquireRequest, PickReason};
use router_core::time::Timestamp;
use router_core::waiters::{Acquisition, ParkReason, Ticket};

/// Whoever waits is served in order of arrival.
#[test]
fn waiters_are_served_in_order() {
    let mut desk = Desk::training(strict(), 4);
    desk.fence("train", "pause");
    let tickets: Vec<Ticket> = (0..1000)
        .map(|seq| desk.park("t", seq, &format!("s{seq}")).ticket)
        .collect();
    desk.unfence("train", "pause");
    assert_eq!(desk.pool.take_wakes(), tickets);
    let leases: Vec<_> = tickets
        .iter()
        .map(|ticket| desk.claim(*ticket).expect("granted"))
        .collect();
    assert!(leases.windows(2).all(|pair| pair[0].lease < pair[1].lease));
    assert_eq!((desk.outstanding(), desk.backend("e3").outstanding), (1000, 250));
}

/// At capacity, each settlement lets one in: the one who has waited longest, whatever its owner, and nobody overtakes.
#[test]
fn capacity_goes_to_the_longest_waiting() {
    let config = PoolConfig {
        max_outstanding: Some(2),
        ..strict()
    };
    let mut desk = Desk::training(config, 2);
    let running = [desk.acquire("t", 0, "a").lease, desk.acquire("v", 0, "b").lease];
    let first = desk.park_for("v", 1, "c", ParkReason::AtCapacity);
    let second = desk.park_for("t", 1, "d", ParkReason::AtCapacity);
    let third = desk.park_for("v", 2, "e", ParkReason::AtCapacity);
    desk.settle(running[0], Outcome::Completed);
    assert_eq!(desk.pool.take_wakes(), [first]);
    assert_eq!(code(desk.try_acquire("t", 2, "f")), "at_capacity");
    desk.settle(running[1], Outcome::Completed);
    assert_eq!(desk.pool.take_wakes(), [second]);
    let lease = desk.claim(first).expect("granted").lease;
    desk.fence("eval", "pause");
    desk.settle(lease, Outcome::Completed);
    assert!(!desk.pool.has_wakes());
    desk.unfence("eval", "pause");
    assert_eq!(desk.pool.take_wakes(), [third]);
}

/// A fenced owner's queue does not hold up the others.
#[test]
fn owners_wait_apart() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.begin("u").expect("begun");
    let eval = desk.park_for("v", 1, "s", ParkReason::NotServing);
    desk.pool.cancel_update("u", desk.now).expect("cancelled");
    desk.resume("u").expect("resumed");
    assert_eq!(desk.pool.take_wakes(), [eval]);
    let owners = desk.control().owners;
    assert_eq!(owners.iter().map(|owner| owner.parked).collect::<Vec<_>>(), [0, 1, 0]);
}

/// At its deadline a call is told what it waited for; an overdue one is never granted; nothing is left of either.
#[test]
fn deadlines_are_kept() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let (first, second) = (desk.park("t", 1, "s"), desk.park("t", 2, "s"));
    assert_eq!(first.deadline, desk.now.after(seconds(60)));
    assert!(desk.pool.claim(first.ticket, desk.now).is_none());
    desk.advance(seconds(60));
    let Err(Error::Fenced { reasons, .. }) = desk.pool.give_up(first.ticket, desk.now) else {
        panic!("not fenced")
    };
    assert_eq!(reasons, ["pause"]);
    desk.unfence("train", "pause");
    assert_eq!(code(desk.claim(second.ticket)), "fenced");
    assert_eq!((desk.outstanding(), desk.control().waiters), (0, 0));
    // The keys are free again.
    desk.acquire("t", 1, "s");
    desk.acquire("t", 2, "s");
}

/// A grant that races with the deadline is taken.
#[test]
fn a_grant_at_the_deadline_is_taken() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let parked = desk.park("t", 1, "s");
    desk.advance(seconds(59));
    desk.unfence("train", "pause");
    desk.advance(seconds(1));
    desk.pool.give_up(parked.ticket, desk.now).expect("granted");
}

/// The reason is that of the moment: whoever waited for a fence may end up waiting for an acknowledgement.
#[test]
fn reasons_change_while_waiting() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.update("u", 1);
    desk.unfence("train", "pause");
    assert_eq!(code(desk.pool.give_up(ticket, desk.now)), "version_not_acked");
}

/// One of two calls with the same key gives up: the other waits on. When the last is gone, so is the request.
#[test]
fn calls_of_one_request_leave_one_by_one() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let ticket = desk.park("t", 1, "s").ticket;
    desk.advance(seconds(30));
    let joined = desk.park("t", 1, "s");
    assert_eq!((joined.ticket, joined.deadline), (ticket, desk.now.after(seconds(60))));
    desk.advance(seconds(30));
    assert_eq!(code(desk.pool.give_up(ticket, desk.now)), "fenced");
    assert_eq!(desk.control().waiters, 1);
    desk.unfence("train", "pause");
    desk.claim(ticket).expect("the later deadline counts");
}

/// A joined request keeps its place.
#[test]
fn joining_keeps_the_place() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let (first, second) = (desk.park("t", 1, "a").ticket, desk.park("t", 2, "b").ticket);
    desk.park("t", 1, "a");
    desk.unfence("train", "pause");
    assert_eq!(desk.pool.take_wakes(), [first, second]);
}

/// Without time to wait, and at the cap, the answer comes at once; so it does where waiting cannot help.
#[test]
fn not_everybody_may_wait() {
    let config = PoolConfig {
        waiter_cap: 1,
        ..strict()
    };
    let mut desk = Desk::training(config, 1);
    desk.fence("train", "pause");
    let request = AcquireRequest::for_session("s").keyed(Desk::key("t", 1));
    let at_once = desk.pool.acquire_or_park(&request, desk.now, desk.now);
    assert_eq!(code(at_once), "fenced");
    desk.park("t", 1, "s");
    let full = desk.try_park("t", 2, "s").expect_err("full");
    assert_eq!((full.code(), full.retryable()), ("too_many_waiters", true));
    // Another call of the parked one is not another one.
    desk.park("t", 1, "s");
    assert_eq!(code(desk.try_park("t", 1, "other")), "idempotency_conflict");
    assert_eq!(code(desk.try_acquire("t", 1, "s")), "fenced");

    let everybody = [desk.reference("e0")];
    let picky = AcquireRequest::unpinned().excluding(&everybody);
    let refused = desk.pool.acquire_or_park(&picky, Timestamp::MAX, desk.now);
    assert_eq!(code(refused), "no_eligible_backend");
}

fn queued(desk: &mut Desk, session: &str) -> Result<Acquisition, Error> {
    let request = AcquireRequest::for_session(session);
    desk.pool.acquire_or_queue(&request, desk.now)
}

fn ticket_of(acquired: Result<Acquisition, Error>) -> Ticket {
    match acquired {
        Ok(Acquisition::Parked(parked)) => parked.ticket,
        other => panic!("not queued: {other:?}"),
    }
}

fn one_place(queue_size: u32) -> PoolConfig {
    PoolConfig {
        max_outstanding: Some(1),
        queue_size,
        queue_timeout: Some(seconds(5)),
        ..PoolConfig::default()
    }
}

/// While all places are taken a request queues for the pool's own time, in order; more than `queue_size` do not, and
/// whoever is cancelled has left the queue, so that the next one finds room (B84).
#[test]
fn b84_queueing_for_a_place() {
    let mut desk = Desk::new(one_place(2), 1);
    let running = desk.acquire_plain("a").lease;
    let first = ticket_of(queued(&mut desk, "b"));
    let second = ticket_of(queued(&mut desk, "c"));
    let full = queued(&mut desk, "d").expect_err("full");
    assert_eq!((full.code(), full.retryable()), ("too_many_waiters", true));
    desk.pool.abandon(first, desk.now);
    assert_eq!(desk.control().waiters, 1);
    let third = ticket_of(queued(&mut desk, "d"));
    desk.settle(running, Outcome::Completed);
    assert_eq!(desk.pool.take_wakes(), [second]);
    desk.advance(seconds(5));
    assert_eq!(code(desk.pool.give_up(third, desk.now)), "at_capacity");
    assert_eq!(desk.control().waiters, 0);
}

/// Only a place is queued for: what else is in the way refuses at once, or keeps those waiting who queue already.
#[test]
fn the_queue_is_for_places() {
    let mut desk = Desk::new(one_place(8), 1);
    desk.fence("default", "pause");
    assert_eq!(code(queued(&mut desk, "a")), "fenced");
    desk.unfence("default", "pause");
    let running = desk.acquire_plain("a").lease;
    let ticket = ticket_of(queued(&mut desk, "b"));
    desk.fence("default", "pause");
    desk.settle(running, Outcome::Completed);
    assert!(!desk.pool.has_wakes());
    desk.unfence("default", "pause");
    assert_eq!(desk.pool.take_wakes(), [ticket]);
}

/// Those who say themselves how long they wait queue with the others, and count; those who wait for something else do
/// not take their places.
#[test]
fn everybody_who_waits_for_a_place_counts() {
    let mut desk = Desk::new(one_place(1), 1);
    desk.attach("t", "train");
    let running = desk.acquire_plain("a").lease;
    desk.fence("train", "pause");
    desk.park_for("t", 1, "s", ParkReason::Fenced);
    let queued_one = ticket_of(queued(&mut desk, "b"));
    let patient = AcquireRequest::for_session("c");
    let refused = desk.pool.acquire_or_park(&patient, Timestamp::MAX, desk.now);
    assert_eq!(code(refused), "too_many_waiters");
    desk.settle(running, Outcome::Completed);
    assert_eq!(desk.pool.take_wakes(), [queued_one]);
}

/// A request that is refused takes nothing with it: neither a place, nor a session, nor a place in the queue (B98).
#[test]
fn b98_a_refused_request_consumes_nothing() {
    let mut desk = Desk::new(one_place(0), 1);
    let running = desk.acquire_plain("a").lease;
    let before = desk.pool.statistics();
    for _ in 0..3 {
        assert_eq!(code(queued(&mut desk, "b")), "too_many_waiters");
        assert_eq!(
            code(desk.pool.acquire(&AcquireRequest::for_session("b"), desk.now)),
            "at_capacity"
        );
    }
    assert_eq!(desk.pool.statistics(), before);
    desk.settle(running, Outcome::Completed);
    let granted = queued(&mut desk, "c");
    assert!(matches!(granted, Ok(Acquisition::Granted(_))), "{granted:?}");
}

/// Without a sender one waits as well, and the first backend that comes serves.
#[test]
fn waiting_for_a_backend() {
    let mut desk = Desk::new(PoolConfig::default(), 0);
    let request = AcquireRequest::for_session("s");
    let deadline = desk.now.after(seconds(60));
    let parked = desk.pool.acquire_or_park(&request, deadline, desk.now).expect("waits");
    let Acquisition::Parked(parked) = parked else {
        panic!("granted")
    };
    assert_eq!(parked.reason, ParkReason::NoEligibleBackend);
    desk.add(0);
    let grant = desk.claim(parked.ticket).expect("granted");
    assert_eq!((grant.reason, &*grant.backend.id), (PickReason::New, "e0"));
    assert_eq!(desk.control().parked.get(ParkReason::NoEligibleBackend), 1);
}

/// A ticket is good for one answer per call.
#[test]
fn tickets_are_used_up() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let ticket = desk.park("t", 1, "s").ticket;
    desk.unfence("train", "pause");
    let grant = desk.claim(ticket).expect("granted");
    assert_eq!(code(desk.claim(ticket)), "unknown_lease");
    desk.pool.abandon(ticket, desk.now);
    assert_eq!(desk.outstanding(), 1);
    desk.settle(grant.lease, Outcome::Completed);
}
