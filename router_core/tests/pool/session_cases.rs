//! The public bug cases about sessions, by number: each is a way in which other routers lost or kept a pin wrongly.

use crate::support::Bench;
use router_core::lease::Outcome;
use router_core::pool::{ClosedSession, PickReason, PoolConfig, RepinReason};
use router_core::time::Timestamp;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

fn config() -> PoolConfig {
    PoolConfig {
        session_ttl: TTL,
        ..PoolConfig::default()
    }
}

/// Pins a session to `e0` of two, makes `e0` unusable, brings it back; the session must move once and stay.
fn b13(why: RepinReason, spoil: impl FnOnce(&mut Bench), restore: impl FnOnce(&mut Bench)) {
    let mut bench = Bench::new(config(), &[1.0]);
    assert_eq!(bench.turn("s1"), "e0");
    bench.add(1, 1.0);
    let running = bench.acquire("s1");
    assert_eq!(running.backend.id, "e0");
    spoil(&mut bench);

    let moved = bench.acquire("s1");
    assert_eq!(
        (moved.backend.id.as_str(), moved.reason),
        ("e1", PickReason::Repin(why))
    );
    assert_eq!(bench.statistics().picks.get(PickReason::Repin(why)), 1);
    // The turn that was running ends where it began.
    bench.settle(running.lease, Outcome::Completed);
    bench.settle(moved.lease, Outcome::Completed);

    restore(&mut bench);
    assert!(bench.backend("e0").eligible);
    let stayed = bench.acquire("s1");
    assert_eq!((stayed.backend.id.as_str(), stayed.reason), ("e1", PickReason::Sticky));
    assert_eq!(bench.statistics().sessions, 1);
    assert_eq!((bench.backend("e0").sessions, bench.backend("e1").sessions), (0, 1));
}

/// B13: a pin to a dead backend.
#[test]
fn b13_sessions_leave_a_dead_backend_and_stay_away() {
    b13(
        RepinReason::Down,
        |bench| bench.bring_down("e0"),
        |bench| bench.pool.report_probe(bench.reference("e0"), true, bench.now),
    );
}

/// B13: a pin to a removed backend, which comes back as another incarnation.
#[test]
fn b13_sessions_leave_a_removed_backend_and_stay_away() {
    b13(
        RepinReason::Removed,
        |bench| assert_eq!(bench.remove("e0"), 1),
        |bench| drop(bench.add(0, 1.0)),
    );
}

/// B13: a pin to a draining backend; the running turn finishes, the next one moves.
#[test]
fn b13_sessions_leave_a_draining_backend_and_stay_away() {
    b13(
        RepinReason::Draining,
        |bench| assert_eq!(bench.drain("e0"), 1),
        |bench| {
            bench.remove("e0");
            bench.add(0, 1.0);
        },
    );
}

/// B13: a pin to a backend that was tried for this execution and did not answer.
#[test]
fn b13_sessions_leave_an_excluded_backend_and_stay_away() {
    let mut bench = Bench::new(config(), &[1.0, 1.0]);
    let tried = bench.acquire("s1");
    bench.settle(tried.lease, Outcome::NotSent);
    let moved = bench
        .try_acquire(Some("s1"), &[tried.backend.reference])
        .expect("one is left");
    assert_eq!(moved.reason, PickReason::Repin(RepinReason::Excluded));
    assert_ne!(moved.backend.id, tried.backend.id);
    assert_eq!(bench.turn("s1"), moved.backend.id);
}

/// B13: when nobody can take the session, nothing changes, and the pin is there when its backend comes back.
#[test]
fn b13_a_refused_turn_keeps_the_pin() {
    let mut bench = Bench::new(config(), &[1.0]);
    bench.turn("s1");
    bench.bring_down("e0");
    bench.try_acquire(Some("s1"), &[]).expect_err("nobody is eligible");
    bench.pool.report_probe(bench.reference("e0"), true, bench.now);
    assert_eq!(bench.acquire("s1").reason, PickReason::Sticky);
}

/// B68: removing one of eight backends moves its sessions and no other; adding one moves none.
#[test]
fn b68_membership_changes_move_only_the_sessions_concerned() {
    let mut bench = Bench::new(config(), &[1.0; 8]);
    let keys: Vec<String> = (0..1000).map(|number| format!("s{number}")).collect();
    let before: Vec<String> = keys.iter().map(|key| bench.turn(key)).collect();
    assert_eq!(before.iter().filter(|id| *id == "e3").count(), 125);

    bench.remove("e3");
    let after: Vec<String> = keys.iter().map(|key| bench.turn(key)).collect();
    for (key, (before, after)) in keys.iter().zip(before.iter().zip(&after)) {
        assert_eq!(before != after, before == "e3", "{key} went from {before} to {after}");
    }
    bench.add(8, 1.0);
    let finally: Vec<String> = keys.iter().map(|key| bench.turn(key)).collect();
    assert_eq!(finally, after);
    assert_eq!(
        bench.statistics().picks.get(PickReason::Repin(RepinReason::Removed)),
        125
    );
}

/// B69: a million sessions that are never closed are held to the cap; the ones used last are kept.
#[test]
fn b69_the_table_has_a_cap() {
    let mut bench = Bench::new(
        PoolConfig {
            session_cap: 1000,
            ..config()
        },
        &[1.0; 4],
    );
    for number in 0..1_000_000_u32 {
        bench.turn(&number.to_string());
        assert!(number % 100_000 != 0 || bench.statistics().sessions <= 1000);
    }
    let statistics = bench.statistics();
    assert_eq!((statistics.sessions, statistics.sessions_evicted), (1000, 999_000));
    assert_eq!(
        bench.per_backend(|backend| backend.sessions.into()).iter().sum::<u64>(),
        1000
    );
    assert_eq!(bench.acquire("999000").reason, PickReason::Sticky);
    assert_eq!(bench.acquire("998999").reason, PickReason::New);
}

