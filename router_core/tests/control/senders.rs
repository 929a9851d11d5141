//! 6.7: senders come, are silent, and go.

use crate::desk::{Desk, code, resolving, seconds, strict};
use router_core::config::{PoolConfig, Start};
use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome};
use router_core::pool::PickReason;
use router_core::sender::{Attach, HeldLease};
use router_core::waiters::ParkReason;

/// A sender that holds nothing and falls silent is forgotten, with its sessions; nobody fails.
#[test]
fn s67_silence_without_leases_is_a_departure() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);
    desk.pass(121);
    assert_eq!(desk.state(), "serving");
    let control = desk.control();
    assert_eq!((control.senders.len(), control.tombstones), (0, 0));
    assert_eq!(desk.statistics().sessions, 0);
}

/// Every message is a sign of life, so a sender that works needs no heartbeats.
#[test]
fn s67_any_message_is_a_heartbeat() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 0, "s").lease;
    for _ in 0..10 {
        desk.pass(100);
        desk.acquire("t", 0, "s");
        desk.heartbeat("v", &[]);
    }
    assert_eq!(desk.state(), "serving");
    desk.settle(lease, Outcome::Completed);
}

/// Silence with leases makes each of them uncertain: with `resolve` they wait to be resolved.
#[test]
fn s67_silence_with_leases_is_uncertain() {
    let mut desk = Desk::training(resolving(), 2);
    let leases = [1, 2].map(|seq| desk.acquire("t", seq, "s").lease);
    desk.pass(121);
    let mut unresolved: Vec<LeaseId> = desk.pool.unresolved().iter().map(|lost| lost.lease).collect();
    unresolved.sort_unstable();
    assert_eq!(unresolved, leases);
    assert_eq!((desk.state(), desk.outstanding()), ("serving", 2));
    for lease in leases {
        desk.settle(lease, Outcome::Lost);
    }
    assert_eq!((desk.outstanding(), desk.control().tombstones), (0, 0));
}

/// A router that was suspended has heard nobody: that silence is its own, and what is left of the TTL counts from there.
#[test]
fn silence_of_a_suspended_router_does_not_count() {
    let mut desk = Desk::training(strict(), 1);
    desk.acquire("t", 1, "s");
    desk.pass(100);
    desk.pool.excuse_silence(seconds(100), desk.now);
    desk.pass(120);
    assert_eq!(desk.state(), "serving");
    desk.pass(1);
    assert_eq!(desk.state(), "failed");
}

/// A new process of a sender whose old one holds leases fails the pool at once, not at the end of the TTL.
#[test]
fn s67_a_new_process_with_old_leases_is_uncertain_at_once() {
    let mut desk = Desk::training(strict(), 1);
    desk.acquire("t", 1, "s");
    assert_eq!(code(desk.attach_as("t", "2", "train")), "pool_failed");
    assert_eq!(
        desk.pool.state().to_string(),
        "failed (sender t was lost while it held 1 leases)"
    );
}

/// A new process of a sender whose old one held nothing begins anew, numbers included.
#[test]
fn s67_a_new_process_counts_anew() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);
    let attached = desk.attach_as("t", "2", "train").expect("attached");
    assert!(!attached.already);
    let request = router_core::pool::AcquireRequest::for_session("s").keyed(router_core::sender::RequestKey {
        sender: "t",
        incarnation: "2",
        seq: 1,
    });
    let grant = desk.pool.acquire(&request, desk.now).expect("granted");
    assert_eq!((grant.replayed, grant.reason), (false, PickReason::New));
}

/// Attaching again is a heartbeat; a sender has one owner, and a name.
#[test]
fn s67_attaching_again_is_a_heartbeat() {
    let mut desk = Desk::training(strict(), 1);
    desk.pass(100);
    assert!(desk.attach_as("t", "1", "train").expect("again").already);
    assert_eq!(code(desk.attach_as("t", "1", "eval")), "idempotency_conflict");
    assert_eq!(code(desk.attach_as("", "1", "eval")), "invalid_request");
    assert_eq!(code(desk.attach_as("x", "a\nb", "eval")), "invalid_request");
    assert_eq!(code(desk.attach_as("x", "1", &"o".repeat(257))), "invalid_request");
    desk.pass(21);
    assert_eq!(desk.control().senders.len(), 1, "v fell silent");
}

/// Detaching needs everything settled; what is parked fails.
#[test]
fn s67_detaching_settles_first() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 2, "s", ParkReason::Fenced);
    assert_eq!(code(desk.pool.detach_sender("t", "1", desk.now)), "invalid_transition");
    desk.settle(lease, Outcome::Completed);
    desk.pool.detach_sender("t", "1", desk.now).expect("idle");
    assert_eq!(code(desk.claim(ticket)), "unknown_sender");
    assert_eq!(code(desk.pool.detach_sender("t", "1", desk.now)), "unknown_sender");
    assert_eq!(desk.statistics().sessions, 0);
}

/// A lease that was granted for a parked call which nobody was told of was never used: it is not uncertain.
#[test]
fn s67_untold_grants_of_a_lost_sender_were_never_used() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    let ticket = desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.unfence("train", "pause");
    assert_eq!(desk.outstanding(), 1);
    desk.attach_as("t", "2", "train").expect("attached");
    assert_eq!((desk.state(), desk.outstanding()), ("serving", 0));
    assert_eq!(desk.statistics().outcomes.get(Outcome::NotSent), 1);
    assert!(desk.claim(ticket).is_err());
}

