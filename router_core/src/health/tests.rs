use super::{Evidence, Health, Patience, Source, Vitals};
use crate::config::PoolConfig;
use crate::time::Timestamp;
use std::time::Duration;

/// Three failures bring down, suspicion decays after 10 s, and a breaker is half open after 30 s.
fn patience() -> Patience {
    Patience::of(&PoolConfig::default())
}

fn up() -> Vitals {
    Vitals::new(true, Duration::ZERO)
}

/// The time of day and of the active clock, which are the same here.
fn moment(seconds: u64) -> (Timestamp, Duration) {
    (at(seconds), Duration::from_secs(seconds))
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.after(Duration::from_secs(seconds))
}

fn failed(vitals: &mut Vitals, source: Source, times: u32) -> Health {
    for _ in 0..times {
        vitals.note_failure(source, &patience(), moment(0));
    }
    vitals.health()
}

/// One failure makes a suspect, the third in a row of one kind brings the backend down.
#[test]
fn failures_in_a_row_bring_down() {
    for source in [Source::Execution, Source::Probe] {
        let mut vitals = up();
        assert_eq!(failed(&mut vitals, source, 1), Health::Suspect);
        assert_eq!(failed(&mut vitals, source, 1), Health::Suspect);
        assert_eq!(failed(&mut vitals, source, 1), Health::Down);
        assert_eq!(vitals.failures(), 3);
    }
}

/// Two failures of each kind are no three in a row.
#[test]
fn kinds_are_counted_apart() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 2);
    assert_eq!(failed(&mut vitals, Source::Probe, 2), Health::Suspect);
    assert_eq!(vitals.failures(), 2);
}

/// An answer ends the row and the suspicion.
#[test]
fn an_answer_restores_trust() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 2);
    vitals.note_alive(Source::Execution);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// A process that answers probes while its generations fail stays suspect, and its row of failures goes on.
#[test]
fn probes_do_not_excuse_failed_executions() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 2);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Suspect, 2));
    assert_eq!(failed(&mut vitals, Source::Execution, 1), Health::Down);
}

/// When only probes had failed, a good probe is enough.
#[test]
fn a_good_probe_excuses_failed_probes() {
    let mut vitals = up();
    failed(&mut vitals, Source::Probe, 2);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// Bytes of an answer, which may be old, do not bring a backend back; a probe does, when probes had failed.
#[test]
fn only_a_probe_ends_down() {
    let mut vitals = up();
    failed(&mut vitals, Source::Probe, 3);
    vitals.note_alive(Source::Execution);
    assert_eq!(vitals.health(), Health::Down);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// When executions had failed, a probe that is answered proves little: one execution may try, and only its success
/// closes the breaker.
#[test]
fn failed_executions_need_a_trial() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 3);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.admits()), (Health::HalfOpen, true));
    let trial = vitals.note_start();
    assert!(trial != 0 && !vitals.admits());
    // Answers to executions that began before the breaker opened mean nothing.
    vitals.note_end(0, Evidence::Alive, &patience(), moment(1));
    vitals.note_end(0, Evidence::Failure, &patience(), moment(1));
    assert_eq!((vitals.health(), vitals.admits()), (Health::HalfOpen, false));
    vitals.note_end(trial, Evidence::Alive, &patience(), moment(1));
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// A trial that its caller broke off proves nothing, and the next one may try.
#[test]
fn a_cancelled_trial_is_followed_by_another() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 3);
    vitals.note_alive(Source::Probe);
    let first = vitals.note_start();
    vitals.note_end(first, Evidence::None, &patience(), moment(1));
    let second = vitals.note_start();
    assert_ne!(first, second);
    vitals.note_end(first, Evidence::Alive, &patience(), moment(2));
    assert_eq!(
        vitals.health(),
        Health::HalfOpen,
        "the end of an old trial, told late, is no end of this one"
    );
}

/// Every failed trial doubles the time for which the breaker is open, and a probe shortens only the first.
#[test]
fn failed_trials_extend() {
    let mut vitals = up();
    failed(&mut vitals, Source::Execution, 3);
    let mut now = 0;
    for wait in [30, 60, 120, 240, 480, 480] {
        vitals.pass_time(&patience(), at(now + wait - 1));
        assert_eq!(vitals.health(), Health::Down);
        now += wait;
        vitals.pass_time(&patience(), at(now));
        let trial = vitals.note_start();
        vitals.note_end(trial, Evidence::Failure, &patience(), moment(now));
        vitals.note_alive(Source::Probe);
        assert_eq!(vitals.health(), Health::Down);
    }
}

/// A row of aborts without a token opens the breaker; an answer in between ends the row.
#[test]
fn empty_aborts_in_a_row_bring_down() {
    let mut vitals = up();
    for last in [Evidence::Alive, Evidence::EmptyAbort] {
        for _ in 0..7 {
            vitals.note_end(0, Evidence::EmptyAbort, &patience(), moment(0));
        }
        assert_eq!(vitals.health(), Health::Up);
        vitals.note_end(0, last, &patience(), moment(0));
    }
    assert_eq!(vitals.health(), Health::Down);
}

/// Silence makes a suspect that neither time nor a liveness probe clears, only something that generates.
#[test]
fn stalls_need_tokens() {
    for (generated, health) in [(true, Health::Up), (false, Health::Down)] {
        let mut vitals = up();
        vitals.note_stall(moment(0));
        vitals.pass_time(&patience(), at(1000));
        vitals.note_alive(Source::Probe);
        assert_eq!((vitals.health(), vitals.is_stalled()), (Health::Suspect, true));
        vitals.note_generated(generated, &patience(), moment(1000));
        assert_eq!(vitals.health(), health);
    }
}

/// The budget counts from the loss of trust, and trust regained by time or by an answer starts it anew.
#[test]
fn the_budget_counts_unhealthy_time() {
    let budget = Duration::from_secs(100);
    let mut vitals = up();
    assert!(!vitals.has_exhausted(budget, Duration::from_secs(5000)));
    vitals.note_failure(Source::Probe, &patience(), moment(5000));
    vitals.note_failure(Source::Probe, &patience(), moment(5050));
    assert!(!vitals.has_exhausted(budget, Duration::from_secs(5099)));
    assert!(vitals.has_exhausted(budget, Duration::from_secs(5100)));
    vitals.exhaust();
    assert_eq!(vitals.health(), Health::Down);
    vitals.note_alive(Source::Probe);
    assert!(!vitals.has_exhausted(budget, Duration::from_secs(9999)));
}

/// A backend never reached stays unproven however often it fails, and is up at its first sign of life.
#[test]
fn unproven_until_the_first_sign_of_life() {
    for source in [Source::Execution, Source::Probe] {
        let mut vitals = Vitals::new(false, Duration::ZERO);
        assert_eq!(failed(&mut vitals, Source::Probe, 9), Health::Unproven);
        assert_eq!(vitals.failures(), 9);
        vitals.note_alive(source);
        assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
    }
}

/// Suspicion ends by itself, counted from the last failure; the row of failures does not.
#[test]
fn suspicion_decays() {
    let mut vitals = up();
    vitals.note_failure(Source::Execution, &patience(), moment(0));
    vitals.note_failure(Source::Execution, &patience(), moment(5));
    vitals.pass_time(&patience(), at(10));
    assert_eq!(vitals.health(), Health::Suspect);
    vitals.pass_time(&patience(), at(15));
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 2));
    vitals.note_failure(Source::Execution, &patience(), moment(60));
    assert_eq!(vitals.health(), Health::Down);
    vitals.pass_time(&patience(), at(89));
    assert_eq!(vitals.health(), Health::Down);
}
