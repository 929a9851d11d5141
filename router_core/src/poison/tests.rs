//! What the guard decides, in virtual time.

mod property;

use super::{BREAKS_CAP, BREAKS_KEPT, ENTRIES_CAP, PoisonSubject, YOUNG};
use crate::error::Error;
use crate::health::Health;
use crate::lease::{Outcome, Settlement};
use crate::membership::{BackendRef, BackendSpec};
use crate::pool::{AcquireRequest, Grant, Pool, PoolConfig};
use crate::time::Timestamp;
use std::time::Duration;

const QUARANTINE: Duration = Duration::from_secs(600);
const PRINT: u64 = 0xfeed;

struct Bench {
    pool: Pool,
    now: Timestamp,
}

impl Bench {
    /// A pool of this many engines, `e0` and on.
    fn new(engines: u16) -> Self {
        Self::with(PoolConfig::default(), engines)
    }

    fn with(config: PoolConfig, engines: u16) -> Self {
        let mut bench = Self {
            pool: Pool::new(config),
            now: Timestamp::ZERO,
        };
        for number in 0..engines {
            let spec = BackendSpec::parse(&format!("h:{}", number + 1), 1.0).expect("valid");
            let spec = spec.with_id(format!("e{number}"));
            bench.pool.add_backend(spec, bench.now).expect("new");
        }
        bench
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.pool.tick(self.now);
    }

    fn try_acquire(&mut self, session: Option<&str>, print: u64) -> Result<Grant, Error> {
        let request = match session {
            Some(key) => AcquireRequest::for_session(key),
            None => AcquireRequest::unpinned(),
        };
        self.pool.acquire(&request.printed(print), self.now)
    }

    fn acquire(&mut self, session: Option<&str>, print: u64) -> Grant {
        self.try_acquire(session, print).expect("granted")
    }

    fn break_off(&mut self, grant: &Grant, print: u64, answered: bool) {
        let settlement = Settlement::new(Outcome::Ambiguous).of_print(Some(print), answered);
        self.pool.settle(grant.lease, settlement, self.now).expect("open");
    }

    fn die(&mut self, backend: BackendRef) {
        assert!(self.pool.report_death(backend, "exit code -9", self.now));
    }

    /// Runs something that is broken off by the death of its engine; which that was.
    fn kill(&mut self, session: Option<&str>, print: u64, answered: bool) -> BackendRef {
        let grant = self.acquire(session, print);
        self.break_off(&grant, print, answered);
        self.die(grant.backend.reference);
        grant.backend.reference
    }

    fn refusal(&mut self, session: Option<&str>, print: u64) -> Option<String> {
        match self.try_acquire(session, print) {
            Err(error @ Error::PoisonSuspected { .. }) => Some(error.to_string()),
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(grant) => {
                let settlement = Settlement::new(Outcome::Completed);
                self.pool.settle(grant.lease, settlement, self.now).expect("open");
                None
            }
        }
    }
}

/// Two deaths, and the same request is refused whatever its session; so is the session whatever it sends. Others run.
#[test]
fn two_deaths_are_enough() {
    let mut bench = Bench::new(3);
    let first = bench.kill(Some("s"), PRINT, false);
    assert_eq!(bench.pool.poison_entries(bench.now).len(), 2);
    let second = bench.kill(Some("s"), PRINT, false);
    assert_ne!(first, second);
    let told = bench.refusal(None, PRINT).expect("its fingerprint");
    assert!(
        told.contains("engines e0 (generation 1) and e1 (generation 2) died"),
        "{told}"
    );
    assert!(told.contains("the last: exit code -9"), "{told}");
    let told = bench.refusal(Some("s"), 1).expect("its session");
    assert!(told.contains("session \"s\""), "{told}");
    assert_eq!(bench.refusal(Some("other"), 2), None);
    assert_eq!(bench.refusal(None, 3), None);
    let statistics = bench.pool.statistics();
    assert_eq!((statistics.outstanding, statistics.poison.deaths), (0, 2));
    assert_eq!((statistics.poison.refusals, statistics.poison.refused), (2, 2));
    let error = bench.try_acquire(None, PRINT).expect_err("refused");
    assert_eq!((error.code(), error.retryable()), ("poison_suspected", false));
}

