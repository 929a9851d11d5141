//! Public bugs of other routers, by number, as far as the core could have them.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::{OnDrainTimeout, PoolConfig};
use router_core::error::Error;
use router_core::lease::Outcome;
use router_core::pool::{AcquireRequest, PickReason};
use router_core::update::{UpdateKind, UpdatePhase};
use router_core::version::Published;

/// B3: a publication touches no execution and no session.
#[test]
fn b3_publishing_touches_no_request() {
    let mut desk = Desk::training(strict(), 2);
    for seq in 0..16 {
        let lease = desk.acquire("t", seq, &format!("s{seq}")).lease;
        desk.settle(lease, Outcome::Completed);
    }
    let before = desk.statistics();
    desk.update("u", 8);
    let after = desk.statistics();
    assert_eq!((after.outcomes, after.sessions), (before.outcomes, before.sessions));
    desk.ack("train", 8);
    assert_eq!(desk.acquire("t", 16, "s0").reason, PickReason::Sticky);
}

/// B4: every lease carries the version that its backend runs, and no two versions are ever out at once.
#[test]
fn b4_leases_carry_their_version() {
    let mut desk = Desk::training(strict(), 1);
    let old = desk.acquire("t", 1, "s");
    desk.begin("u").expect("begun");
    assert_eq!(code(desk.publish("u", 4)), "invalid_transition");
    desk.settle(old.lease, Outcome::Aborted);
    desk.drain("u").expect("drained");
    desk.resume("u").expect("resumed");
    desk.publish("u", 4).expect("published");
    desk.ack("train", 4);
    let new = desk.acquire("t", 2, "s");
    let versions = [old, new].map(|grant| grant.version.map(|published| published.version));
    assert_eq!(versions, [Some(0), Some(4)]);
}

/// B6: whatever step an update fails at, nobody is granted anything while servers are paused, whoever waits gets an
/// answer, and a new update can start or the pool says that it failed.
#[test]
fn b6_every_step_of_an_update_can_fail() {
    type Step = fn(&mut Desk);
    let steps: [Step; 5] = [
        |desk| drop(desk.fence("train", "pause")),
        |desk| drop(desk.begin("u").expect("begun")),
        |desk| drop(desk.drain("u").expect("drained")),
        |desk| drop(desk.resume("u").expect("resumed")),
        |desk| drop(desk.publish("u", 1).expect("published")),
    ];
    for failing in 1..=steps.len() {
        for says_so in [true, false] {
            let mut desk = Desk::training(strict(), 1);
            for step in &steps[..failing] {
                step(&mut desk);
            }
            let ticket = desk.park("t", 1, "s").ticket;
            if says_so {
                desk.pool.fail("a step failed", desk.now);
                assert_eq!(code(desk.claim(ticket)), "pool_failed");
            } else {
                // The controller died: the call gives up with a reason of its own.
                desk.advance(seconds(60));
                assert_eq!(code(desk.pool.give_up(ticket, desk.now)), "fenced");
                assert_eq!(desk.outstanding(), 0);
            }
        }
    }
}

/// B21: a backend whose update failed, or that runs other weights, gets nothing until it is right again.
#[test]
fn b21_failed_updates_stay_out() {
    let mut desk = Desk::training(strict(), 3);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    let (failed, stale) = (desk.reference("e1"), desk.reference("e2"));
    assert!(desk.pool.taint_backend(failed, desk.now));
    desk.pool.taint_backend(stale, desk.now);
    desk.resume("u").expect("resumed");
    desk.publish("u", 1).expect("published");
    desk.ack("train", 1);
    let census = desk.statistics().census;
    assert_eq!((census.eligible, census.tainted), (1, 2));
    for seq in 0..9 {
        assert_eq!(desk.acquire("t", seq, &format!("s{seq}")).backend.id, "e0");
    }
    // Saying the version is not enough; a full reload is.
    desk.pool.report_weights(failed, 1, false, desk.now);
    assert!(!desk.backend("e1").eligible);
    desk.pool.report_weights(failed, 1, true, desk.now);
    desk.pool.report_weights(stale, 0, true, desk.now);
    assert!(desk.backend("e1").eligible && !desk.backend("e2").eligible);
    assert_eq!(desk.statistics().census.pending_version, 1);
}

/// B21: not even a new epoch, in which everybody begins anew, makes a failed update good.
#[test]
fn b21_tainted_outlives_epochs() {
    let mut desk = Desk::training(strict(), 1);
    let tainted = desk.reference("e0");
    desk.pool.taint_backend(tainted, desk.now);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    desk.pool.publish("u", 0, Some(1), desk.now).expect("a new epoch");
    desk.pool.report_weights(tainted, 0, false, desk.now);
    assert_eq!(
        (desk.statistics().census.tainted, desk.backend("e0").eligible),
        (1, false)
    );
}

