//! Public bugs of other routers, by number, as far as the core could have them.

use crate::desk::{Desk, code, seconds, strict};
use router_core::config::{OnDrainTimeout, PoolConfig, Ramp, Spill};
use router_core::error::Error;
use router_core::health::{Health, ProbeKind};
use router_core::lease::{Outcome, Settlement};
use router_core::pool::{AcquireRequest, PickReason};
use router_core::update::{UpdateKind, UpdatePhase};
use router_core::version::Published;
use router_core::waiters::ParkReason;

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

/// B11: bytes of a running answer keep a busy engine up, however slow its probes are.
#[test]
fn b11_busy_is_not_dead() {
    let config = PoolConfig {
        progress_timeout: Some(seconds(30)),
        unhealthy_budget: Some(seconds(60)),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    desk.acquire_plain("s");
    let backend = desk.reference("e0");
    for _ in 0..100 {
        desk.pool.report_probe(backend, false, desk.now);
        desk.pass(2);
        desk.pool.note_alive(backend, desk.now);
        assert_eq!(desk.backend("e0").health, Health::Up);
    }
}

/// B12: an engine whose process answers while its executions are silent is found out: suspect, then asked for tokens,
/// then down; new executions go elsewhere.
#[test]
fn b12_wedged_is_not_healthy() {
    let config = PoolConfig {
        progress_timeout: Some(seconds(30)),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 2);
    assert_eq!(desk.acquire_plain("s").backend.id, "e0");
    let (wedged, other) = (desk.reference("e0"), desk.reference("e1"));
    for _ in 0..29 {
        desk.pool.report_probe(wedged, true, desk.now);
        desk.pool.report_probe(other, true, desk.now);
        desk.pass(1);
    }
    assert_eq!(desk.backend("e0").health, Health::Up);
    desk.pass(1);
    assert_eq!(
        (desk.backend("e0").health, desk.backend("e1").health),
        (Health::Suspect, Health::Up)
    );
    desk.pool.report_probe(wedged, true, desk.now);
    let probe = desk.pool.begin_probe(wedged, desk.now).expect("may be asked");
    assert_eq!(probe.kind, ProbeKind::Generate);
    desk.pool.finish_probe(&probe, false, desk.now);
    assert_eq!(desk.backend("e0").health, Health::Down);
    assert_eq!(desk.acquire_plain("s").backend.id, "e1");
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

/// B32: a backend that joins a busy fleet gets something, and no more than it should have while it is cold.
#[test]
fn b32_newcomers_are_not_flooded() {
    let config = PoolConfig {
        ramp: Some(Ramp {
            duration: seconds(30),
            max_outstanding: 8,
        }),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 7);
    desk.advance(seconds(31));
    let unpinned = AcquireRequest::unpinned();
    for _ in 0..280 {
        desk.pool.acquire(&unpinned, desk.now).expect("granted");
    }
    desk.add(7);
    for _ in 0..200 {
        desk.pool.acquire(&unpinned, desk.now).expect("granted");
    }
    assert_eq!(desk.backend("e7").outstanding, 8);
    desk.advance(seconds(30));
    for _ in 0..53 {
        desk.pool.acquire(&unpinned, desk.now).expect("granted");
    }
    let outstanding: Vec<u32> = desk
        .statistics()
        .backends
        .iter()
        .map(|backend| backend.outstanding)
        .collect();
    assert_eq!(outstanding.iter().sum::<u32>(), 533);
    assert!(outstanding[7] >= 60, "{outstanding:?}");
}

/// B32: so is one that recovers.
#[test]
fn b32_recovered_backends_warm_up() {
    let config = PoolConfig {
        ramp: Some(Ramp {
            duration: seconds(30),
            max_outstanding: 2,
        }),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 2);
    desk.advance(seconds(31));
    let backend = desk.reference("e0");
    for _ in 0..3 {
        desk.pool.report_probe(backend, false, desk.now);
    }
    desk.pool.report_probe(backend, true, desk.now);
    for number in 0..20 {
        desk.acquire_plain(&format!("s{number}"));
    }
    assert_eq!(
        (desk.backend("e0").outstanding, desk.backend("e1").outstanding),
        (2, 18)
    );
}

/// B37: with spill, an idle session of short context leaves a crowded backend; one of long or unknown context stays;
/// nobody goes back and forth, and a minute has a cap.
#[test]
fn b37_only_cheap_sessions_spill() {
    let config = PoolConfig {
        spill: Some(Spill {
            ratio: 2,
            margin: 8,
            max_context_tokens: 4096,
            per_minute: 2,
        }),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    for (session, tokens) in [
        ("long", Some(100_000)),
        ("a", Some(1000)),
        ("b", Some(1000)),
        ("c", Some(1000)),
        ("unknown", None),
    ] {
        let lease = desk.acquire_plain(session).lease;
        let mut settlement = Settlement::new(Outcome::Completed);
        settlement.context_tokens = tokens;
        desk.pool.settle(lease, settlement, desk.now).expect("open");
    }
    for number in 0..40 {
        desk.acquire_plain(&format!("busy{number}"));
    }
    desk.add(1);
    let mut turn = |session: &str| {
        let grant = desk.acquire_plain(session);
        (grant.reason, grant.backend.id.clone())
    };
    assert_eq!(turn("long").0, PickReason::Sticky);
    assert_eq!(turn("unknown").0, PickReason::Sticky);
    assert_eq!(turn("a"), (PickReason::Spill, "e1".to_owned()));
    assert_eq!(turn("b"), (PickReason::Spill, "e1".to_owned()));
    assert_eq!(turn("c").0, PickReason::Sticky, "two moved in this minute");
    assert_eq!(turn("a"), (PickReason::Sticky, "e1".to_owned()));
}

/// B37: without it, nobody leaves.
#[test]
fn b37_sessions_stay_by_default() {
    let mut desk = Desk::new(PoolConfig::default(), 1);
    let lease = desk.acquire_plain("s").lease;
    let short = Settlement::new(Outcome::Completed).with_context_tokens(1);
    desk.pool.settle(lease, short, desk.now).expect("open");
    for number in 0..40 {
        desk.acquire_plain(&format!("busy{number}"));
    }
    desk.add(1);
    assert_eq!(desk.acquire_plain("s").reason, PickReason::Sticky);
}

/// B39: refusals of bad requests never open a breaker; failures do, on the failing engine only.
#[test]
fn b39_client_errors_are_no_failures() {
    let mut desk = Desk::new(PoolConfig::default(), 2);
    for number in 0..100 {
        let lease = desk.acquire_plain(&format!("s{number}")).lease;
        desk.settle(lease, Outcome::Rejected);
    }
    let healths = || [desk.backend("e0").health, desk.backend("e1").health];
    assert_eq!(healths(), [Health::Up, Health::Up]);
    let e1 = [desk.reference("e1")];
    for _ in 0..5 {
        let request = AcquireRequest::unpinned().excluding(&e1);
        if let Ok(grant) = desk.pool.acquire(&request, desk.now) {
            desk.settle(grant.lease, Outcome::Failed);
        }
    }
    assert_eq!(
        (desk.backend("e0").health, desk.backend("e1").health),
        (Health::Down, Health::Up)
    );
}

/// B40: a half-open breaker lets exactly one through; the others go elsewhere; its success closes, its failure extends.
#[test]
fn b40_half_open_admits_one() {
    let mut desk = Desk::new(PoolConfig::default(), 2);
    let e1 = [desk.reference("e1")];
    for _ in 0..3 {
        let request = AcquireRequest::unpinned().excluding(&e1);
        let lease = desk.pool.acquire(&request, desk.now).expect("granted").lease;
        desk.settle(lease, Outcome::Failed);
    }
    for wait in [30, 60] {
        desk.advance(seconds(wait - 1));
        assert_eq!(desk.acquire_plain("early").backend.id, "e1");
        assert_eq!(desk.backend("e0").health, Health::Down);
        desk.advance(seconds(1));
        let burst: Vec<_> = (0..100)
            .map(|_| {
                desk.pool
                    .acquire(&AcquireRequest::unpinned(), desk.now)
                    .expect("granted")
            })
            .collect();
        let trials: Vec<_> = burst.iter().filter(|grant| grant.backend.id == "e0").collect();
        assert_eq!(trials.len(), 1);
        let outcome = if wait == 30 {
            Outcome::Failed
        } else {
            Outcome::Completed
        };
        desk.settle(trials[0].lease, outcome);
    }
    assert_eq!(desk.backend("e0").health, Health::Up);
}

/// B40: with nobody else, one is tried and the others wait for its end.
#[test]
fn b40_others_wait_for_the_trial() {
    let mut desk = Desk::new(PoolConfig::default(), 1);
    desk.attach("t", "train");
    for seq in 0..3 {
        let lease = desk.acquire("t", seq, "s").lease;
        desk.settle(lease, Outcome::Failed);
    }
    let tickets = [3, 4, 5].map(|seq| desk.park_for("t", seq, "s", ParkReason::NoEligibleBackend));
    desk.advance(seconds(30));
    desk.pool.tick(desk.now);
    assert_eq!(desk.pool.take_wakes(), [tickets[0]]);
    let trial = desk.claim(tickets[0]).expect("granted").lease;
    desk.settle(trial, Outcome::Completed);
    assert_eq!(desk.pool.take_wakes(), tickets[1..]);
}

/// B41: when everybody is gone the refusal is typed and worth a retry, and the first that comes serves.
#[test]
fn b41_an_empty_pool_recovers() {
    let mut desk = Desk::new(PoolConfig::default(), 2);
    for id in ["e0", "e1"] {
        desk.pool.remove_backend(id, desk.now).expect("known");
    }
    for _ in 0..500 {
        let none = desk
            .pool
            .acquire(&AcquireRequest::for_session("s"), desk.now)
            .expect_err("nobody");
        assert_eq!((none.code(), none.retryable()), ("no_eligible_backend", true));
    }
    let (events, _) = desk.pool.take_events();
    assert!(
        events.len() <= 6,
        "one line per change, none per request: {}",
        events.len()
    );
    desk.add(2);
    assert_eq!(desk.acquire_plain("s").backend.id, "e2");
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

/// B43: a backend that hangs holds up nobody else.
#[test]
fn b43_a_hung_backend_is_alone() {
    let mut desk = Desk::new(PoolConfig::default(), 2);
    let e1 = [desk.reference("e1")];
    for _ in 0..500 {
        desk.pool
            .acquire(&AcquireRequest::unpinned().excluding(&e1), desk.now)
            .expect("granted");
    }
    for _ in 0..100 {
        let grant = desk
            .pool
            .acquire(&AcquireRequest::unpinned(), desk.now)
            .expect("granted");
        assert_eq!(grant.backend.id, "e1");
        desk.settle(grant.lease, Outcome::Completed);
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

/// B62: nothing but what runs now is a load, so nothing can be stale: an even spread needs no metrics.
#[test]
fn b62_load_needs_no_metrics() {
    let mut desk = Desk::new(PoolConfig::default(), 3);
    for number in 0..30 {
        desk.acquire_plain(&format!("s{number}"));
        desk.advance(seconds(1000));
    }
    let outstanding: Vec<u32> = desk
        .statistics()
        .backends
        .iter()
        .map(|backend| backend.outstanding)
        .collect();
    assert_eq!(outstanding, [10; 3]);
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

/// B82: what finishes often is not what is idle: the one with fewer running gets the next.
#[test]
fn b82_load_is_what_runs() {
    let mut desk = Desk::new(PoolConfig::default(), 2);
    let (e0, e1) = ([desk.reference("e0")], [desk.reference("e1")]);
    for _ in 0..50 {
        desk.pool
            .acquire(&AcquireRequest::unpinned().excluding(&e1), desk.now)
            .expect("granted");
    }
    for _ in 0..5 {
        desk.pool
            .acquire(&AcquireRequest::unpinned().excluding(&e0), desk.now)
            .expect("granted");
    }
    for _ in 0..200 {
        let grant = desk
            .pool
            .acquire(&AcquireRequest::unpinned(), desk.now)
            .expect("granted");
        assert_eq!(grant.backend.id, "e1");
        desk.settle(grant.lease, Outcome::Completed);
    }
}
