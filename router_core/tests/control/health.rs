//! 6.4: the health budget stands still in a pause, and late answers change nothing.

use crate::desk::{Desk, seconds, strict};
use router_core::config::{OnUnhealthy, PoolConfig};
use router_core::health::{Health, Probe, ProbeKind};
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;

/// A budget of 120 s, after which the pool fails; suspicion does not end by itself meanwhile.
fn budgeted() -> PoolConfig {
    PoolConfig {
        unhealthy_budget: Some(seconds(120)),
        on_unhealthy: OnUnhealthy::FailPool,
        suspect_decay: seconds(100_000),
        ..strict()
    }
}

fn desk() -> Desk {
    let mut desk = Desk::training(budgeted(), 1);
    // These tests are about backends, so their senders go.
    for sender in ["t", "v"] {
        desk.pool.detach_sender(sender, "1", desk.now).expect("idle");
    }
    desk
}

impl Desk {
    fn begin_probe(&mut self, id: &str) -> Probe {
        let backend = self.reference(id);
        self.pool.begin_probe(backend, self.now).expect("may be asked")
    }

    fn fail_probe(&mut self, id: &str) {
        let probe = self.begin_probe(id);
        assert!(self.pool.finish_probe(&probe, false, self.now));
    }

    fn health_of(&self, id: &str) -> Health {
        self.backend(id).health
    }

    /// Pauses the servers for so long, and lets them run again.
    fn pause(&mut self, id: &str, duration: u64, version: u64) {
        self.begin(id).expect("begun");
        self.drain(id).expect("drained");
        self.pass(duration);
        self.resume(id).expect("resumed");
        self.publish(id, version).expect("published");
    }
}

/// (a) Begun before the pause, failed after it: the answer is about other times.
#[test]
fn s64_a_a_probe_from_before_the_pause_is_void() {
    let mut desk = desk();
    let probe = desk.begin_probe("e0");
    desk.pause("u", 20, 1);
    assert!(!desk.pool.finish_probe(&probe, false, desk.now));
    assert_eq!((desk.health_of("e0"), desk.control().stale_probes), (Health::Up, 1));
}

/// (b) A good answer of the old process says nothing about the one that took its address.
#[test]
fn s64_b_a_probe_of_the_old_incarnation_is_void() {
    let mut desk = desk();
    let probe = desk.begin_probe("e0");
    desk.pool.remove_backend("e0", desk.now).expect("known");
    let spec = BackendSpec::parse("10.0.0.1:1000", 1.0).expect("valid").unproven();
    let spec = spec.with_id("e0").with_weight_version(0);
    desk.pool.add_backend(spec, desk.now).expect("new");
    assert!(!desk.pool.finish_probe(&probe, true, desk.now));
    assert_eq!(desk.health_of("e0"), Health::Unproven);
}

/// (c) In a pause nobody is asked, and an answer without a stamp, which a control message may have made good, is not
/// taken in.
#[test]
fn s64_c_answers_during_the_pause_are_void() {
    let mut desk = desk();
    desk.fail_probe("e0");
    let probe = desk.begin_probe("e0");
    desk.begin("u").expect("begun");
    let backend = desk.reference("e0");
    assert_eq!(desk.pool.begin_probe(backend, desk.now), None);
    assert!(!desk.pool.finish_probe(&probe, true, desk.now));
    desk.pool.report_probe(backend, true, desk.now);
    desk.pool.note_alive(backend, desk.now);
    assert_eq!(desk.health_of("e0"), Health::Suspect);
}

/// (d) A pause of half an hour with a suspect: no failure, and the same belief after it.
#[test]
fn s64_d_long_pauses_are_no_failures() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pause("u", 1800, 1);
    assert_eq!((desk.state(), desk.health_of("e0")), ("serving", Health::Suspect));
}

/// (e) 100 of 120 s used, ten minutes of pause: 20 s are left, not 0 and not 120.
#[test]
fn s64_e_the_budget_stands_still() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pass(100);
    desk.pause("u", 600, 1);
    desk.pass(19);
    assert_eq!(desk.state(), "serving");
    desk.pass(1);
    assert_eq!(
        desk.pool.state().to_string(),
        "failed (backend e0 was unhealthy for longer than its budget)"
    );
}

/// (f) Pauses in quick succession neither use the budget up nor keep it from being used: time between them counts.
#[test]
fn s64_f_flapping_counts_what_lies_between() {
    let mut desk = desk();
    desk.fail_probe("e0");
    for version in 1..=40 {
        desk.pause(&format!("u{version}"), 10, version);
        // A probe may begin at once.
        desk.begin_probe("e0");
        if version < 40 {
            desk.pass(3);
        }
    }
    assert_eq!(desk.state(), "serving");
    desk.pass(3);
    assert_eq!(desk.state(), "failed");
}

/// (g) Two answers out of order: only the probe begun last counts.
#[test]
fn s64_g_the_latest_probe_counts() {
    let mut desk = desk();
    let (older, newer) = (desk.begin_probe("e0"), desk.begin_probe("e0"));
    assert!(desk.pool.finish_probe(&newer, true, desk.now));
    assert!(!desk.pool.finish_probe(&older, false, desk.now));
    assert_eq!(desk.health_of("e0"), Health::Up);
}

/// (h) Down before the pause: down until a probe of the new generation says otherwise.
#[test]
fn s64_h_down_lasts_through_the_pause() {
    let mut desk = desk();
    for _ in 0..3 {
        desk.fail_probe("e0");
    }
    let before = desk.begin_probe("e0");
    desk.pause("u", 20, 1);
    assert!(!desk.pool.finish_probe(&before, true, desk.now));
    assert_eq!(desk.health_of("e0"), Health::Down);
    let after = desk.begin_probe("e0");
    assert!(desk.pool.finish_probe(&after, true, desk.now));
    assert_eq!(desk.health_of("e0"), Health::Up);
}