/// Whoever was in the middle of an answer, or had run for long, survives what a fresh request would not.
#[test]
fn neighbours_count_half() {
    for is_old in [true, false] {
        let mut bench = Bench::new(5);
        for death in 0..4 {
            assert_eq!(bench.refusal(Some("neighbour"), 1), None, "after {death} deaths");
            let neighbour = bench.acquire(Some("neighbour"), 1);
            if is_old {
                bench.pass(YOUNG + Duration::from_secs(1));
            }
            bench.break_off(&neighbour, 1, !is_old);
            bench.die(neighbour.backend.reference);
        }
        assert!(bench.refusal(Some("neighbour"), 1).is_some(), "by rule, in the end");
    }
}

/// The order of events does not matter: what breaks off after the death was known was in flight as well. What was granted
/// later was not.
#[test]
fn a_late_break_counts() {
    let mut bench = Bench::new(3);
    for _ in 0..2 {
        let grant = bench.acquire(None, PRINT);
        bench.die(grant.backend.reference);
        bench.pass(Duration::from_secs(1));
        bench.break_off(&grant, PRINT, false);
    }
    assert!(bench.refusal(None, PRINT).is_some());

    let mut bench = Bench::new(1);
    let backend = bench.pool.find_backend("e0").expect("known").reference;
    bench.pool.note_refused(backend, bench.now);
    bench.pass(Duration::from_secs(1));
    let grant = bench.acquire(None, PRINT);
    bench.break_off(&grant, PRINT, false);
    assert!(bench.pool.poison_entries(bench.now).is_empty());
}

/// A broken connection is no death: not when the engine answers a later probe, and not when no news comes.
#[test]
fn a_break_alone_is_no_death() {
    let mut bench = Bench::new(1);
    let backend = bench.pool.find_backend("e0").expect("known").reference;
    for _ in 0..2 {
        let grant = bench.acquire(None, PRINT);
        bench.break_off(&grant, PRINT, false);
        bench.pool.note_answered(backend, bench.now, bench.now);
        bench.pool.note_refused(backend, bench.now);
        bench.pool.note_answered(backend, bench.now, bench.now);
    }
    assert!(bench.pool.poison_entries(bench.now).is_empty());

    let grant = bench.acquire(None, PRINT);
    bench.break_off(&grant, PRINT, false);
    bench.pass(BREAKS_KEPT + Duration::from_secs(1));
    bench.die(backend);
    assert!(bench.pool.poison_entries(bench.now).is_empty());
}

/// The answer of a probe that began before the break says nothing about what happened after.
#[test]
fn an_earlier_probe_absolves_nobody() {
    let mut bench = Bench::new(1);
    let backend = bench.pool.find_backend("e0").expect("known").reference;
    let probe = bench.pool.begin_probe(backend, bench.now).expect("may be asked");
    bench.pass(Duration::from_millis(1));
    let grant = bench.acquire(None, PRINT);
    bench.break_off(&grant, PRINT, false);
    assert!(bench.pool.finish_probe(&probe, true, bench.now));
    bench.pool.note_refused(backend, bench.now);
    assert_eq!(bench.pool.poison_entries(bench.now).len(), 1);
}

/// An engine that was started again under the same registration can die again; one death is counted once.
#[test]
fn one_engine_can_die_twice() {
    let mut bench = Bench::new(1);
    let backend = bench.kill(None, PRINT, false);
    bench.die(backend);
    bench.pool.note_refused(backend, bench.now);
    assert_eq!(bench.pool.statistics().poison.deaths, 1);
    assert_eq!(bench.pool.statistics().backends[0].health, Health::Down);
    bench.pass(Duration::from_secs(40));
    let probe = bench.pool.begin_probe(backend, bench.now).expect("may be asked");
    assert!(bench.pool.finish_probe(&probe, true, bench.now));
    bench.kill(None, PRINT, false);
    bench.pass(Duration::from_secs(40));
    bench.pool.report_probe(backend, true, bench.now);
    assert!(bench.refusal(None, PRINT).is_some());
}

