use super::{Health, Source, Vitals};
use crate::time::Timestamp;
use std::time::Duration;

const DECAY: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.after(Duration::from_secs(seconds))
}

fn failed(vitals: &mut Vitals, source: Source, times: u32) -> Health {
    for _ in 0..times {
        vitals.note_failure(source, 3, at(0));
    }
    vitals.health()
}

/// One failure makes a suspect, the third in a row of one kind brings the backend down.
#[test]
fn failures_in_a_row_bring_down() {
    for source in [Source::Execution, Source::Probe] {
        let mut vitals = Vitals::new(true);
        assert_eq!(failed(&mut vitals, source, 1), Health::Suspect);
        assert_eq!(failed(&mut vitals, source, 1), Health::Suspect);
        assert_eq!(failed(&mut vitals, source, 1), Health::Down);
        assert_eq!(vitals.failures(), 3);
    }
}

/// Two failures of each kind are no three in a row.
#[test]
fn kinds_are_counted_apart() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 2);
    assert_eq!(failed(&mut vitals, Source::Probe, 2), Health::Suspect);
    assert_eq!(vitals.failures(), 2);
}

/// An answer ends the row and the suspicion.
#[test]
fn an_answer_restores_trust() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 2);
    vitals.note_alive(Source::Execution);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// A process that answers probes while its generations fail stays suspect, and its row of failures goes on.
#[test]
fn probes_do_not_excuse_failed_executions() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 2);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Suspect, 2));
    assert_eq!(failed(&mut vitals, Source::Execution, 1), Health::Down);
}

/// When only probes had failed, a good probe is enough.
#[test]
fn a_good_probe_excuses_failed_probes() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Probe, 2);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// Bytes of an answer, which may be old, do not bring a backend back; a probe does.
#[test]
fn only_a_probe_ends_down() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 3);
    vitals.note_alive(Source::Execution);
    assert_eq!(vitals.health(), Health::Down);
    vitals.note_alive(Source::Probe);
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
}

/// A backend never reached stays unproven however often it fails, and is up at its first sign of life.
#[test]
fn unproven_until_the_first_sign_of_life() {
    for source in [Source::Execution, Source::Probe] {
        let mut vitals = Vitals::new(false);
        assert_eq!(failed(&mut vitals, Source::Probe, 9), Health::Unproven);
        assert_eq!(vitals.failures(), 9);
        vitals.note_alive(source);
        assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 0));
    }
}

/// Suspicion ends by itself, counted from the last failure; the row of failures does not.
#[test]
fn suspicion_decays() {
    let mut vitals = Vitals::new(true);
    vitals.note_failure(Source::Execution, 3, at(0));
    vitals.note_failure(Source::Execution, 3, at(5));
    vitals.decay(DECAY, at(10));
    assert_eq!(vitals.health(), Health::Suspect);
    vitals.decay(DECAY, at(15));
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 2));
}

/// A backend that is down and that nobody probes is tried again, step by step, and falls at its next failure.
#[test]
fn being_down_decays_by_way_of_suspicion() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 3);
    vitals.decay(DECAY, at(9));
    assert_eq!(vitals.health(), Health::Down);
    vitals.decay(DECAY, at(10));
    assert_eq!(vitals.health(), Health::Suspect);
    vitals.decay(DECAY, at(19));
    assert_eq!(vitals.health(), Health::Suspect);
    vitals.decay(DECAY, at(20));
    assert_eq!((vitals.health(), vitals.failures()), (Health::Up, 3));
    vitals.note_failure(Source::Execution, 3, at(21));
    assert_eq!(vitals.health(), Health::Down);
}

/// A dead engine whose probes fail stays down: every failed probe starts the decay anew.
#[test]
fn failed_probes_keep_it_down() {
    let mut vitals = Vitals::new(true);
    failed(&mut vitals, Source::Execution, 3);
    for second in 1..100 {
        vitals.note_failure(Source::Probe, 3, at(second));
        vitals.decay(DECAY, at(second));
        assert_eq!(vitals.health(), Health::Down);
    }
}