/// B69: the cap evicts by least recent use, not by age.
#[test]
fn b69_a_used_session_is_not_the_next_to_go() {
    let mut bench = Bench::new(
        PoolConfig {
            session_cap: 2,
            ..config()
        },
        &[1.0],
    );
    for key in ["old", "young", "old", "new"] {
        bench.turn(key);
    }
    assert_eq!(bench.acquire("old").reason, PickReason::Sticky);
    assert_eq!(bench.acquire("new").reason, PickReason::Sticky);
}

/// B69: use refreshes the time to live, however old the session is.
#[test]
fn b69_a_session_in_use_never_expires() {
    let mut bench = Bench::new(config(), &[1.0; 3]);
    let home = bench.turn("s");
    for _ in 0..20 {
        bench.advance(TTL / 2);
        bench.pool.tick(bench.now);
        // Others make `home` the worst choice, so that a lost pin would show.
        for _ in 0..2 {
            let other = bench.acquire_unpinned();
            bench.settle(other.lease, Outcome::Completed);
        }
        assert_eq!(bench.turn("s"), home);
    }
    assert_eq!(bench.statistics().picks.get(PickReason::New), 1);
}

/// B69: one long execution is use, too.
#[test]
fn b69_a_session_with_an_open_lease_never_expires() {
    let mut bench = Bench::new(config(), &[1.0; 3]);
    let long = bench.acquire("s");
    bench.advance(TTL * 10);
    bench.pool.tick(bench.now);
    assert_eq!(bench.acquire("s").reason, PickReason::Sticky);
    bench.settle(long.lease, Outcome::Completed);
}

/// B69: an idle session is forgotten after its time to live, whether or not anybody ticks.
#[test]
fn b69_idle_sessions_expire() {
    for ticked in [true, false] {
        let mut bench = Bench::new(config(), &[1.0]);
        bench.turn("s");
        bench.advance(TTL);
        assert_eq!(bench.turn("s"), "e0");
        assert_eq!(
            bench.statistics().picks.get(PickReason::Sticky),
            1,
            "not longer than the TTL"
        );
        bench.advance(TTL + Duration::from_nanos(1));
        if ticked {
            bench.pool.tick(bench.now);
            assert_eq!(bench.statistics().sessions, 0);
        }
        assert_eq!(bench.acquire("s").reason, PickReason::New);
        assert_eq!(bench.statistics().sessions_expired, 1);
    }
}

/// B69: when every session at the cap is running, further ones are served without a pin.
#[test]
fn b69_a_table_of_live_sessions_serves_others_unsticky() {
    let mut bench = Bench::new(
        PoolConfig {
            session_cap: 2,
            ..config()
        },
        &[1.0; 2],
    );
    let live = [bench.acquire("a"), bench.acquire("b")];
    let unsticky = bench.acquire("c");
    assert_eq!(unsticky.reason, PickReason::TableFull);
    assert_eq!(bench.acquire("a").reason, PickReason::Sticky);
    bench.settle(unsticky.lease, Outcome::Completed);
    assert_eq!(bench.statistics().sessions, 2);
    bench.settle(live[1].lease, Outcome::Completed);
    assert_eq!(bench.acquire("c").reason, PickReason::New);
    assert_eq!(bench.acquire("b").reason, PickReason::TableFull);
}

/// Closing a session is idempotent, ends the pin at once, and leaves its running executions alone.
#[test]
fn closing_leaves_running_executions_alone() {
    let mut bench = Bench::new(config(), &[1.0, 1.0]);
    let running = bench.acquire("s");
    assert_eq!(
        bench.pool.close_session("s", bench.now),
        ClosedSession {
            known: true,
            open_leases: 1
        }
    );
    assert_eq!(bench.pool.close_session("s", bench.now), ClosedSession::default());
    assert_eq!((bench.statistics().sessions, bench.statistics().leases), (0, 1));
    let again = bench.acquire("s");
    assert_eq!(again.reason, PickReason::New);
    assert_ne!(again.backend.id, running.backend.id);
    bench.settle(running.lease, Outcome::Completed);
    assert_eq!(bench.acquire("s").backend.id, again.backend.id);
}

/// Keys of 1 to 256 bytes are taken; others are refused, and leave nothing behind.
#[test]
fn keys_have_a_length() {
    let mut bench = Bench::new(config(), &[1.0]);
    for length in [1, 256] {
        bench.turn(&"k".repeat(length));
    }
    for length in [0, 257] {
        let refused = bench
            .try_acquire(Some(&"k".repeat(length)), &[])
            .expect_err("a bad key");
        assert_eq!(refused.code(), "invalid_request");
        assert!(!refused.retryable());
    }
    assert_eq!((bench.statistics().sessions, bench.statistics().leases), (2, 0));
}

/// A clock that runs backwards stands still: nothing expires early or late, nothing breaks.
#[test]
fn time_running_backwards_is_harmless() {
    let mut bench = Bench::new(config(), &[1.0]);
    bench.advance(TTL * 3);
    bench.turn("s");
    bench.now = Timestamp::ZERO;
    bench.turn("t");
    bench.pool.tick(bench.now);
    assert_eq!((bench.turn("s").as_str(), bench.statistics().sessions), ("e0", 2));
    bench.advance(TTL * 4);
    bench.pool.tick(bench.now);
    assert_eq!(
        bench.acquire("t").reason,
        PickReason::Sticky,
        "idle since the latest time seen"
    );
    bench.advance(TTL);
    bench.pool.tick(bench.now);
    assert_eq!(bench.statistics().sessions, 1, "s is gone, t is running");
}