/// A session with many executions on one engine coincided with one death.
#[test]
fn one_death_counts_once_per_suspect() {
    let mut bench = Bench::new(2);
    let grants: Vec<Grant> = (0..5).map(|_| bench.acquire(Some("s"), PRINT)).collect();
    for grant in &grants {
        bench.break_off(grant, PRINT, false);
    }
    bench.die(grants[0].backend.reference);
    assert_eq!(bench.refusal(Some("s"), PRINT), None);
    let entries = bench.pool.poison_entries(bench.now);
    assert!(entries.iter().all(|entry| entry.strikes.len() == 1 && !entry.refused));
}

/// The quarantine ends by itself, counted from the last death; a single death is forgotten as late.
#[test]
fn quarantine_ends() {
    let mut bench = Bench::new(5);
    bench.kill(None, PRINT, false);
    bench.pass(QUARANTINE / 2);
    bench.kill(None, PRINT, false);
    bench.pass(QUARANTINE.saturating_sub(Duration::from_secs(1)));
    assert!(bench.refusal(None, PRINT).is_some());
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.refusal(None, PRINT), None);
    assert_eq!(bench.pool.statistics().poison.suspects, 0);
    // Two deaths with the whole quarantine in between have nothing to do with each other.
    bench.kill(None, PRINT, false);
    bench.pass(QUARANTINE);
    bench.kill(None, PRINT, false);
    assert_eq!(bench.refusal(None, PRINT), None);
}

/// An operator clears one entry, or all.
#[test]
fn entries_are_cleared() {
    let mut bench = Bench::new(3);
    bench.kill(Some("s"), PRINT, false);
    bench.kill(Some("s"), PRINT, false);
    let entries = bench.pool.poison_entries(bench.now);
    assert_eq!(entries.len(), 2);
    let print = entries.iter().find(|entry| entry.subject == PoisonSubject::Fingerprint);
    assert_eq!(print.expect("listed").id, PRINT);
    assert_eq!(bench.pool.clear_poison(Some(1), bench.now), 0);
    assert_eq!(bench.pool.clear_poison(Some(PRINT), bench.now), 1);
    assert_eq!(bench.refusal(None, PRINT), None);
    assert!(bench.refusal(Some("s"), 1).is_some());
    assert_eq!(bench.pool.clear_poison(None, bench.now), 1);
    assert_eq!(bench.refusal(Some("s"), 1), None);
    let (events, _) = bench.pool.take_events();
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    let told = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(
        told("died (exit code -9) under 2 requests and sessions; none of them is refused"),
        "{lines:?}"
    );
    assert!(told("2 are refused from now on, such as 000000000000feed"), "{lines:?}");
    assert!(told("1 suspects of killing engines were cleared"), "{lines:?}");
}

/// When it depends on engines nobody has looked at since they broke off, these are named; and only then.
#[test]
fn doubts_name_the_engines_to_ask() {
    let mut bench = Bench::new(3);
    let request = AcquireRequest::unpinned().printed(PRINT);
    let mut broken = Vec::new();
    for _ in 0..2 {
        assert!(bench.pool.poison_doubts(&request, bench.now).is_empty());
        let grant = bench.acquire(None, PRINT);
        bench.break_off(&grant, PRINT, false);
        broken.push(grant.backend.reference);
    }
    let doubted: Vec<BackendRef> = bench
        .pool
        .poison_doubts(&request, bench.now)
        .iter()
        .map(|backend| backend.reference)
        .collect();
    assert_eq!(doubted, broken);
    let other = AcquireRequest::for_session("other").printed(1);
    assert!(bench.pool.poison_doubts(&other, bench.now).is_empty());
    bench.pool.note_refused(broken[0], bench.now);
    assert_eq!(bench.pool.poison_doubts(&request, bench.now).len(), 1);
    bench.pool.note_refused(broken[1], bench.now);
    assert!(bench.pool.poison_doubts(&request, bench.now).is_empty());
    assert!(bench.refusal(None, PRINT).is_some());
}

