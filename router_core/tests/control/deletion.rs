//! 6.5: records are deleted, exactly and in time. 6.6: one form of address.

use crate::desk::{Desk, code, resolving, seconds, strict};
use router_core::config::PoolConfig;
use router_core::lease::Outcome;
use router_core::membership::BackendSpec;
use router_core::pool::PickReason;
use router_core::waiters::ParkReason;

/// (a) An interval over a request that is still open does not touch its lease; that leaves nothing when it is settled.
#[test]
fn s65_a_open_requests_survive_their_interval() {
    let mut desk = Desk::training(strict(), 1);
    let leases = [1, 2, 3].map(|seq| desk.acquire("t", seq, "s").lease);
    desk.settle(leases[2], Outcome::Completed);
    desk.settle(leases[0], Outcome::Completed);
    desk.heartbeat("t", &[(0, 3)]);
    assert_eq!((desk.outstanding(), desk.control().tombstones), (1, 0));
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "stale_request");
    desk.settle(leases[1], Outcome::Completed);
    assert_eq!((desk.outstanding(), desk.control().tombstones), (0, 0));
    assert_eq!(code(desk.try_settle(leases[1], Outcome::Completed)), "unknown_lease");
}

/// (b) One execution of hours does not make the records above it pile up.
#[test]
fn s65_b_intervals_leave_no_gap() {
    let mut desk = Desk::training(strict(), 1);
    let hours = desk.acquire("t", 0, "slow").lease;
    for seq in 1..=1000 {
        let lease = desk.acquire("t", seq, "fast").lease;
        desk.settle(lease, Outcome::Completed);
        desk.heartbeat("t", &[(1, seq)]);
        assert_eq!(desk.control().tombstones, 0);
    }
    assert_eq!(desk.control().senders[0].settled, [(1, 1000)]);
    desk.settle(hours, Outcome::Completed);
    desk.heartbeat("t", &[(0, 1000)]);
    assert_eq!(desk.control().senders[0].settled, [(0, 1000)]);
}

/// (b) Intervals that make no sense are refused, and change nothing.
#[test]
fn s65_b_intervals_are_checked() {
    let mut desk = Desk::training(strict(), 1);
    let refused = desk.pool.report_settled("t", "1", &[(1, 2), (5, 4)], desk.now);
    assert_eq!(code(refused), "invalid_request");
    assert!(desk.control().senders[0].settled.is_empty());
    assert_eq!(
        code(desk.pool.report_settled("t", "2", &[], desk.now)),
        "unknown_sender"
    );
}

/// (b) A sender that never says what is settled is refused at its cap; nothing is evicted.
#[test]
fn s65_b_tombstones_are_capped_not_evicted() {
    let config = PoolConfig {
        tombstone_cap: 3,
        ..strict()
    };
    let mut desk = Desk::training(config, 1);
    let first = desk.acquire("t", 0, "s").lease;
    desk.settle(first, Outcome::Completed);
    for seq in 1..3 {
        let lease = desk.acquire("t", seq, "s").lease;
        desk.settle(lease, Outcome::Completed);
    }
    let refused = desk.try_acquire("t", 3, "s").expect_err("too many");
    assert_eq!((refused.code(), refused.retryable()), ("too_many_tombstones", true));
    assert!(desk.try_settle(first, Outcome::Completed).expect("remembered").already);
    desk.acquire("v", 0, "s");
    desk.heartbeat("t", &[(0, 0)]);
    desk.acquire("t", 3, "s");
}

/// (c) A session whose turn waits behind a fence is in use, however long that takes.
#[test]
fn s65_c_parked_sessions_do_not_expire() {
    let config = PoolConfig {
        session_ttl: seconds(10),
        ..strict()
    };
    let mut desk = Desk::training(config, 2);
    let turn = desk.acquire("t", 1, "s");
    desk.settle(turn.lease, Outcome::Completed);
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 2, "s", ParkReason::Fenced);
    for _ in 0..5 {
        desk.pass(20);
        desk.heartbeat("t", &[]);
        desk.heartbeat("v", &[]);
    }
    assert_eq!(desk.statistics().sessions, 1);
    desk.unfence("train", "pause");
    // The deadline was a minute, so this one is told so; the session is where it was.
    assert_eq!(code(desk.claim(ticket)), "fenced");
    let next = desk.acquire("t", 3, "s");
    assert_eq!(
        (next.reason, next.backend.reference),
        (PickReason::Sticky, turn.backend.reference)
    );
}

/// (d) Closed before its last execution ends: that ends as usual, and nothing of the session is left.
#[test]
fn s65_d_closing_before_the_last_settlement() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    let closed = desk.pool.close_sender_session("t", "s", desk.now).expect("known");
    assert_eq!((closed.known, closed.open_leases), (true, 1));
    assert_eq!((desk.statistics().sessions, desk.outstanding()), (0, 1));
    desk.settle(lease, Outcome::Completed);
    assert_eq!((desk.outstanding(), desk.backend("e0").sessions), (0, 0));
}

/// (d) Closed while a turn of it is parked: that turn is refused.
#[test]
fn s65_d_closing_ends_parked_turns() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 2, "s", ParkReason::Fenced);
    assert_eq!(
        desk.pool
            .close_sender_session("t", "s", desk.now)
            .expect("known")
            .open_leases,
        1
    );
    desk.unfence("train", "pause");
    assert_eq!(code(desk.claim(ticket)), "session_closed");
    assert_eq!((desk.outstanding(), desk.statistics().sessions), (0, 0));
}

