//! 6.3: fence, drain, publish.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::{OnDrainTimeout, PoolConfig, Start};
use router_core::error::Error;
use router_core::lease::Outcome;
use router_core::pool::AcquireRequest;
use router_core::update::{UpdateKind, UpdatePhase};
use router_core::waiters::ParkReason;

/// (a) Engines run again before the version is published: whoever asks in between waits for the publication.
#[test]
fn s63_a_nothing_is_granted_between_resume_and_publish() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    desk.resume("u").expect("resumed");
    let ticket = desk.park_for("v", 1, "s", ParkReason::NotServing);
    assert!(!desk.pool.server_paused());
    desk.publish("u", 1).expect("published");
    assert!(!desk.pool.has_wakes(), "eval does not know the version yet");
    desk.ack("eval", 1);
    let grant = desk.claim(ticket).expect("granted");
    assert_eq!(grant.version.map(|published| published.version), Some(1));
}

/// (a) Published before the engines run again is as good: grants wait for the engines.
#[test]
fn s63_a_nothing_is_granted_between_publish_and_resume() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    desk.publish("u", 1).expect("published");
    desk.ack("train", 1);
    assert_eq!((desk.state(), desk.pool.server_paused()), ("serving", true));
    let ticket = desk.park_for("t", 1, "s", ParkReason::NotServing);
    desk.resume("u").expect("resumed");
    desk.claim(ticket).expect("granted");
}

/// (b) Only the owner that knows the version is served.
#[test]
fn s63_b_owners_acknowledge_apart() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 1);
    desk.ack("train", 1);
    desk.acquire("t", 1, "s");
    let error = desk.try_acquire("v", 1, "s").expect_err("eval has not acknowledged");
    assert_eq!(
        error.to_string(),
        "owner eval has not acknowledged version 1; its last is 0"
    );
    assert_eq!((error.code(), error.retryable()), ("version_not_acked", true));
    // Requests without a sender carry the version in their lease and have nobody to acknowledge it.
    desk.acquire_plain("s");
}

/// (c) Unfenced before the publication, as in a recovery: still closed.
#[test]
fn s63_c_unfencing_does_not_open_an_update() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    desk.begin("u").expect("begun");
    let ticket = desk.park_for("t", 1, "s", ParkReason::Fenced);
    desk.unfence("train", "pause");
    assert!(!desk.pool.has_wakes());
    desk.drain("u").expect("drained");
    desk.resume("u").expect("resumed");
    desk.publish("u", 1).expect("published");
    desk.ack("train", 1);
    desk.claim(ticket).expect("granted");
}

/// (d) The controller gave its update up: the pool fails, and says why.
#[test]
fn s63_d_a_failed_update_fails_the_pool() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u").expect("begun");
    let failed = desk
        .pool
        .fail_update("u", "rank 3 ran out of memory", desk.now)
        .expect("failed");
    assert_eq!(failed.phase, UpdatePhase::Failed);
    assert_eq!(
        desk.pool.state().to_string(),
        "failed (update u failed: rank 3 ran out of memory)"
    );
    assert!(
        desk.pool
            .fail_update("u", "again", desk.now)
            .expect("repeated")
            .replayed
    );
}

/// (e) Begun again after a lost reply is a no-op; another one has to wait; the same id for something else is refused.
#[test]
fn s63_e_one_update_at_a_time() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    let generation = desk.pool.generation();
    desk.advance(seconds(7));
    assert!(desk.begin("u").expect("repeated").replayed);
    assert_eq!((desk.pool.generation(), desk.state()), (generation, "updating"));
    let other = desk.begin("u2").expect_err("busy");
    assert_eq!(
        other,
        Error::UpdateInProgress {
            id: "u".to_owned(),
            phase: UpdatePhase::Updating,
            age: seconds(7)
        }
    );
    assert_eq!(code(desk.begin_kind("u", UpdateKind::Offload)), "idempotency_conflict");
    desk.resume("u").expect("resumed");
    desk.publish("u", 1).expect("published");
    // A late duplicate does not begin it again.
    assert!(desk.begin("u").expect("repeated").replayed);
    assert_eq!(desk.state(), "serving");
}

