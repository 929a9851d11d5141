//! Public bugs of other routers, by number, about who gets the next request.

use crate::desk::{Desk, seconds};
use router_core::config::{PoolConfig, Spill};
use router_core::health::{Health, ProbeKind};
use router_core::lease::{Outcome, Settlement};
use router_core::pool::{AcquireRequest, PickReason};
use router_core::waiters::ParkReason;

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

/// B12: silence is counted from the first execution, not from the end of the last one long ago.
#[test]
fn b12_idleness_is_no_silence() {
    let config = PoolConfig {
        progress_timeout: Some(seconds(30)),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    desk.pass(1000);
    desk.acquire_plain("s");
    desk.pass(29);
    assert_eq!(desk.backend("e0").health, Health::Up);
    desk.pass(1);
    assert_eq!(desk.backend("e0").health, Health::Suspect);
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

/// B37: nobody spills to a backend that failed just now, as idle as that makes it.
#[test]
fn b37_nobody_spills_to_a_suspect() {
    let config = PoolConfig {
        spill: Some(Spill {
            ratio: 2,
            margin: 8,
            max_context_tokens: 4096,
            per_minute: 100,
        }),
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    let lease = desk.acquire_plain("s").lease;
    let short = Settlement::new(Outcome::Completed).with_context_tokens(1);
    desk.pool.settle(lease, short, desk.now).expect("open");
    for number in 0..40 {
        desk.acquire_plain(&format!("busy{number}"));
    }
    // The other one is idle, and as suspect as this one.
    desk.add(1);
    for id in ["e0", "e1"] {
        let backend = desk.reference(id);
        desk.pool.report_probe(backend, false, desk.now);
    }
    assert_eq!(desk.acquire_plain("s").reason, PickReason::Sticky);
}

/// B37: without it, nobody leaves.
#[test]
fn b37_sessions_stay_without_spill() {
    let config = PoolConfig {
        spill: None,
        ..PoolConfig::default()
    };
    let mut desk = Desk::new(config, 1);
    let lease = desk.acquire_plain("s").lease;
    let short = Settlement::new(Outcome::Completed).with_context_tokens(1);
    desk.pool.settle(lease, short, desk.now).expect("open");
    for number in 0..40 {
        desk.acquire_plain(&format!("busy{number}"));
    }
    desk.add(1);
    assert_eq!(desk.acquire_plain("s").reason, PickReason::Sticky);
}

/// B37: by default a session leaves only a backend that is both twice as crowded and ahead by three, and only when its
/// context is known to be short.
#[test]
fn b37_the_default_moves_few() {
    for (busy, context, reason) in [
        (40, Some(1_000), PickReason::Spill),
        (40, Some(100_000), PickReason::Sticky),
        (40, None, PickReason::Sticky),
        (3, Some(1_000), PickReason::Spill),
        (2, Some(1_000), PickReason::Sticky),
    ] {
        let mut desk = Desk::new(PoolConfig::default(), 1);
        let lease = desk.acquire_plain("s").lease;
        let mut settlement = Settlement::new(Outcome::Completed);
        settlement.context_tokens = context;
        desk.pool.settle(lease, settlement, desk.now).expect("open");
        for number in 0..busy {
            desk.acquire_plain(&format!("busy{number}"));
        }
        desk.add(1);
        assert_eq!(
            desk.acquire_plain("s").reason,
            reason,
            "{busy} busy, context {context:?}"
        );
    }
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