/// (e) The same name after a close is a new session, which may land elsewhere.
#[test]
fn s65_e_a_closed_name_begins_anew() {
    let mut desk = Desk::training(strict(), 2);
    let first = desk.acquire("t", 1, "s");
    desk.pool.close_sender_session("t", "s", desk.now).expect("known");
    let second = desk.acquire("t", 2, "s");
    assert_eq!(second.reason, PickReason::New);
    assert_ne!(first.backend.reference, second.backend.reference);
    desk.settle(first.lease, Outcome::Completed);
    assert_eq!(
        desk.statistics().sessions,
        1,
        "the end of the old one is not the new one's"
    );
}

/// (f) A new process of a sender: what the old one held is resolved first, and its records go with it.
#[test]
fn s65_f_old_records_go_with_the_old_process() {
    let mut desk = Desk::training(resolving(), 1);
    let settled = desk.acquire("t", 1, "s").lease;
    desk.settle(settled, Outcome::Completed);
    let open = desk.acquire("t", 2, "s").lease;
    desk.attach_as("t", "2", "train").expect("attached");
    assert_eq!((desk.outstanding(), desk.control().unresolved), (1, 1));
    assert_eq!(desk.pool.unresolved()[0].lease, open);
    assert_eq!((desk.control().tombstones, desk.statistics().sessions), (0, 0));
    assert_eq!(code(desk.try_acquire("t", 3, "s")), "unknown_sender");
    desk.settle(open, Outcome::Lost);
    assert_eq!((desk.outstanding(), desk.control().tombstones), (0, 0));
}

/// (g) Whoever gives up while parked leaves nothing behind; a grant that raced with that is settled as never sent,
/// and the backend is not blamed.
#[test]
fn s65_g_giving_up_leaves_nothing() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let gone = desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.pool.abandon(gone, desk.now);
    assert_eq!((desk.control().waiters, desk.statistics().sessions), (0, 0));

    let raced = desk.park_for("t", 2, "s", ParkReason::Fenced);
    desk.unfence("train", "pause");
    assert_eq!(desk.outstanding(), 1);
    desk.pool.abandon(raced, desk.now);
    assert_eq!((desk.outstanding(), desk.backend("e0").failures), (0, 0));
    assert_eq!(desk.statistics().outcomes.get(Outcome::NotSent), 1);
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "request_settled");
    desk.acquire("t", 1, "s");
}

/// (g) A grant that another call was told of is not taken back.
#[test]
fn s65_g_a_grant_that_was_told_stays() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.unfence("train", "pause");
    let told = desk.acquire("t", 1, "s");
    assert!(told.replayed);
    desk.pool.abandon(ticket, desk.now);
    assert_eq!(desk.outstanding(), 1);
    desk.settle(told.lease, Outcome::Completed);
}

/// I7 for senders: a hundred thousand requests with duplicates leave no record behind.
#[test]
fn i7_keyed_churn_leaves_nothing_behind() {
    let mut desk = Desk::training(strict(), 4);
    for seq in 0..100_000_u64 {
        let session = format!("s{}", seq % 50);
        let lease = desk.acquire("t", seq, &session).lease;
        if seq % 3 == 0 {
            assert!(desk.acquire("t", seq, &session).replayed);
        }
        desk.settle(lease, Outcome::Completed);
        if seq % 7 == 0 {
            assert!(desk.try_settle(lease, Outcome::Completed).expect("kept").already);
        }
        if seq % 64 == 63 {
            desk.heartbeat("t", &[(0, seq)]);
        }
    }
    desk.heartbeat("t", &[(0, 99_999)]);
    for sender in ["t", "v"] {
        desk.pool.detach_sender(sender, "1", desk.now).expect("idle");
    }
    let statistics = desk.statistics();
    assert_eq!((statistics.sessions, statistics.leases), (0, 0));
    assert_eq!(
        (statistics.control.tombstones, statistics.control.senders.len()),
        (0, 0)
    );
}

/// 6.6: every spelling of an address is one backend, and what is no address is refused.
#[test]
fn s66_one_form_of_address() {
    let mut desk = Desk::new(strict(), 0);
    let mut add = |text: &str| {
        let spec = BackendSpec::parse(text, 1.0)?;
        desk.pool.add_backend(spec, desk.now)
    };
    let groups = [
        ["h:1", "h:1/", "http://h:1", "HTTP://H:1/"],
        ["[::1]:1", "::1:1", "http://[::1]:1/", "[::1]:1/"],
    ];
    for group in groups {
        let references = group.map(|text| add(text).expect(text).reference);
        assert!(
            references.iter().all(|reference| *reference == references[0]),
            "{group:?}"
        );
    }
    for text in [
        "HTTP://H:1//",
        "http://h:1/v1",
        "h",
        " h:1 ",
        "h:0",
        "h:70000",
        "user@h:1",
        "h:1?x",
        "h:1#x",
    ] {
        assert_eq!(code(add(text)), "invalid_address", "{text}");
    }
    assert_eq!(desk.pool.backends().count(), 2);
}
