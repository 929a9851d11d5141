//! The health of one incarnation and the evidence behind it.

use super::Health;
use crate::config::PoolConfig;
use crate::time::Timestamp;
use std::time::Duration;

/// How often failed trials double the time for which the breaker stays open.
const DOUBLINGS: u32 = 4;

/// Where a piece of evidence comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An execution: an answer, or bytes of one.
    Execution,
    /// A liveness probe.
    Probe,
}

/// What the end of an execution says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    Alive,
    /// Cut short by the engine before its first token, for no reason of ours.
    EmptyAbort,
    Failure,
    /// Nothing: the caller's decision.
    None,
}

/// How many failures are how bad; the part of [`PoolConfig`] that is about health.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) down_after: u32,
    pub(crate) zero_token_aborts: u32,
    pub(crate) suspect_decay: Duration,
    pub(crate) half_open_after: Option<Duration>,
}

impl Patience {
    pub(crate) fn of(config: &PoolConfig) -> Self {
        Self {
            down_after: config.down_after.max(1),
            zero_token_aborts: config.zero_token_aborts.max(1),
            suspect_decay: config.suspect_decay,
            half_open_after: config.half_open_after,
        }
    }
}

/// Who may try a backend whose breaker is half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    Free,
    /// Taken by the execution with this number.
    Taken(u32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vitals {
    health: Health,
    failed_executions: u32,
    failed_probes: u32,
    empty_aborts: u32,
    /// Executions were silent for too long; only an execution, or a probe that generates, says otherwise.
    stalled: bool,
    last_failure: Timestamp,
    /// On the active clock, since its trust was lost.
    unhealthy_since: Option<Duration>,
    /// How often the breaker opened since the last success.
    trips: u32,
    trial: Trial,
    /// The number of the last trial; numbers begin at 1.
    last_trial: u32,
}

impl Vitals {
    /// A new incarnation, at this time of the active clock.
    pub(crate) fn new(proven: bool, active: Duration) -> Self {
        Self {
            health: if proven { Health::Up } else { Health::Unproven },
            failed_executions: 0,
            failed_probes: 0,
            empty_aborts: 0,
            stalled: false,
            last_failure: Timestamp::ZERO,
            unhealthy_since: (!proven).then_some(active),
            trips: 0,
            trial: Trial::Free,
            last_trial: 0,
        }
    }

    #[inline]
    pub(crate) const fn health(&self) -> Health {
        self.health
    }

    /// Consecutive failures of the kind that has more of them.
    pub(crate) fn failures(&self) -> u32 {
        self.failed_executions.max(self.failed_probes)
    }

    /// Whether executions failed since the last sign of life.
    pub(crate) const fn has_failed_executions(&self) -> bool {
        self.failed_executions > 0
    }

    pub(crate) const fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether executions may start here.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        match self.health {
            Health::Up | Health::Suspect => true,
            Health::HalfOpen => self.trial == Trial::Free,
            Health::Unproven | Health::Down => false,
        }
    }

    /// Takes note of an execution that starts here; the number of its trial, 0 when it is none.
    #[inline]
    pub(crate) fn note_start(&mut self) -> u32 {
        if self.health != Health::HalfOpen {
            return 0;
        }
        self.last_trial = self.last_trial.wrapping_add(1).max(1);
        self.trial = Trial::Taken(self.last_trial);
        self.last_trial
    }

    fn trust(&mut self) {
        let last_trial = self.last_trial;
        *self = Self::new(true, Duration::ZERO);
        self.last_trial = last_trial;
    }

    /// Takes in a sign of life.
    #[inline]
    pub(crate) fn note_alive(&mut self, source: Source) {
        match (source, self.health) {
            // The common case, once per settled lease.
            (Source::Execution, Health::Up) => {
                (self.failed_executions, self.failed_probes, self.empty_aborts) = (0, 0, 0);
                self.unhealthy_since = None;
            }
            // An answer may be older than the failures that brought the backend down; a probe is not.
            (Source::Execution, Health::Down | Health::HalfOpen) => {}
            (Source::Execution, Health::Unproven | Health::Suspect) | (Source::Probe, Health::Unproven) => self.trust(),
            (Source::Probe, Health::Down) => self.reopen_by_probe(),
            (Source::Probe, Health::Up | Health::Suspect | Health::HalfOpen) => {
                self.failed_probes = 0;
                if self.health != Health::HalfOpen && self.failed_executions == 0 && !self.stalled {
                    self.health = Health::Up;
                    self.unhealthy_since = None;
                }
            }
        }
    }

    #[cold]
    fn reopen_by_probe(&mut self) {
        self.failed_probes = 0;
        if !self.is_tripped() {
            self.trust();
        } else if self.trips <= 1 {
            self.half_open();
        }
    }

    /// Whether it is down because its executions failed.
    const fn is_tripped(&self) -> bool {
        self.trips > 0
    }

    fn half_open(&mut self) {
        (self.health, self.trial) = (Health::HalfOpen, Trial::Free);
    }

    /// Takes in the end of an execution that started as the trial of this number, or as none (0).
    #[inline]
    pub(crate) fn note_end(&mut self, trial: u32, evidence: Evidence, patience: &Patience, at: (Timestamp, Duration)) {
        if trial != 0 && self.health == Health::HalfOpen && self.trial == Trial::Taken(trial) {
            match evidence {
                Evidence::Alive => self.trust(),
                Evidence::Failure | Evidence::EmptyAbort => self.trip(at.0),
                // The trial proved nothing; another may follow.
                Evidence::None => self.trial = Trial::Free,
            }
            return;
        }
        match evidence {
            Evidence::Alive => self.note_alive(Source::Execution),
            Evidence::Failure => self.note_failure(Source::Execution, patience, at),
            Evidence::EmptyAbort => {
                // It answers, so it is no failure by itself; a row of them is.
                self.empty_aborts = self.empty_aborts.saturating_add(1);
                if self.empty_aborts >= patience.zero_token_aborts
                    && matches!(self.health, Health::Up | Health::Suspect)
                {
                    self.unhealthy_since.get_or_insert(at.1);
                    self.trip(at.0);
                }
            }
            Evidence::None => {}
        }
    }

    fn trip(&mut self, now: Timestamp) {
        self.trips = self.trips.saturating_add(1);
        self.last_failure = now;
        (self.health, self.trial) = (Health::Down, Trial::Free);
    }

    /// Takes in a failure; enough of one kind in a row bring the backend down.
    pub(crate) fn note_failure(&mut self, source: Source, patience: &Patience, (now, active): (Timestamp, Duration)) {
        let count = match source {
            Source::Execution => &mut self.failed_executions,
            Source::Probe => &mut self.failed_probes,
        };
        *count = count.saturating_add(1);
        let is_last_straw = *count >= patience.down_after;
        match (self.health, source) {
            (Health::Unproven, _) | (Health::Down, Source::Probe) => self.last_failure = now,
            // What ends now may have begun before the breaker opened: it must not keep it open longer.
            (Health::Down | Health::HalfOpen, Source::Execution) => {}
            (Health::HalfOpen, Source::Probe) => {
                self.last_failure = now;
                self.health = Health::Down;
            }
            (Health::Up | Health::Suspect, _) => {
                self.last_failure = now;
                self.unhealthy_since.get_or_insert(active);
                self.health = if is_last_straw { Health::Down } else { Health::Suspect };
                if is_last_straw && source == Source::Execution {
                    self.trip(now);
                }
            }
        }
    }

    /// Takes in that the process is dead.
    pub(crate) fn note_dead(&mut self, (now, active): (Timestamp, Duration)) {
        if matches!(self.health, Health::Up | Health::Suspect | Health::HalfOpen) {
            self.unhealthy_since.get_or_insert(active);
            self.trip(now);
        }
    }

    /// Takes in that executions run and nothing was heard of them for too long.
    pub(crate) fn note_stall(&mut self, (now, active): (Timestamp, Duration)) {
        if matches!(self.health, Health::Up | Health::Suspect) {
            self.stalled = true;
            self.last_failure = now;
            self.unhealthy_since.get_or_insert(active);
            self.health = Health::Suspect;
        }
    }

    /// Takes in the answer to a probe that generates: as good as an execution, and newer than any of them. Silence after
    /// silence is enough.
    pub(crate) fn note_generated(&mut self, alive: bool, patience: &Patience, at: (Timestamp, Duration)) {
        if alive {
            self.trust();
        } else if self.stalled && self.health == Health::Suspect {
            self.trip(at.0);
        } else {
            self.note_failure(Source::Execution, patience, at);
        }
    }

    /// Brings a backend down whose budget is used up.
    pub(crate) fn exhaust(&mut self) {
        if self.health == Health::Suspect {
            self.health = Health::Down;
        }
    }

    /// Whether it has been unhealthy for `budget` of the active clock.
    pub(crate) fn has_exhausted(&self, budget: Duration, active: Duration) -> bool {
        self.health != Health::Up
            && self
                .unhealthy_since
                .is_some_and(|since| active.saturating_sub(since) >= budget)
    }

    /// For how long it has been unhealthy in a row, by the active clock.
    pub(crate) fn unhealthy_for(&self, active: Duration) -> Duration {
        match self.health {
            Health::Up => Duration::ZERO,
            _ => active.saturating_sub(self.unhealthy_since.unwrap_or(active)),
        }
    }

    /// When time alone changes something next, if it does: a suspicion ends, or a breaker becomes half open.
    #[inline]
    pub(crate) fn next_change(&self, patience: &Patience) -> Option<Timestamp> {
        match self.health {
            Health::Suspect if !self.stalled => Some(self.last_failure.after(patience.suspect_decay)),
            Health::Down if self.is_tripped() => patience.half_open_after.map(|open| {
                let doublings = (self.trips - 1).min(DOUBLINGS);
                self.last_failure.after(open.saturating_mul(1 << doublings))
            }),
            _ => None,
        }
    }

    /// Lets what is due happen. The failure counts stay: no sign of life has interrupted the row.
    pub(crate) fn pass_time(&mut self, patience: &Patience, now: Timestamp) {
        if self.next_change(patience).is_some_and(|due| due <= now) {
            if self.health == Health::Suspect {
                self.health = Health::Up;
                self.unhealthy_since = None;
            } else {
                self.half_open();
            }
        }
    }
}