/// B21: an engine that named its version and does so no more was started anew under the same address: it is pending until
/// it names the published one. One that never names a version is taken at its controller's word.
#[test]
fn b21_an_engine_that_was_started_anew_is_pending() {
    let mut desk = Desk::training(strict(), 2);
    desk.update("u", 1);
    let [named, silent] = ["e0", "e1"].map(|id| desk.pool.find_backend(id).expect("known").reference);
    desk.pool.note_named_version(named, Some(1), desk.now);
    for backend in [named, silent] {
        desk.pool.note_named_version(backend, None, desk.now);
    }
    assert_eq!(
        (desk.backend("e0").eligible, desk.backend("e1").eligible),
        (false, true)
    );
    desk.update("v", 2);
    assert!(!desk.backend("e0").eligible, "no update can have reached it");
    desk.pool.note_named_version(named, Some(2), desk.now);
    assert!(desk.backend("e0").eligible);
}

/// B21: a lease knows whether its engine named its version before the grant, whatever the engine says afterwards: an
/// answer without a version then comes from a process that was started anew.
#[test]
fn b21_leases_of_engines_that_name_their_version() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 1);
    let backend = desk.reference("e0");
    let before = desk.acquire_plain("s");
    desk.pool.note_named_version(backend, Some(1), desk.now);
    let after = desk.acquire_plain("s");
    desk.pool.note_named_version(backend, None, desk.now);
    assert_eq!((before.names_version, after.names_version), (false, true));
    assert!(!desk.pool.names_version(before.lease) && desk.pool.names_version(after.lease));
}

/// B21: a backend that comes, or comes back, in a pool with a version is pending until it reported that version.
#[test]
fn b21_newcomers_are_pending() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 1);
    desk.pool.remove_backend("e0", desk.now).expect("known");
    let back = desk.add(0).reference;
    assert_eq!(
        code(desk.pool.acquire(&AcquireRequest::unpinned(), desk.now)),
        "no_eligible_backend"
    );
    let ticket = desk
        .pool
        .acquire_or_park(&AcquireRequest::unpinned(), desk.now.after(seconds(9)), desk.now);
    drop(ticket);
    desk.pool.report_weights(back, 0, false, desk.now);
    assert!(!desk.backend("e0").eligible);
    desk.pool.report_weights(back, 1, false, desk.now);
    assert!(desk.pool.has_wakes());
    // One that comes with the right version is eligible at once, one that comes in the middle of an update is not.
    let ready = Desk::spec(1).with_weight_version(1);
    desk.pool.add_backend(ready, desk.now).expect("new");
    assert!(desk.backend("e1").eligible);
}

/// B26: leases have no age limit: a day later they are counted, and a late settlement never counts twice.
#[test]
fn b26_leases_do_not_expire() {
    let mut desk = Desk::new(PoolConfig::default(), 1);
    let leases: Vec<_> = (0..10)
        .map(|number| desk.acquire_plain(&format!("s{number}")).lease)
        .collect();
    for _ in 0..24 {
        desk.advance(seconds(3600));
        desk.pool.tick(desk.now);
        assert_eq!((desk.outstanding(), desk.statistics().sessions), (10, 10));
    }
    for lease in &leases {
        desk.settle(*lease, Outcome::Completed);
        assert_eq!(code(desk.try_settle(*lease, Outcome::Completed)), "unknown_lease");
    }
    assert_eq!(desk.outstanding(), 0);
}

/// B27: a version never goes back, unless a new epoch is declared; then nobody is taken to run it before saying so.
#[test]
fn b27_versions_do_not_go_back() {
    let mut desk = Desk::training(strict(), 2);
    desk.update("u", 57);
    desk.ack("eval", 57);
    desk.begin("u2").expect("begun");
    desk.drain("u2").expect("drained");
    desk.resume("u2").expect("resumed");
    assert_eq!(code(desk.publish("u2", 1)), "version_regression");
    desk.pool.publish("u2", 1, Some(1), desk.now).expect("a new epoch");
    assert_eq!(desk.pool.published(), Some(Published { epoch: 1, version: 1 }));
    desk.ack("train", 1);
    let none = desk.try_acquire("t", 1, "s").expect_err("nobody confirmed it");
    assert_eq!(
        none.to_string(),
        "no backend can take a new execution now (2 registered, 2 pending version)"
    );
    let confirmed = desk.reference("e1");
    desk.pool.report_weights(confirmed, 1, false, desk.now);
    assert_eq!(desk.acquire("t", 1, "s").backend.id, "e1");
    // What was acknowledged in the old epoch does not count in the new one.
    assert_eq!(code(desk.try_acquire("v", 1, "s")), "version_not_acked");
}

/// B42: a restarted router takes engines and sessions as they come: no double registration, and an unknown session is a
/// new one.
#[test]
fn b42_a_restart_forgets_gracefully() {
    let mut desk = Desk::new(PoolConfig::default(), 3);
    for number in 0..3 {
        desk.add(number);
    }
    assert_eq!(desk.pool.backends().count(), 3);
    for number in 0..20 {
        assert_eq!(desk.acquire_plain(&format!("old-{number}")).reason, PickReason::New);
    }
}