/// (i) A clock that runs backwards adds nothing and takes nothing away.
#[test]
fn s64_i_time_running_backwards_is_no_time() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pass(100);
    let later = desk.now;
    desk.now = router_core::time::Timestamp::ZERO;
    desk.pass(50);
    assert_eq!(desk.state(), "serving");
    desk.now = later;
    desk.pass(19);
    assert_eq!(desk.state(), "serving");
    desk.pass(1);
    assert_eq!(desk.state(), "failed");
}

/// (j) A process that was suspended for five minutes has watched nobody: one tick counts one limit at most.
#[test]
fn s64_j_a_suspended_process_counts_one_interval() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pass(100);
    desk.advance(seconds(300));
    desk.pool.tick(desk.now);
    assert_eq!(desk.state(), "serving");
    desk.pass(14);
    assert_eq!(desk.state(), "serving");
    desk.pass(1);
    assert_eq!(desk.state(), "failed");
}

/// (k) The end of the pause, told twice, is one.
#[test]
fn s64_k_resuming_twice_is_once() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pass(100);
    desk.pause("u", 600, 1);
    desk.pass(10);
    assert!(desk.resume("u").expect("again").replayed);
    desk.pass(9);
    assert_eq!(desk.state(), "serving");
    desk.pass(1);
    assert_eq!(desk.state(), "failed");
}

/// (l) A failed pool is not revived by any sign of life.
#[test]
fn s64_l_failed_stays_failed() {
    let mut desk = desk();
    desk.fail_probe("e0");
    desk.pass(120);
    assert_eq!(desk.state(), "failed");
    let backend = desk.reference("e0");
    desk.pool.report_probe(backend, true, desk.now);
    desk.pool.note_alive(backend, desk.now);
    assert_eq!(desk.pool.begin_probe(backend, desk.now), None);
    assert_eq!(desk.state(), "failed");
}

/// With `exclude`, a backend whose budget is used up is down, and the others go on.
#[test]
fn an_exhausted_backend_is_excluded() {
    let config = PoolConfig {
        on_unhealthy: OnUnhealthy::Exclude,
        ..budgeted()
    };
    let mut desk = Desk::new(config, 2);
    desk.fail_probe("e0");
    desk.pass(119);
    assert_eq!(desk.health_of("e0"), Health::Suspect);
    desk.pass(1);
    assert_eq!((desk.health_of("e0"), desk.state()), (Health::Down, "serving"));
    assert_eq!(desk.acquire_plain("s").backend.id, "e1");
}

/// The ends of executions from before an update say nothing: they may have been cut short by it.
#[test]
fn ends_from_before_an_update_are_no_evidence() {
    let mut desk = Desk::training(PoolConfig::default(), 1);
    let leases = [1, 2, 3].map(|seq| desk.acquire("t", seq, "s").lease);
    desk.begin("u").expect("begun");
    for lease in leases {
        desk.settle(lease, Outcome::Failed);
    }
    assert_eq!((desk.health_of("e0"), desk.backend("e0").failures), (Health::Up, 0));
}

/// Executions that are cut short outside an update are counted, and a row of them without a token opens the breaker.
#[test]
fn empty_aborts_bring_down() {
    let mut desk = Desk::training(PoolConfig::default(), 1);
    for seq in 0..8 {
        assert_eq!(desk.health_of("e0"), Health::Up);
        let lease = desk.acquire("t", seq, "s").lease;
        let aborted = Settlement::new(Outcome::Aborted).with_output_tokens(0);
        desk.pool.settle(lease, aborted, desk.now).expect("open");
    }
    assert_eq!(
        (desk.health_of("e0"), desk.control().unexpected_aborts),
        (Health::Down, 8)
    );
}

/// What a probe asks: whether there is an answer; whether there are tokens only of a suspect that runs nothing, or that
/// runs something in silence.
#[test]
fn probes_generate_only_when_they_must() {
    let mut desk = Desk::new(PoolConfig::default(), 1);
    assert_eq!(desk.begin_probe("e0").kind, ProbeKind::Liveness);
    let lease = desk.acquire_plain("s").lease;
    desk.settle(lease, Outcome::Failed);
    let probe = desk.begin_probe("e0");
    assert_eq!(probe.kind, ProbeKind::Generate);
    desk.acquire_plain("s");
    assert_eq!(desk.begin_probe("e0").kind, ProbeKind::Liveness, "it is busy");
}

/// An engine that has just been resumed may be busy waking up: the first probe after a pause makes it suspect, and the
/// next ones count as ever.
#[test]
fn s64_the_first_failure_after_a_pause_only_makes_suspect() {
    let mut desk = desk();
    for _ in 0..2 {
        desk.fail_probe("e0");
    }
    desk.pause("u", 20, 1);
    desk.fail_probe("e0");
    assert_eq!(desk.health_of("e0"), Health::Suspect);
    desk.fail_probe("e0");
    assert_eq!(desk.health_of("e0"), Health::Down);
}

/// A good answer ends the grace as well.
#[test]
fn s64_the_grace_after_a_pause_is_one_answer_long() {
    let mut desk = desk();
    desk.pause("u", 20, 1);
    let probe = desk.begin_probe("e0");
    assert!(desk.pool.finish_probe(&probe, true, desk.now));
    for _ in 0..3 {
        desk.fail_probe("e0");
    }
    assert_eq!(desk.health_of("e0"), Health::Down);
}
