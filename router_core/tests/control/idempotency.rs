//! 6.1: a repeated call has one effect.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::{OnAmbiguous, PoolConfig, Recovery};
use router_core::error::Error;
use router_core::lease::{Outcome, Settled, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::AcquireRequest;
use router_core::sender::{Attach, HeldLease};
use router_core::waiters::{Acquisition, ParkReason};

/// (a) The reply to a grant was lost and the request is sent again: one lease, counted once, and the answer says so.
#[test]
fn s61_a_lost_reply_is_told_again() {
    let mut desk = Desk::training(strict(), 2);
    let first = desk.acquire("t", 1, "s");
    let again = desk.acquire("t", 1, "s");
    assert_eq!(
        (first.lease, first.backend.reference),
        (again.lease, again.backend.reference)
    );
    assert_eq!((first.version, first.reason), (again.version, again.reason));
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!((desk.outstanding(), desk.statistics().picks.total()), (1, 1));
}

/// A settlement of another router process, come late, finds nothing here, though leases are numbered alike.
#[test]
fn ids_of_another_process_name_nothing() {
    let config = |lease_seed| PoolConfig {
        lease_seed,
        ..PoolConfig::default()
    };
    let mut before = Desk::new(config(0x0123_4567_89ab_cdef), 1);
    let mut after = Desk::new(config(0xfedc_ba98_7654_3210), 1);
    let old: Vec<_> = (0..100).map(|_| before.acquire_plain("s").lease).collect();
    let new: Vec<_> = (0..100).map(|_| after.acquire_plain("s").lease).collect();
    for lease in old {
        let settled = after.pool.settle(lease, Settlement::new(Outcome::Completed), after.now);
        assert_eq!(settled, Err(Error::UnknownLease));
    }
    assert_eq!(after.outstanding(), 100);
    for lease in new {
        after.settle(lease, Outcome::Completed);
    }
    assert_eq!(after.outstanding(), 0);
}

/// (a) The recorded grant is told again also after the owner was fenced, an update began and the pool failed.
#[test]
fn s61_a_replay_passes_every_gate() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.fence("train", "pause");
    assert_eq!(desk.acquire("t", 1, "s").lease, lease);
    desk.begin("u").expect("begun");
    assert_eq!(desk.acquire("t", 1, "s").lease, lease);
    desk.pool.fail("for the test", desk.now);
    assert_eq!(desk.acquire("t", 1, "s").lease, lease);
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "pool_failed");
}

/// (b) Two identical acquires at once (hedged) are one lease.
#[test]
fn s61_b_hedged_acquires_are_one() {
    let mut desk = Desk::training(strict(), 2);
    let Ok(Acquisition::Granted(first)) = desk.try_park("t", 1, "s") else {
        panic!("granted at once")
    };
    assert_eq!(desk.acquire("t", 1, "s").lease, first.lease);
    assert_eq!(desk.outstanding(), 1);
}

/// (c) A retry that comes while the first call is parked joins it: both wake with one lease, counted once.
#[test]
fn s61_c_a_retry_joins_the_parked_call() {
    let mut desk = Desk::training(strict(), 2);
    desk.fence("train", "pause");
    let first = desk.park_for("t", 1, "s", ParkReason::Fenced);
    let second = desk.park_for("t", 1, "s", ParkReason::Fenced);
    assert_eq!(first, second);
    assert_eq!(desk.control().waiters, 1);
    desk.unfence("train", "pause");
    assert_eq!(desk.pool.take_wakes(), [first]);
    let (one, other) = (
        desk.claim(first).expect("granted"),
        desk.claim(second).expect("granted"),
    );
    assert_eq!(one.lease, other.lease);
    assert_eq!((one.replayed, other.replayed), (false, true));
    assert_eq!(desk.outstanding(), 1);
}

/// (d) A duplicate that was delayed until its lease is settled and its record collected grants nothing.
#[test]
fn s61_d_no_ghost_leases() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);
    let settled = desk.try_acquire("t", 1, "s").expect_err("settled");
    assert_eq!(
        settled,
        Error::RequestSettled {
            outcome: Outcome::Completed
        }
    );
    desk.heartbeat("t", &[(0, 1)]);
    assert_eq!(desk.control().tombstones, 0);
    desk.advance(seconds(100_000));
    desk.heartbeat("t", &[]);
    for seq in [0, 1] {
        assert_eq!(code(desk.try_acquire("t", seq, "s")), "stale_request");
        assert_eq!(code(desk.try_park("t", seq, "s")), "stale_request");
    }
    assert_eq!(desk.outstanding(), 0);
    desk.acquire("t", 2, "s");
}