/// What waits for a backend is looked at when it would be granted.
#[test]
fn who_waits_is_refused_as_well() {
    let mut bench = Bench::new(2);
    let one = bench.acquire(Some("s"), PRINT);
    bench.break_off(&one, PRINT, false);
    bench.die(one.backend.reference);
    let two = bench.acquire(Some("s"), PRINT);
    let other = if two.backend.id == "e0" { "e1" } else { "e0" };
    bench.pool.drain_backend(other, bench.now).expect("known");
    bench.break_off(&two, PRINT, false);
    bench.pool.drain_backend(&two.backend.id, bench.now).expect("known");
    let until = bench.now.after(Duration::from_secs(9));
    let request = AcquireRequest::for_session("s").printed(PRINT);
    let parked = match bench.pool.acquire_or_park(&request, until, bench.now) {
        Ok(crate::waiters::Acquisition::Parked(parked)) => parked,
        answer => panic!("not parked: {answer:?}"),
    };
    bench.die(two.backend.reference);
    let spec = BackendSpec::parse("h:9", 1.0).expect("valid");
    bench.pool.add_backend(spec, bench.now).expect("new");
    let answer = bench.pool.claim(parked.ticket, bench.now).expect("answered");
    assert_eq!(answer.expect_err("refused").code(), "poison_suspected");
}

/// Sessions of senders are their own; an outcome without evidence accuses nobody; zero deaths switch the guard off.
#[test]
fn who_is_not_accused() {
    let mut bench = Bench::with(
        PoolConfig {
            poison_deaths: 0,
            ..PoolConfig::default()
        },
        3,
    );
    bench.kill(Some("s"), PRINT, false);
    bench.kill(Some("s"), PRINT, false);
    assert_eq!(bench.refusal(Some("s"), PRINT), None);
    assert!(!bench.pool.is_watchful());

    let mut bench = Bench::new(1);
    for outcome in Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Lost) {
        let grant = bench.acquire(Some("s"), PRINT);
        let settlement = Settlement::new(outcome).of_print(Some(PRINT), false);
        let settlement = if outcome == Outcome::Ambiguous {
            settlement.without_evidence()
        } else {
            settlement
        };
        bench.pool.settle(grant.lease, settlement, bench.now).expect("open");
        bench.pool.report_probe(grant.backend.reference, true, bench.now);
    }
    assert!(!bench.pool.is_watchful());
}

/// Neither breaks nor suspects grow without end, and those that are refused stay.
#[test]
fn memory_is_bounded() {
    let config = PoolConfig {
        down_after: u32::MAX,
        ..PoolConfig::default()
    };
    let mut bench = Bench::with(config, 3);
    bench.kill(None, PRINT, false);
    bench.kill(None, PRINT, false);
    for print in 0..BREAKS_CAP as u64 + 100 {
        let session = format!("s{print}");
        let grant = bench.acquire(Some(&session), print);
        bench.break_off(&grant, print, false);
    }
    let last = bench.pool.find_backend("e2").expect("known").reference;
    bench.die(last);
    let statistics = bench.pool.statistics().poison;
    assert!(statistics.suspects as usize <= ENTRIES_CAP, "{statistics:?}");
    assert!(statistics.suspects as usize > ENTRIES_CAP / 2, "{statistics:?}");
    assert_eq!(statistics.refused, 1);
    bench.pass(QUARANTINE);
    assert!(!bench.pool.is_watchful());
}
