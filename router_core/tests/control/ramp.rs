//! Ramps: a backend that is in use for the first time, or again, counts as a quarter of its capacity for a while.

use crate::desk::{Desk, resolving, seconds};
use router_core::config::{PoolConfig, Spill};
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, PickReason};

const RAMP: u64 = 30;

fn ramping() -> PoolConfig {
    PoolConfig {
        ramp: Some(seconds(RAMP)),
        ..PoolConfig::default()
    }
}

/// Two backends at version 0 whose first ramps are over.
fn warm() -> Desk {
    let config = PoolConfig {
        ramp: Some(seconds(RAMP)),
        ..resolving()
    };
    let mut desk = Desk::training(config, 2);
    desk.advance(seconds(RAMP));
    desk
}

/// Places executions without sessions; what then runs on each backend, in the order of their registration.
fn place(desk: &mut Desk, count: usize) -> Vec<u32> {
    for _ in 0..count {
        desk.pool
            .acquire(&AcquireRequest::unpinned(), desk.now)
            .expect("granted");
    }
    let backends = desk.statistics().backends;
    backends.iter().map(|backend| backend.outstanding).collect()
}

fn fail_probes(desk: &mut Desk, id: &str) {
    let backend = desk.reference(id);
    for _ in 0..3 {
        desk.pool.report_probe(backend, false, desk.now);
    }
}

fn probe(desk: &mut Desk, id: &str) {
    let backend = desk.reference(id);
    desk.pool.report_probe(backend, true, desk.now);
}

/// B32: a backend that joins a busy fleet gets a quarter of what the others have, and its part when the ramp is over.
#[test]
fn b32_newcomers_are_not_flooded() {
    let mut desk = Desk::new(ramping(), 7);
    desk.advance(seconds(RAMP + 1));
    assert_eq!(place(&mut desk, 280), [40; 7]);
    desk.add(7);
    let outstanding = place(&mut desk, 200);
    assert_eq!(outstanding[7], 16, "{outstanding:?}");
    desk.advance(seconds(RAMP));
    assert_eq!(place(&mut desk, 56), [67; 8]);
}

/// Whatever a backend waited for: when it is back in use, its ramp begins then.
#[test]
fn b32_whoever_comes_back_ramps() {
    type Away = fn(&mut Desk);
    let causes: [(&str, Away, Away); 7] = [
        ("down", |desk| fail_probes(desk, "e1"), |desk| probe(desk, "e1")),
        (
            "on trial",
            |desk| {
                let away = [desk.reference("e0")];
                for _ in 0..3 {
                    let request = AcquireRequest::unpinned().excluding(&away);
                    let lease = desk.pool.acquire(&request, desk.now).expect("granted").lease;
                    desk.settle(lease, Outcome::Failed);
                }
            },
            |desk| {
                let away = [desk.reference("e0")];
                let request = AcquireRequest::unpinned().excluding(&away);
                let trial = desk.pool.acquire(&request, desk.now).expect("half open").lease;
                desk.settle(trial, Outcome::Completed);
            },
        ),
        (
            "drained",
            |desk| assert_eq!(desk.pool.drain_backend("e1", desk.now), Ok(0)),
            |desk| desk.pool.resume_backend("e1", desk.now).expect("drained"),
        ),
        (
            "removed",
            |desk| assert_eq!(desk.pool.remove_backend("e1", desk.now), Ok(0)),
            |desk| {
                let spec = Desk::spec(1).with_weight_version(0);
                desk.pool.add_backend(spec, desk.now).expect("new");
            },
        ),
        (
            "tainted",
            |desk| assert!(desk.pool.taint_backend(desk.reference("e1"), desk.now)),
            |desk| assert!(desk.pool.report_weights(desk.reference("e1"), 0, true, desk.now)),
        ),
        (
            "of other weights from the start",
            |desk| {
                desk.pool.remove_backend("e1", desk.now).expect("known");
                desk.add(1);
            },
            |desk| assert!(desk.pool.report_weights(desk.reference("e1"), 0, false, desk.now)),
        ),
        (
            "held back",
            |desk| {
                let away = [desk.reference("e0")];
                let request = AcquireRequest::for_session("held").excluding(&away);
                let lease = desk.pool.acquire(&request, desk.now).expect("granted").lease;
                desk.settle(lease, Outcome::Ambiguous);
                desk.pool.hold_back(desk.reference("e1"), desk.now);
            },
            |desk| {
                let unresolved = desk.pool.unresolved();
                desk.settle(unresolved[0].lease, Outcome::Lost);
            },
        ),
    ];
    for (cause, leave, come_back) in causes {
        let mut desk = warm();
        leave(&mut desk);
        desk.pass(100);
        assert_eq!(
            desk.pool.census().eligible,
            u32::from(cause == "on trial") + 1,
            "{cause}"
        );
        come_back(&mut desk);
        assert_eq!(place(&mut desk, 20), [16, 4], "{cause}");
        desk.advance(seconds(RAMP));
        assert_eq!(place(&mut desk, 12), [16, 16], "{cause}");
    }
}

/// One that proves itself long after its registration ramps from then on.
#[test]
fn the_ramp_of_an_unproven_backend_begins_when_it_answers() {
    let mut desk = Desk::new(ramping(), 1);
    let mut spec = Desk::spec(1);
    spec.proven = false;
    desk.pool.add_backend(spec, desk.now).expect("new");
    desk.pass(100);
    probe(&mut desk, "e1");
    assert_eq!(place(&mut desk, 20), [16, 4]);
}