/// (f) The last settlement in the very instant of the deadline: drained.
#[test]
fn s63_f_a_settlement_at_the_deadline_wins() {
    let mut desk = Desk::training(strict(), 1);
    let lease = desk.acquire("t", 1, "s").lease;
    desk.begin("u").expect("begun");
    assert_eq!(desk.drain("u").expect("waits").phase, UpdatePhase::Quiescing);
    desk.advance(seconds(30));
    desk.settle(lease, Outcome::Aborted);
    desk.pool.tick(desk.now);
    assert_eq!(desk.drain("u").expect("drained").phase, UpdatePhase::Updating);
    assert!(desk.drain("u").expect("repeated").replayed);
}

/// (g) A sender of a known owner that comes late learns the version; one that comes during an update parks.
#[test]
fn s63_g_late_senders_learn_the_version() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 7);
    let attached = desk.attach("p", "proxies");
    assert_eq!(attached.published.map(|published| published.version), Some(7));
    assert_eq!(desk.acquire("p", 1, "s").version, attached.published);
    let lease = desk.acquire("p", 1, "s").lease;
    desk.settle(lease, Outcome::Completed);

    desk.begin("u2").expect("begun");
    desk.attach("q", "others");
    let ticket = desk.park_for("q", 1, "s", ParkReason::NotServing);
    desk.drain("u2").expect("drained");
    desk.resume("u2").expect("resumed");
    desk.publish("u2", 8).expect("published");
    assert!(!desk.pool.has_wakes(), "it was told 7");
    desk.ack("others", 8);
    desk.claim(ticket).expect("granted");
}

/// (h) A fence of eval does not hold train up; an update holds both up.
#[test]
fn s63_h_fences_are_per_owner_updates_are_not() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("eval", "pause");
    let lease = desk.acquire("t", 1, "s").lease;
    assert_eq!(code(desk.try_acquire("v", 1, "s")), "fenced");
    desk.settle(lease, Outcome::Completed);
    desk.begin("u").expect("begun");
    assert_eq!(code(desk.try_acquire("t", 2, "s")), "not_serving");
    assert_eq!(
        code(desk.pool.acquire(&AcquireRequest::unpinned(), desk.now)),
        "not_serving"
    );
}

/// (h) The default owner can be fenced as well, for what comes without a sender.
#[test]
fn s63_h_the_default_owner_can_be_fenced() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("default", "maintenance");
    assert_eq!(code(desk.pool.acquire(&AcquireRequest::unpinned(), desk.now)), "fenced");
    desk.acquire("t", 1, "s");
}

/// (i) Two controllers publish the same version: the second does nothing, whatever id it uses.
#[test]
fn s63_i_the_same_version_twice_is_one_publication() {
    let mut desk = Desk::training(strict(), 1);
    desk.update("u", 1);
    let published = desk.pool.published();
    assert!(desk.publish("u", 1).expect("repeated").replayed);
    assert!(desk.publish("other", 1).expect("no-op").replayed);
    assert_eq!(desk.pool.published(), published);
    assert_eq!(code(desk.publish("other", 2)), "unknown_update");
}

/// (j) A publication for an update whose place another one has taken is refused.
#[test]
fn s63_j_publications_belong_to_their_update() {
    let mut desk = Desk::training(strict(), 1);
    desk.begin_kind("u1", UpdateKind::Offload).expect("begun");
    desk.drain("u1").expect("drained");
    desk.resume("u1").expect("resumed");
    desk.pool.cancel_update("u1", desk.now).expect("cancelled");
    desk.begin("u2").expect("begun");
    assert_eq!(code(desk.publish("u1", 1)), "invalid_transition");
    assert_eq!(code(desk.publish("u3", 1)), "update_in_progress");
    assert_eq!(desk.state(), "drained");
}

/// (k) An execution that an engine's gate holds keeps the drain from ending; at the deadline it is named.
#[test]
fn s63_k_blockers_are_named() {
    let config = PoolConfig {
        on_drain_timeout: OnDrainTimeout::Report,
        ..strict()
    };
    let mut desk = Desk::training(config, 1);
    let lease = desk.acquire("t", 1, "traj-17").lease;
    desk.advance(seconds(5));
    desk.acquire_plain("later");
    desk.begin("u").expect("begun");
    desk.drain("u").expect("waits");
    desk.advance(seconds(30));
    let Err(Error::DrainTimeout {
        outstanding,
        blockers,
        failed,
        ..
    }) = desk.drain("u")
    else {
        panic!("no timeout")
    };
    assert_eq!((outstanding, failed), (2, false));
    let oldest = &blockers[0];
    assert_eq!(
        (
            oldest.lease,
            oldest.session.as_deref(),
            oldest.sender.as_deref(),
            oldest.age
        ),
        (lease, Some("traj-17"), Some("t"), seconds(35))
    );
    assert_eq!((blockers[1].sender.as_deref(), blockers[1].age), (None, seconds(30)));
    // The pool goes on quiescing, and another drain may be tried.
    assert_eq!(desk.drain("u").expect("waits").phase, UpdatePhase::Quiescing);
}