/// Sessions of two senders are two, whatever they are called (T10).
#[test]
fn s67_sessions_belong_to_their_sender() {
    let mut desk = Desk::training(strict(), 2);
    let (train, eval) = (desk.acquire("t", 1, "17:0-0"), desk.acquire("v", 1, "17:0-0"));
    desk.acquire_plain("17:0-0");
    assert_ne!(train.backend.reference, eval.backend.reference);
    assert_eq!(desk.statistics().sessions, 3);
    assert!(
        desk.pool
            .close_sender_session("v", "17:0-0", desk.now)
            .expect("known")
            .known
    );
    assert_eq!(desk.acquire("t", 2, "17:0-0").reason, PickReason::Sticky);
    assert_eq!(desk.acquire("v", 2, "17:0-0").reason, PickReason::New);
    assert_eq!(
        code(desk.pool.close_sender_session("nobody", "s", desk.now)),
        "unknown_sender"
    );
}

fn held(seq: u64, lease: LeaseId, backend: &str, version: u64) -> HeldLease<'_> {
    HeldLease {
        seq,
        lease,
        backend,
        session: Some("s"),
        version: Some(version),
    }
}

/// A restarted router takes over what senders present, grants nothing before the first version, and labels what it
/// took over as it was.
#[test]
fn adoption_takes_over_leases_and_pins() {
    let old = Desk::training(strict(), 2).acquire("t", 9, "s").lease;
    let config = PoolConfig {
        start: Start::AwaitVersion,
        ..strict()
    };
    let mut desk = Desk::new(config, 2);
    let presented = [held(9, old, "e1", 41)];
    let pins = [("s", "e1"), ("other", "e1"), ("gone", "nowhere")];
    let attach = Attach {
        held: &presented,
        pins: &pins,
        ..Attach::new("t", "1", "train")
    };
    let attached = desk.pool.attach_sender(&attach, desk.now).expect("attached");
    let lease = *attached.adopted[0].as_ref().expect("adopted");
    assert_eq!(attached.pins_adopted, 1, "s came with its lease");
    assert_eq!((desk.outstanding(), desk.backend("e1").sessions), (1, 2));
    let again = desk.pool.attach_sender(&attach, desk.now).expect("again");
    assert_eq!(again.adopted, [Ok(lease)]);

    assert_eq!(code(desk.try_acquire("t", 10, "s")), "not_serving");
    assert_eq!(code(desk.publish("first", 42)), "invalid_transition");
    desk.publish("first", 41).expect("published");
    desk.ack("train", 41);
    let replay = desk.acquire("t", 9, "s");
    assert_eq!((replay.lease, replay.version), (lease, desk.pool.published()));
    let next = desk.acquire("t", 10, "s");
    assert_eq!((next.reason, &*next.backend.id), (PickReason::Sticky, "e1"));
    desk.settle(lease, Outcome::Completed);
}

/// What does not match is not taken over: an unknown backend, another version, a drained pool.
#[test]
fn adoption_checks_backend_and_version() {
    let old = Desk::training(strict(), 1).acquire("t", 9, "s").lease;
    let present = |desk: &mut Desk, lease: HeldLease<'_>| {
        let attach = Attach {
            held: &[lease],
            ..Attach::new("late", "1", "train")
        };
        let attached = desk.pool.attach_sender(&attach, desk.now).expect("attached");
        attached.adopted[0].clone()
    };
    let mut desk = Desk::training(resolving(), 1);
    assert!(matches!(
        present(&mut desk, held(1, old, "elsewhere", 0)),
        Err(Error::UnknownBackend { .. })
    ));
    assert_eq!(present(&mut desk, held(2, old, "e0", 1)), Err(Error::UnknownLease));
    assert!(present(&mut desk, held(3, old, "e0", 0)).is_ok());
    desk.begin("u").expect("begun");
    assert!(
        present(&mut desk, held(4, old, "e0", 0)).is_ok(),
        "the drain waits for it"
    );
    let open = [3, 4].map(|seq| present(&mut desk, held(seq, old, "e0", 0)).expect("adopted"));
    for lease in open {
        desk.settle(lease, Outcome::Completed);
    }
    assert_eq!(present(&mut desk, held(5, old, "e0", 0)), Err(Error::UnknownLease));
    assert_eq!((desk.state(), desk.outstanding()), ("drained", 0));
}

/// The engine may know an adopted execution by its old id: whoever resolves it is told.
#[test]
fn adoption_remembers_the_old_id() {
    let old = Desk::training(strict(), 1).acquire("t", 9, "s").lease;
    let mut desk = Desk::new(resolving(), 1);
    let presented = [held(9, old, "e0", 0)];
    let attach = Attach {
        held: &presented,
        ..Attach::new("t", "1", "train")
    };
    let lease = desk.pool.attach_sender(&attach, desk.now).expect("attached").adopted[0]
        .clone()
        .expect("adopted");
    desk.settle(lease, Outcome::Ambiguous);
    assert_eq!(desk.pool.unresolved()[0].presented, Some(old));
    desk.advance(seconds(1));
    desk.settle(lease, Outcome::Lost);
}
