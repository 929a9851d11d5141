use super::{Ticket, Waiter, Waiters};
use crate::error::Error;
use crate::time::Timestamp;

fn waiter(owner: u32) -> Waiter {
    Waiter {
        owner,
        namespace: 0,
        session: None,
        hold: None,
        exclude: Box::default(),
        request: None,
        expect_version: None,
        fingerprint: None,
        deadline: Timestamp::MAX,
        why: Error::PoolClosed,
        since: Timestamp::ZERO,
        calls: 1,
        answer: None,
        told: false,
    }
}

fn heads(waiters: &mut Waiters, owner: u32) -> Vec<Ticket> {
    let mut order = Vec::new();
    while let Some((_, ticket)) = waiters.head(owner) {
        order.push(ticket);
        waiters.answer(ticket, Err(Error::PoolClosed));
    }
    order
}

/// Each owner has its own order of arrival; whoever leaves from anywhere leaves the rest in order.
#[test]
fn queues_keep_their_order() {
    let mut waiters = Waiters::default();
    let tickets: Vec<Ticket> = (0..12).map(|number| waiters.park(waiter(number % 2))).collect();
    for gone in [0, 6, 10] {
        assert!(waiters.remove(tickets[gone]).is_some());
        assert!(waiters.remove(tickets[gone]).is_none());
    }
    assert_eq!(
        (waiters.queued_of(0), waiters.queued_of(1), waiters.queued()),
        (3, 6, 9)
    );
    assert!(waiters.head(0) < waiters.head(1).map(|(arrival, ticket)| (arrival + 2, ticket)));
    assert_eq!(heads(&mut waiters, 0), [tickets[2], tickets[4], tickets[8]]);
    let last = waiters.park(waiter(0));
    assert_eq!(heads(&mut waiters, 0), [last]);
    assert_eq!(waiters.queued(), 6);
}

/// The answered ones are woken once, in the order of their answers, and stay until their calls have left.
#[test]
fn answers_wait_to_be_claimed() {
    let mut waiters = Waiters::default();
    let tickets: Vec<Ticket> = (0..3).map(|_| waiters.park(waiter(0))).collect();
    waiters.answer(tickets[1], Err(Error::PoolClosed));
    waiters.answer(tickets[0], Err(Error::SessionClosed));
    assert!(waiters.has_wakes());
    assert_eq!(waiters.take_wakes(), [tickets[1], tickets[0]]);
    assert!(!waiters.has_wakes());
    assert_eq!(
        waiters.get(tickets[0]).and_then(|waiter| waiter.answer.clone()),
        Some(Err(Error::SessionClosed))
    );
    assert_eq!((waiters.len(), waiters.queued()), (3, 1));
    waiters.remove(tickets[0]);
    assert_eq!((waiters.len(), waiters.queued()), (2, 1));
}