/// A failure that only makes a backend suspect, an excluded attempt, a publication and a drained update are no absence.
#[test]
fn whoever_stays_does_not_ramp() {
    let mut desk = warm();
    let e1 = [desk.reference("e1")];
    desk.pool.report_probe(e1[0], false, desk.now);
    desk.pool.report_probe(e1[0], true, desk.now);
    let request = AcquireRequest::unpinned().excluding(&e1);
    let lease = desk.pool.acquire(&request, desk.now).expect("granted").lease;
    desk.settle(lease, Outcome::Completed);
    desk.begin("u").expect("begun");
    desk.drain("u").expect("drained");
    // One was asked for its version before the publication, the other was not.
    desk.pool.note_named_version(e1[0], Some(1), desk.now);
    desk.resume("u").expect("resumed");
    desk.publish("u", 1).expect("published");
    assert_eq!(place(&mut desk, 20), [10, 10]);
}

/// A breaker's one trial is no flood: it is not put off by a ramp.
#[test]
fn a_trial_is_not_put_off() {
    let mut desk = warm();
    let e0 = [desk.reference("e0")];
    for _ in 0..3 {
        let request = AcquireRequest::unpinned().excluding(&e0);
        let lease = desk.pool.acquire(&request, desk.now).expect("granted").lease;
        desk.settle(lease, Outcome::Failed);
    }
    desk.pass(30);
    assert_eq!(place(&mut desk, 2), [1, 1]);
}

/// A ramp is a preference: who is alone takes everything, and so does who is left.
#[test]
fn a_ramp_refuses_nothing() {
    let mut desk = Desk::new(ramping(), 1);
    assert_eq!(place(&mut desk, 100), [100]);
    desk.advance(seconds(RAMP));
    desk.add(1);
    fail_probes(&mut desk, "e0");
    assert_eq!(place(&mut desk, 100), [100, 100]);
}

/// A fleet that is fresh as a whole decides as one without ramps, whatever its capacities; its sessions spill, too.
#[test]
fn a_fresh_fleet_is_as_without_ramps() {
    let picks = |config: PoolConfig| {
        let mut desk = Desk::new(config, 0);
        for (number, capacity) in [8.0, 2.0, 2.0].into_iter().enumerate() {
            let mut spec = BackendSpec::parse(&format!("h:{}", number + 1), capacity).expect("valid");
            spec.id = Some(format!("e{number}"));
            desk.pool.add_backend(spec, desk.now).expect("new");
            desk.advance(seconds(1));
        }
        let mut turns = Vec::new();
        for number in 0..60 {
            turns.push(desk.acquire_plain(&format!("s{number}")));
        }
        // All sessions of two backends end their turns; those of the third are in its way from then on.
        let (stay, done): (Vec<_>, Vec<_>) = turns.iter().partition(|turn| turn.backend.id == "e0");
        assert_eq!((stay.len(), done.len()), (40, 20));
        for turn in done.into_iter().chain(stay.into_iter().take(1)) {
            let short = Settlement::new(Outcome::Completed).with_context_tokens(1_000);
            desk.pool.settle(turn.lease, short, desk.now).expect("open");
        }
        turns.extend((0..60).map(|number| desk.acquire_plain(&format!("s{number}"))));
        let picked = turns.iter().map(|turn| (turn.backend.id.clone(), turn.reason));
        picked.collect::<Vec<_>>()
    };
    let plain = picks(PoolConfig::default());
    assert!(plain.iter().any(|(_, reason)| *reason == PickReason::Spill));
    assert_eq!(picks(ramping()), plain);
}

/// Idle sessions leave a crowded backend for one that is just back until that has an eighth of its executions, and until
/// it has half of them when it is warm.
#[test]
fn sessions_do_not_spill_in_a_flood() {
    let spill = Spill {
        per_minute: 1_000,
        ..Spill::default()
    };
    let config = PoolConfig {
        spill: Some(spill),
        ..ramping()
    };
    let mut desk = Desk::new(config, 1);
    for number in 0..40 {
        let lease = desk.acquire_plain(&format!("s{number}")).lease;
        let short = Settlement::new(Outcome::Completed).with_context_tokens(1_000);
        desk.pool.settle(lease, short, desk.now).expect("open");
    }
    place(&mut desk, 40);
    desk.advance(seconds(RAMP));
    desk.add(1);
    let turns = |desk: &mut Desk, sessions: std::ops::Range<u32>| {
        let grants = sessions.map(|number| desk.acquire_plain(&format!("s{number}")));
        grants.filter(|grant| grant.reason == PickReason::Spill).count()
    };
    // Those who stay make it more crowded: at last there are 55 against 4 x 6, and 56 against 4 x 7.
    assert_eq!(turns(&mut desk, 0..20), 6);
    desk.advance(seconds(RAMP));
    assert_eq!(turns(&mut desk, 20..40), 20);
}

/// Nor do they leave one that is back because it ramps: what they have in its cache is as good as before.
#[test]
fn a_ramp_drives_no_session_out() {
    let config = PoolConfig {
        spill: Some(Spill::default()),
        ..ramping()
    };
    let mut desk = Desk::new(config, 1);
    for number in 0..18 {
        let lease = desk.acquire_plain(&format!("s{number}")).lease;
        let short = Settlement::new(Outcome::Completed).with_context_tokens(1_000);
        desk.pool.settle(lease, short, desk.now).expect("open");
    }
    desk.add(1);
    desk.advance(seconds(RAMP));
    desk.pool.drain_backend("e0", desk.now).expect("known");
    assert_eq!(place(&mut desk, 8), [0, 8]);
    desk.pool.resume_backend("e0", desk.now).expect("draining");
    // 18 is not more than 2 x (8 + 1).
    for number in 0..18 {
        let grant = desk.acquire_plain(&format!("s{number}"));
        assert_eq!(grant.reason, PickReason::Sticky, "s{number}");
    }
}
