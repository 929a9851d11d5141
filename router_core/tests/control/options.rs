//! Load signals, and the options that are off by default.

use crate::desk::{Desk, seconds};
use router_core::config::PoolConfig;
use router_core::lease::Outcome;
use router_core::load::LoadSignal;
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, PickReason, RepinReason};

fn unequal(load: LoadSignal) -> Desk {
    let config = PoolConfig {
        load,
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 0);
    for (port, capacity) in [(1, 1.0), (2, 4.0)] {
        let spec = BackendSpec::parse(&format!("h:{port}"), capacity).expect("valid");
        desk.pool.add_backend(spec, desk.now).expect("new");
    }
    desk
}

fn picks(desk: &mut Desk, count: usize) -> Vec<u16> {
    let mut pick = || {
        desk.pool
            .acquire(&AcquireRequest::unpinned(), desk.now)
            .expect("granted")
    };
    (0..count).map(|_| pick().backend.address.port()).collect()
}

/// Plain ratios tie when both are empty, and then the least recently chosen goes first; the default looks one ahead.
#[test]
fn plain_and_default_differ_when_empty() {
    assert_eq!(picks(&mut unequal(LoadSignal::Outstanding), 6), [2, 2, 2, 2, 1, 2]);
    // 0 against 0, then 1 against 0, 1/4, 2/4, 3/4, and at 1 against 4/4 the one with fewer sessions per capacity.
    assert_eq!(picks(&mut unequal(LoadSignal::Plain), 6), [2, 1, 2, 2, 2, 2]);
}

/// Both end at the ratio of the capacities.
#[test]
fn i8_every_signal_follows_capacity() {
    for load in [
        LoadSignal::Outstanding,
        LoadSignal::Plain,
        LoadSignal::OutstandingAndSessions { millionths: 500_000 },
    ] {
        let mut desk = unequal(load);
        let small = picks(&mut desk, 1000).iter().filter(|port| **port == 1).count();
        assert!(small.abs_diff(200) <= 1, "{load:?}: {small}");
    }
}

/// An idle session counts as a part of the execution that will come back.
#[test]
fn idle_sessions_can_count() {
    let config = PoolConfig {
        load: LoadSignal::OutstandingAndSessions { millionths: 250_000 },
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    for number in 0..9 {
        let lease = desk.acquire_plain(&format!("s{number}")).lease;
        desk.settle(lease, Outcome::Completed);
    }
    desk.add(1);
    // Nine idle ones are 2.25 executions: two go to the other before they are even.
    let go = |desk: &mut Desk| {
        desk.pool
            .acquire(&AcquireRequest::unpinned(), desk.now)
            .expect("granted")
    };
    let order: Vec<String> = (0..5).map(|_| go(&mut desk).backend.id.clone()).collect();
    assert_eq!(order, ["e1", "e1", "e1", "e0", "e1"]);
    // A turn of one of them makes it busy, a close takes it away.
    desk.acquire_plain("s0");
    desk.pool.close_session("s1", desk.now);
    assert_eq!(desk.backend("e0").sessions, 8);
}

/// With `rebind_on_publish`, an idle session is placed anew at its first turn after a publication, and only then.
#[test]
fn sessions_rebind_after_a_publication() {
    let config = PoolConfig {
        rebind_on_publish: true,
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    for session in ["a", "b"] {
        let lease = desk.acquire_plain(session).lease;
        desk.settle(lease, Outcome::Completed);
    }
    desk.publish("first", 0).expect("published");
    let spec = Desk::spec(1).with_weight_version(0);
    desk.pool.add_backend(spec, desk.now).expect("new");
    desk.advance(seconds(1));
    let moved = desk.acquire_plain("a");
    assert_eq!(
        (moved.reason, &*moved.backend.id),
        (PickReason::Repin(RepinReason::Published), "e1")
    );
    desk.settle(moved.lease, Outcome::Completed);
    assert_eq!(desk.acquire_plain("a").reason, PickReason::Sticky);
    let stays = desk.acquire_plain("b");
    assert_eq!((stays.reason, &*stays.backend.id), (PickReason::Sticky, "e0"));
    desk.settle(stays.lease, Outcome::Completed);
    desk.acquire_plain("busy");
    assert_eq!(desk.acquire_plain("b").reason, PickReason::Sticky, "it had its choice");
}
