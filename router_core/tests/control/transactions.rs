//! Fences and updates beyond the listed interleavings: what is answered, refused and kept.

use crate::desk::{Desk, code, strict};
use router_core::lease::Outcome;
use router_core::pool::AcquireRequest;
use router_core::update::{BeginUpdate, UpdateKind, UpdatePhase};

/// The answer to a fence says what is still running for the owner, and where.
#[test]
fn a_fence_answers_with_what_is_outstanding() {
    let mut desk = Desk::training(strict(), 2);
    for seq in 0..3 {
        desk.acquire("t", seq, &format!("s{seq}"));
    }
    desk.acquire("v", 0, "s");
    let status = desk.fence("train", "pause");
    let per_backend: Vec<(&str, u32)> = status
        .per_backend
        .iter()
        .map(|(backend, count)| (backend.id.as_str(), *count))
        .collect();
    assert_eq!((status.outstanding, per_backend), (3, vec![("e0", 2), ("e1", 1)]));
    assert_eq!(
        code(desk.pool.fence("nobody", "pause", None, desk.now)),
        "invalid_request"
    );
}

/// What an update announced is what it must publish; offloads and pauses publish nothing, and end by cancellation.
#[test]
fn updates_keep_their_word() {
    let mut desk = Desk::training(strict(), 1);
    let begin = BeginUpdate {
        id: "u",
        kind: UpdateKind::Weights,
        to_version: Some(5),
    };
    desk.pool.begin_update(&begin, desk.now).expect("begun");
    desk.drain("u").expect("drained");
    assert_eq!(code(desk.publish("u", 6)), "idempotency_conflict");
    assert_eq!(code(desk.pool.cancel_update("u", desk.now)), "invalid_transition");
    desk.publish("u", 5).expect("published");

    desk.resume("u").expect("resumed");
    for kind in [UpdateKind::Offload, UpdateKind::Pause] {
        let id = kind.as_str();
        desk.begin_kind(id, kind).expect("begun");
        desk.drain(id).expect("drained");
        assert_eq!(code(desk.publish(id, 6)), "invalid_transition");
        let cancelled = desk.pool.cancel_update(id, desk.now).expect("cancelled");
        assert_eq!(cancelled.phase, UpdatePhase::Cancelled);
        assert!(desk.pool.cancel_update(id, desk.now).expect("repeated").replayed);
        desk.resume(id).expect("resumed");
    }
}

/// An update of weights can be called off as long as nobody was told that weights may move.
#[test]
fn an_update_can_be_called_off_early() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    desk.pool.cancel_update("u", desk.now).expect("cancelled");
    desk.resume("u").expect("resumed");
    desk.settle(lease, Outcome::Completed);
    desk.acquire("t", 2, "s");
}

/// The pause of the servers belongs to an update: the end of an older one's does not end it.
#[test]
fn resuming_an_older_update_does_nothing() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u1").expect("begun");
    desk.drain("u1").expect("drained");
    desk.publish("u1", 1).expect("published");
    desk.begin("u2").expect("begun, the servers are still paused");
    assert!(desk.resume("u1").expect("late").replayed);
    assert!(desk.pool.server_paused());
    assert!(!desk.resume("u2").expect("resumed").replayed);
    assert!(desk.resume("u2").expect("again").replayed);
    assert_eq!(code(desk.resume("never")), "unknown_update");
}

/// Publishing needs the drain; the last 16 results can be asked for again.
#[test]
fn results_are_kept() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    assert_eq!(code(desk.publish("u", 1)), "invalid_transition");
    desk.settle(lease, Outcome::Completed);
    desk.publish("u", 1).expect("nothing was outstanding");
    for version in 2..18 {
        desk.update(&format!("u{version}"), version);
    }
    assert_eq!(desk.control().last_updates.len(), 16);
    assert!(desk.publish("u2", 2).expect("kept").replayed);
    assert_eq!(code(desk.pool.update_status("u")), "unknown_update");
    assert_eq!(code(desk.drain("u")), "unknown_update");
}

/// Without leases of another version, the first publication needs no update; with them it would mislabel them.
#[test]
fn a_first_version_does_not_relabel() {
    let mut desk = Desk::new(strict(), 1);
    let lease = desk.acquire_plain("s").lease;
    assert_eq!(code(desk.publish("first", 3)), "invalid_transition");
    desk.settle(lease, Outcome::Completed);
    desk.publish("first", 3).expect("published");
    assert_eq!(
        desk.acquire_plain("s").version.map(|published| published.version),
        Some(3)
    );
}

/// A request may insist on a version, and is refused rather than served by another one.
#[test]
fn a_request_may_insist_on_its_version() {
    let mut desk = Desk::training(strict(), 1);
    let insisting = AcquireRequest::unpinned().expecting(1);
    let refused = desk.pool.acquire(&insisting, desk.now).expect_err("0 is published");
    assert_eq!((refused.code(), refused.retryable()), ("stale_request", false));
    desk.update("u", 1);
    let grant = desk.pool.acquire(&insisting, desk.now).expect("granted");
    assert_eq!(grant.version.map(|published| published.version), Some(1));
}
