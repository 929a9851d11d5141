//! What speaks for the end of one execution.
//!
//! An abort is answered before it is carried out, and answered alike for ids that the engine never had. So the answer is
//! the beginning of the proof. What ends it is one of:
//!
//! * the engine took the abort in, its schedulers have published twice since (they saw the abort, and did the step in
//!   which it takes effect), and each time it had no more executions than leases stand for. The last condition is for
//!   executions that no id reaches, such as those of a request with `n` > 1;
//! * the engine had no execution at all, twice in a row: for those whose id nobody knows;
//! * nobody listens at the engine's address any more, twice in a row.

use crate::loads::{Loads, Said};

/// How often something is seen before it counts.
const TWICE: u32 = 2;

/// One execution, since its end is known to be unknown.
#[derive(Debug, Default)]
pub(crate) struct Case {
    aborted: Trail,
    idle: Trail,
    refused: u32,
}

/// Snapshots of which each is later than the one before.
#[derive(Debug, Default)]
struct Trail {
    last: Option<Loads>,
    length: u32,
}

impl Trail {
    fn follow(&mut self, loads: &Loads) {
        match &self.last {
            Some(last) if !loads.is_later_than(last) => return,
            Some(_) | None => self.length += 1,
        }
        self.last = Some(loads.clone());
    }

    fn lose(&mut self) {
        *self = Self::default();
    }
}

impl Case {
    /// Takes in one look at the engine; whether the execution is over.
    ///
    /// `abort_accepted`: every id of the execution was in an abort that the engine answered well just before it was
    /// asked. `accounted`: other executions on it that leases stand for.
    pub(crate) fn look(&mut self, said: &Said, abort_accepted: bool, accounted: u64) -> bool {
        let Said::Loads(loads) = said else {
            self.refused = if *said == Said::Refused { self.refused + 1 } else { 0 };
            return self.refused >= TWICE;
        };
        self.refused = 0;
        if loads.total() == 0 {
            self.idle.follow(loads);
        } else {
            self.idle.lose();
        }
        if loads.total() > accounted {
            self.aborted.lose();
        }
        if abort_accepted || self.aborted.last.is_some() {
            self.aborted.follow(loads);
        }
        // The first snapshot may be older than the abort.
        self.idle.length >= TWICE || self.aborted.length > TWICE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(at: f64, running: u64) -> Said {
        let body =
            format!("{{\"loads\":[{{\"timestamp\":{at},\"num_running_reqs\":{running},\"num_waiting_reqs\":0}}]}}");
        Said::Loads(Loads::parse(body.as_bytes()).expect("loads"))
    }

    /// How many looks it takes; `None` when they were not enough.
    fn looks(accepted: bool, accounted: u64, seen: &[Said]) -> Option<usize> {
        let mut case = Case::default();
        seen.iter()
            .position(|said| case.look(said, accepted, accounted))
            .map(|last| last + 1)
    }

    /// After an accepted abort a busy engine proves the end by two later snapshots.
    #[test]
    fn an_abort_and_two_later_snapshots() {
        let seen = [said(1.0, 3), said(2.0, 3), said(3.0, 3)];
        assert_eq!(looks(true, 3, &seen), Some(3));
        assert_eq!(looks(false, 3, &seen), None, "nobody knows its id");
    }

    /// A scheduler that publishes nothing new proves nothing: it is paused, hung or in a long step.
    #[test]
    fn stale_snapshots_prove_nothing() {
        let seen: Vec<Said> = std::iter::repeat_n(said(1.0, 1), 50).collect();
        assert_eq!(looks(true, 1, &seen), None);
        let seen: Vec<Said> = std::iter::repeat_n(said(1.0, 0), 50).collect();
        assert_eq!(looks(false, 0, &seen), None);
    }

    /// An engine with more executions than leases stand for may still have this one, whatever it said to the abort.
    #[test]
    fn unaccounted_executions_keep_the_case_open() {
        let busy = [said(1.0, 4), said(2.0, 4), said(3.0, 4), said(4.0, 4), said(5.0, 4)];
        assert_eq!(looks(true, 3, &busy), None);
        let then = [said(1.0, 4), said(2.0, 4), said(3.0, 3), said(4.0, 3), said(5.0, 3)];
        assert_eq!(looks(true, 3, &then), Some(4));
    }

    /// Nothing at all, twice, is the end of everything.
    #[test]
    fn idle_twice() {
        assert_eq!(looks(false, 9, &[said(1.0, 0), said(2.0, 0)]), Some(2));
        assert_eq!(looks(false, 9, &[said(1.0, 0), said(2.0, 1), said(3.0, 0)]), None);
    }

    /// A process that is gone runs nothing; one refusal may be a restart of its listener.
    #[test]
    fn refused_twice() {
        assert_eq!(looks(true, 0, &[Said::Refused, Said::Refused]), Some(2));
        let silent = Said::Nothing("no answer".to_owned());
        assert_eq!(looks(true, 0, &[Said::Refused, silent.clone(), Said::Refused]), None);
        assert_eq!(looks(true, 0, &[silent.clone(), silent.clone(), silent]), None);
    }
}