/// (l) An owner is unfenced while the servers are given away: grants wait for the servers.
#[test]
fn s63_l_unfencing_an_offloaded_pool_grants_nothing() {
    let mut desk = Desk::training(strict(), 1);
    desk.fence("train", "pause");
    desk.begin_kind("pause:1", UpdateKind::Offload).expect("begun");
    desk.drain("pause:1").expect("drained");
    desk.unfence("train", "pause");
    let ticket = desk.park_for("t", 1, "s", ParkReason::NotServing);
    desk.pool.cancel_update("pause:1", desk.now).expect("cancelled");
    assert!(!desk.pool.has_wakes(), "the servers are still paused");
    desk.resume("pause:1").expect("resumed");
    let grant = desk.claim(ticket).expect("granted");
    assert_eq!(grant.version.map(|published| published.version), Some(0));
}

/// (m) A pause before the first version: nothing is granted by it, and its cancellation leads back.
#[test]
fn s63_m_a_pause_before_the_first_version() {
    let config = PoolConfig {
        start: Start::AwaitVersion,
        ..strict()
    };
    let mut desk = Desk::new(config, 1);
    desk.attach("t", "train");
    assert_eq!(desk.state(), "init");
    let ticket = desk.park_for("t", 1, "s", ParkReason::NotServing);
    desk.begin_kind("pause:1", UpdateKind::Offload).expect("begun");
    desk.drain("pause:1").expect("drained");
    desk.resume("pause:1").expect("resumed");
    desk.pool.cancel_update("pause:1", desk.now).expect("cancelled");
    assert_eq!(desk.state(), "init");
    desk.publish("first", 40).expect("any first version");
    assert_eq!(desk.state(), "serving");
    assert!(!desk.pool.has_wakes());
    desk.ack("train", 40);
    desk.claim(ticket).expect("granted");
}

/// (n) Every sender of an owner is fenced with it, direct ones and proxies alike.
#[test]
fn s63_n_an_owner_is_fenced_whole() {
    let mut desk = Desk::training(strict(), 1);
    desk.attach("proxy-rollout/0", "train");
    desk.fence("train", "pause");
    assert_eq!(code(desk.try_acquire("t", 1, "s")), "fenced");
    assert_eq!(code(desk.try_acquire("proxy-rollout/0", 1, "s")), "fenced");
    desk.acquire("v", 1, "s");
}

/// Engines that run something that no lease stands for hold a drain up, to its deadline; then they are named (B59).
#[test]
fn b59_engines_can_hold_a_drain_up() {
    let busy = ["e (1 running, 0 waiting)".to_owned()];
    for (policy, fails) in [(OnDrainTimeout::Fail, true), (OnDrainTimeout::Report, false)] {
        let config = PoolConfig {
            on_drain_timeout: policy,
            ..strict()
        };
        let mut desk = Desk::training(config, 1);
        desk.begin("u").expect("begun");
        let hold = |desk: &mut Desk| {
            let deadline = desk.now.after(seconds(30));
            desk.pool.hold_drain("u", &busy, deadline, desk.now)
        };
        assert_eq!(hold(&mut desk).expect("held").phase, UpdatePhase::Drained);
        desk.advance(seconds(29));
        assert_eq!(hold(&mut desk).expect("held").phase, UpdatePhase::Drained);
        desk.advance(seconds(2));
        let Err(Error::DrainTimeout { engines, failed, .. }) = hold(&mut desk) else {
            panic!("no timeout")
        };
        assert_eq!((engines.as_slice(), failed), (busy.as_slice(), fails));
        if fails {
            assert_eq!(desk.state(), "failed");
            let again = hold(&mut desk).expect_err("over");
            assert!(again.to_string().contains(&busy[0]), "{again}");
        } else {
            assert_eq!(desk.drain("u").expect("idle at last").phase, UpdatePhase::Updating);
        }
    }
}