/// (e) A duplicate settlement never touches the lease that the same session has got since.
#[test]
fn s61_e_a_duplicate_settlement_is_its_own() {
    let mut desk = Desk::training(strict(), 1);
    let old = desk.acquire("t", 1, "s").lease;
    desk.settle(old, Outcome::Completed);
    desk.acquire("t", 2, "s");
    let already = Settled {
        outcome: Outcome::Completed,
        already: true,
    };
    assert_eq!(desk.try_settle(old, Outcome::Completed), Ok(already));
    let conflict = desk.try_settle(old, Outcome::Failed);
    assert_eq!(
        conflict,
        Err(Error::OutcomeConflict {
            recorded: Outcome::Completed,
            reported: Outcome::Failed
        })
    );
    assert_eq!(desk.outstanding(), 1);
    // Nor does one that comes after the record was collected.
    desk.heartbeat("t", &[(1, 1)]);
    assert_eq!(code(desk.try_settle(old, Outcome::Completed)), "unknown_lease");
    assert_eq!(desk.outstanding(), 1);
}

/// (f) A sender that came back as another process does not settle for the old one: what that held is uncertain.
#[test]
fn s61_f_a_new_process_does_not_speak_for_the_old() {
    let mut desk = Desk::training(strict(), 1);
    desk.acquire("t", 1, "s");
    assert_eq!(code(desk.attach_as("t", "2", "train")), "pool_failed");
    assert_eq!(desk.state(), "failed");
    assert_eq!(desk.statistics().outcomes.get(Outcome::Ambiguous), 1);
}

/// (g) A router that was restarted knows no sender: a retry is told so, and grants nothing.
#[test]
fn s61_g_a_restarted_router_knows_nobody() {
    let mut restarted = Desk::new(strict(), 1);
    assert_eq!(code(restarted.try_acquire("t", 1, "s")), "unknown_sender");
    assert_eq!(restarted.outstanding(), 0);
}

/// (g) With `recovery = restart`, leases of the earlier process are uncertain, and the pool fails.
#[test]
fn s61_g_old_leases_are_uncertain_when_so_configured() {
    let config = PoolConfig {
        recovery: Recovery::Restart,
        ..strict()
    };
    let lease = Desk::training(strict(), 1).acquire("t", 1, "s").lease;
    let mut restarted = Desk::new(config, 1);
    let held = [HeldLease {
        seq: 1,
        lease,
        backend: "e0",
        session: Some("s"),
        version: Some(0),
    }];
    let attach = Attach {
        held: &held,
        ..Attach::new("t", "1", "train")
    };
    let attached = restarted.pool.attach_sender(&attach, restarted.now).expect("answered");
    assert_eq!(attached.adopted.len(), 1);
    assert!(attached.adopted[0].is_err());
    assert_eq!(
        restarted.pool.state().to_string(),
        "failed (1 leases that sender t presented after a restart cannot be adopted)"
    );
}

/// (g) A lease that cannot be adopted is ambiguous once, however often it is presented, and its number grants nothing.
#[test]
fn s61_g_a_lost_lease_is_counted_once() {
    let config = PoolConfig {
        recovery: Recovery::Restart,
        on_ambiguous: OnAmbiguous::Settle,
        ..strict()
    };
    let lease = Desk::training(strict(), 1).acquire("t", 1, "s").lease;
    let mut restarted = Desk::training(config, 1);
    let held = [HeldLease {
        seq: 1,
        lease,
        backend: "e0",
        session: Some("s"),
        version: Some(0),
    }];
    let attach = Attach {
        held: &held,
        ..Attach::new("t", "1", "train")
    };
    for _ in 0..2 {
        let attached = restarted.pool.attach_sender(&attach, restarted.now).expect("answered");
        assert!(attached.adopted[0].is_err());
    }
    assert_eq!(restarted.statistics().outcomes.get(Outcome::Ambiguous), 1);
    assert_eq!(code(restarted.try_acquire("t", 1, "s")), "stale_request");
    assert_eq!((restarted.state(), restarted.outstanding()), ("serving", 0));
}

