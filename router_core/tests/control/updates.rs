//! 6.3: fence, drain, publish.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::{OnDrainTimeout, PoolConfig, Start};
use router_core::error::Error;
use router_core::lease::Outcome;
use router_core::pool::AcquireRequest;
use router_core::update::{BeginUpdate, UpdateKind, UpdatePhase};
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

/// What an update announced is what it must publish; an offload publishes nothing, and ends by cancellation.
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
    desk.begin_kind("pause:1", UpdateKind::Offload).expect("begun");
    desk.drain("pause:1").expect("drained");
    assert_eq!(code(desk.publish("pause:1", 6)), "invalid_transition");
    let cancelled = desk.pool.cancel_update("pause:1", desk.now).expect("cancelled");
    assert_eq!(cancelled.phase, UpdatePhase::Cancelled);
    assert!(desk.pool.cancel_update("pause:1", desk.now).expect("repeated").replayed);
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