/// B59: there is no second way in: requests with a sender, without one, repeated and parked ones all stop at the fence
/// of the update.
#[test]
fn b59_every_way_in_is_fenced() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u").expect("begun");
    assert_eq!(code(desk.try_acquire("t", 1, "s")), "not_serving");
    assert_eq!(
        code(desk.pool.acquire(&AcquireRequest::unpinned(), desk.now)),
        "not_serving"
    );
    desk.park("t", 1, "s");
    desk.add(1);
    desk.pass(5);
    assert!(!desk.pool.has_wakes());
    assert_eq!(desk.outstanding(), 0);
}

/// B60: a drain is over when executions are settled, not when their abort was asked for.
#[test]
fn b60_drained_means_settled() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin_kind("u", UpdateKind::Offload).expect("begun");
    desk.pool.close_sender_session("t", "s", desk.now).expect("known");
    for _ in 0..5 {
        desk.pass(1);
        assert_eq!(desk.drain("u").expect("waits").phase, UpdatePhase::Quiescing);
    }
    desk.settle(lease, Outcome::Cancelled);
    assert_eq!(desk.drain("u").expect("drained").phase, UpdatePhase::Updating);
}

/// B61: after `fence` and after a drain of a backend have returned, nothing is granted there, sticky sessions included.
#[test]
fn b61_draining_is_at_once() {
    let mut desk = Desk::training(strict(), 2);
    for seq in 0..20 {
        let lease = desk.acquire("t", seq, &format!("s{seq}")).lease;
        desk.settle(lease, Outcome::Completed);
    }
    desk.pool.drain_backend("e0", desk.now).expect("known");
    for seq in 20..40 {
        let grant = desk.acquire("t", seq, &format!("s{}", seq - 20));
        assert_eq!(grant.backend.id, "e1");
    }
    assert_eq!(desk.pool.retire_backend("e0", None, desk.now), Ok(()));
    let busy = desk.pool.retire_backend("e1", None, desk.now).expect_err("busy");
    assert_eq!(
        busy,
        Error::BackendBusy {
            id: "e1".to_owned(),
            outstanding: 20
        }
    );
    assert_eq!(
        code(desk.pool.retire_backend("e1", Some(99), desk.now)),
        "unknown_backend"
    );
}

/// B69: a parked turn keeps its session, and the table stays at its cap.
#[test]
fn b69_the_table_is_bounded_with_senders() {
    let config = PoolConfig {
        session_cap: 10,
        ..strict()
    };
    let mut desk = Desk::training(config, 1);
    let lease = desk.acquire("t", 0, "kept").lease;
    desk.settle(lease, Outcome::Completed);
    desk.fence("train", "pause");
    desk.park("t", 1, "kept");
    for number in 0..100 {
        let lease = desk.acquire("v", number, &format!("s{number}")).lease;
        desk.settle(lease, Outcome::Completed);
        assert!(desk.statistics().sessions <= 10);
    }
    desk.unfence("train", "pause");
    assert_eq!(desk.acquire("t", 1, "kept").reason, PickReason::Sticky);
}

/// B80: of two updates one begins, and the other is told whose it is and since when; only its id ends it.
#[test]
fn b80_one_update_at_a_time() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("mine").expect("begun");
    desk.advance(seconds(3));
    assert_eq!(
        desk.begin("yours").expect_err("busy").to_string(),
        "update mine is in progress (drained, began 3 s ago)"
    );
    assert_eq!(code(desk.pool.cancel_update("yours", desk.now)), "unknown_update");
    assert_eq!(code(desk.pool.fail_update("yours", "?", desk.now)), "unknown_update");
    assert_eq!(code(desk.publish("yours", 1)), "update_in_progress");
    desk.pool.cancel_update("mine", desk.now).expect("cancelled");
    desk.begin("yours").expect("free again");
}

/// B81: a drain ends at its deadline, with the names of those who kept it, and the pool fails if so configured.
#[test]
fn b81_drains_end() {
    for on_drain_timeout in [OnDrainTimeout::Fail, OnDrainTimeout::Report] {
        let config = PoolConfig {
            on_drain_timeout,
            ..strict()
        };
        let mut desk = Desk::training(config, 1);
        let leases: Vec<_> = (0..10).map(|seq| desk.acquire("t", seq, "s").lease).collect();
        desk.begin("u").expect("begun");
        desk.drain("u").expect("waits");
        for lease in &leases[1..] {
            desk.settle(*lease, Outcome::Completed);
        }
        desk.pass(29);
        assert_eq!(desk.drain("u").expect("waits").phase, UpdatePhase::Quiescing);
        desk.pass(1);
        let Err(Error::DrainTimeout { blockers, failed, .. }) = desk.drain("u") else {
            panic!("no timeout")
        };
        let named: Vec<_> = blockers.iter().map(|blocker| blocker.lease).collect();
        assert_eq!(
            (named, failed),
            (vec![leases[0]], on_drain_timeout == OnDrainTimeout::Fail)
        );
        let expected = if failed { "failed" } else { "quiescing" };
        assert_eq!(desk.state(), expected);
    }
}