/// (h) The same number for another session, or another version, is a conflict and changes nothing.
#[test]
fn s61_h_another_body_is_a_conflict() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    assert_eq!(code(desk.try_acquire("t", 1, "other")), "idempotency_conflict");
    let key = Desk::key("t", 1);
    for request in [
        AcquireRequest::unpinned().keyed(key),
        AcquireRequest::for_session("s").keyed(key).expecting(0),
    ] {
        assert_eq!(code(desk.pool.acquire(&request, desk.now)), "idempotency_conflict");
    }
    assert_eq!((desk.outstanding(), desk.statistics().sessions), (1, 1));
    // What was tried meanwhile is a hint, not a part of the request.
    let tried = [desk.reference("e0")];
    let retry = AcquireRequest::for_session("s").excluding(&tried).keyed(key);
    assert_eq!(desk.pool.acquire(&retry, desk.now).expect("replayed").lease, lease);
}

/// (i) Reasons are a set: fenced twice and unfenced once is open, and other reasons stay.
#[test]
fn s61_i_fences_are_sets() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    assert_eq!(desk.fence("train", "pause").fences, ["pause"]);
    assert_eq!(desk.fence("train", "offload").fences, ["offload", "pause"]);
    desk.unfence("train", "pause");
    assert_eq!(code(desk.try_acquire("t", 1, "s")), "fenced");
    assert!(desk.unfence("train", "offload").fences.is_empty());
    desk.acquire("t", 1, "s");
}

/// (i) A late duplicate of a fence does not fence again, and an operation id means one operation.
#[test]
fn s61_i_late_duplicates_of_fences_do_nothing() {
    let mut desk = Desk::training(strict(), 1);
    let (pool, now) = (&mut desk.pool, desk.now);
    pool.fence("train", "pause", Some("op-1"), now).expect("fenced");
    pool.unfence("train", "pause", Some("op-2"), now).expect("open");
    assert!(
        pool.fence("train", "pause", Some("op-1"), now)
            .expect("repeated")
            .fences
            .is_empty()
    );
    assert_eq!(
        code(pool.fence("train", "other", Some("op-1"), now)),
        "idempotency_conflict"
    );
    assert_eq!(
        code(pool.unfence("train", "pause", Some("op-1"), now)),
        "idempotency_conflict"
    );
    desk.acquire("t", 1, "s");
}

/// (j) A publication that runs twice, the second time after new grants, changes nothing.
#[test]
fn s61_j_a_second_publication_does_nothing() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 1);
    desk.ack("train", 1);
    let grant = desk.acquire("t", 1, "s");
    let revision = desk.pool.revision();
    let again = desk.publish("u", 1).expect("repeated");
    assert!(again.replayed);
    assert_eq!((again.published, again.outstanding), (grant.version, 1));
    assert_eq!(code(desk.publish("u", 2)), "idempotency_conflict");
    assert_eq!(desk.pool.revision(), revision);
}

/// Registering again is a no-op; another capacity is a conflict unless it is to be replaced; a list is taken whole or
/// not at all.
#[test]
fn s61_registration_is_atomic() {
    let mut desk = Desk::new(strict(), 0);
    let spec = |port: u16, capacity: f64| BackendSpec::parse(&format!("h:{port}"), capacity).expect("valid");
    let first = desk
        .pool
        .add_backends(vec![spec(1, 1.0), spec(2, 1.0)], false, desk.now)
        .expect("new");
    let again = desk
        .pool
        .add_backends(vec![spec(2, 1.0), spec(1, 1.0), spec(1, 1.0)], false, desk.now);
    let again = again.expect("equal");
    assert_eq!((&again[0], &again[1], &again[2]), (&first[1], &first[0], &first[0]));
    let conflict = desk
        .pool
        .add_backends(vec![spec(3, 1.0), spec(2, 2.0)], false, desk.now);
    assert_eq!(code(conflict), "idempotency_conflict");
    let twice = desk.pool.add_backends(vec![spec(3, 1.0), spec(3, 2.0)], true, desk.now);
    assert_eq!(code(twice), "idempotency_conflict");
    let mixed = vec![spec(3, 1.0), spec(3, 1.0).with_id("three")];
    assert_eq!(code(desk.pool.add_backends(mixed, true, desk.now)), "invalid_request");
    assert_eq!(desk.pool.backends().count(), 2, "nothing of a refused list stays");
    let replaced = desk
        .pool
        .add_backends(vec![spec(2, 2.0)], true, desk.now)
        .expect("replaced");
    assert_eq!(replaced[0].reference, first[1].reference);
}
