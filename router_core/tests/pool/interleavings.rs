//! Invariants I1, I6 and I7, and exact agreement with the [`model`](crate::model), over random interleavings of every
//! operation, with stale references, double settlements, exclusions and a clock that also runs backwards.

use crate::model::{Incarnation, Model};
use crate::support::Bench;
use proptest::prelude::*;
use router_core::error::Error;
use router_core::health::Health;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::{BackendRef, BackendSpec};
use router_core::pool::{ClosedSession, PoolConfig};
use router_core::stats::BackendStatistics;
use router_core::time::Timestamp;
use std::time::Duration;

const TTL: u64 = 20;
const CAP: usize = 4;
const LIMIT: u32 = 12;

#[derive(Clone, Debug)]
enum Operation {
    Add {
        port: u16,
        capacity: u32,
    },
    Drain {
        port: u16,
    },
    Resume {
        port: u16,
    },
    Remove {
        port: u16,
    },
    Acquire {
        session: Option<u8>,
        exclude: Vec<prop::sample::Index>,
    },
    Settle {
        lease: prop::sample::Index,
        outcome: Outcome,
    },
    SettleAgain {
        lease: prop::sample::Index,
    },
    Close {
        session: u8,
    },
    Evidence {
        backend: prop::sample::Index,
        evidence: Evidence,
    },
    Pass {
        seconds: i8,
    },
    Tick,
}

#[derive(Clone, Copy, Debug)]
enum Evidence {
    Probe(bool),
    Bytes,
}

fn operation() -> impl Strategy<Value = Operation> {
    let port = 1u16..6;
    let index = any::<prop::sample::Index>;
    let exclude = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(index(), 1..4)];
    let evidence = prop_oneof![any::<bool>().prop_map(Evidence::Probe), Just(Evidence::Bytes)];
    prop_oneof![
        3 => (port.clone(), 1u32..4).prop_map(|(port, capacity)| Operation::Add { port, capacity }),
        1 => port.clone().prop_map(|port| Operation::Drain { port }),
        1 => port.clone().prop_map(|port| Operation::Resume { port }),
        1 => port.prop_map(|port| Operation::Remove { port }),
        12 => (prop::option::weighted(0.8, 0u8..7), exclude)
            .prop_map(|(session, exclude)| Operation::Acquire { session, exclude }),
        10 => (index(), prop::sample::select(&Outcome::ALL[..7]))
            .prop_map(|(lease, outcome)| Operation::Settle { lease, outcome }),
        1 => index().prop_map(|lease| Operation::SettleAgain { lease }),
        2 => (0u8..7).prop_map(|session| Operation::Close { session }),
        4 => (index(), evidence).prop_map(|(backend, evidence)| Operation::Evidence { backend, evidence }),
        3 => (-5i8..25).prop_map(|seconds| Operation::Pass { seconds }),
        1 => Just(Operation::Tick),
    ]
}

/// The pool, the model, and everything that was ever handed out.
struct Trial {
    bench: Bench,
    model: Model,
    references: Vec<BackendRef>,
    settled: Vec<LeaseId>,
}

impl Trial {
    fn new() -> Self {
        let config = PoolConfig {
            session_ttl: Duration::from_secs(TTL),
            session_cap: CAP,
            max_outstanding: Some(LIMIT),
            down_after: 2,
            suspect_decay: Duration::from_secs(5),
            hash_seed: 42,
            half_open_after: None,
            ..PoolConfig::default()
        };
        let model = Model::new(TTL, CAP, LIMIT as usize);
        Self {
            bench: Bench::new(config, &[]),
            model,
            references: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        // Suspicions that are over end at the next operation, whichever it is.
        self.bench.pool.close_session("nobody", self.bench.now);
        self.copy_health();
        match operation {
            Operation::Add { port, capacity } => self.add(*port, *capacity)?,
            Operation::Drain { port } => {
                let drained = self.bench.pool.drain_backend(&port.to_string(), self.bench.now);
                let expected = self.model.live_at(*port).map(|incarnation| {
                    incarnation.draining = true;
                    incarnation.generation
                });
                self.check_outstanding(drained, expected)?;
            }
            Operation::Resume { port } => {
                let resumed = self.bench.pool.resume_backend(&port.to_string(), self.bench.now);
                let known = self
                    .model
                    .live_at(*port)
                    .map(|incarnation| incarnation.draining = false);
                prop_assert_eq!(resumed.is_ok(), known.is_some());
            }
            Operation::Remove { port } => {
                let removed = self.bench.pool.remove_backend(&port.to_string(), self.bench.now);
                let expected = self.model.live_at(*port).map(|incarnation| {
                    incarnation.removed = true;
                    incarnation.generation
                });
                self.check_outstanding(removed, expected)?;
                self.model.forget();
            }
            Operation::Acquire { session, exclude } => self.acquire(*session, exclude)?,
            Operation::Settle { lease, outcome } => {
                let open: Vec<LeaseId> = self.model.leases.keys().copied().collect();
                if !open.is_empty() {
                    self.settle(*lease.get(&open), *outcome);
                }
            }
            Operation::SettleAgain { lease } => {
                if !self.settled.is_empty() {
                    let lease = *lease.get(&self.settled);
                    let before = self.bench.statistics();
                    let again = self
                        .bench
                        .pool
                        .settle(lease, Settlement::new(Outcome::Failed), self.bench.now);
                    prop_assert_eq!(again, Err(Error::UnknownLease));
                    prop_assert_eq!(self.bench.statistics(), before);
                }
            }
            Operation::Close { session } => {
                let closed = self.bench.pool.close_session(&session.to_string(), self.bench.now);
                let (known, open) = self.model.close(*session);
                let open_leases = u32::try_from(open).expect("few leases");
                prop_assert_eq!(closed, ClosedSession { known, open_leases });
            }
            Operation::Evidence { backend, evidence } => {
                if !self.references.is_empty() {
                    self.report(*backend.get(&self.references), *evidence)?;
                }
            }
            Operation::Pass { seconds } => {
                let seconds_now = self.bench.now.as_nanos() / 1_000_000_000;
                let seconds_now = seconds_now.saturating_add_signed(i64::from(*seconds));
                self.bench.now = Timestamp::ZERO.after(Duration::from_secs(seconds_now));
                self.model.now = self.model.now.max(seconds_now);
            }
            Operation::Tick => {
                self.bench.pool.tick(self.bench.now);
                self.model.expire(usize::MAX);
            }
        }
        self.copy_health();
        self.check()
    }

    fn add(&mut self, port: u16, capacity: u32) -> Result<(), TestCaseError> {
        let spec = BackendSpec::parse(&format!("h:{port}"), f64::from(capacity)).expect("a valid backend");
        let spec = spec.with_id(port.to_string());
        let info = self.bench.pool.add_backend(spec, self.bench.now).expect("new or equal");
        let generation = info.reference.generation();
        if let Some(live) = self.model.live_at(port) {
            live.capacity = capacity.into();
            prop_assert_eq!(generation, live.generation);
        } else {
            prop_assert!(self.references.iter().all(|other| other.generation() < generation));
            self.references.push(info.reference);
            self.model.incarnations.push(Incarnation {
                generation,
                port,
                capacity: capacity.into(),
                draining: false,
                removed: false,
                health: Health::Up,
                trial: None,
                last_grant: 0,
            });
        }
        Ok(())
    }

    fn check_outstanding(&self, answer: Result<u32, Error>, expected: Option<u32>) -> Result<(), TestCaseError> {
        let expected = expected.map(|generation| self.model.outstanding(generation));
        prop_assert_eq!(answer.ok().map(|outstanding| outstanding as usize), expected);
        Ok(())
    }

    fn acquire(&mut self, session: Option<u8>, exclude: &[prop::sample::Index]) -> Result<(), TestCaseError> {
        let known = |index: &prop::sample::Index| *index.get(&self.references);
        let exclude: Vec<BackendRef> = exclude
            .iter()
            .filter(|_| !self.references.is_empty())
            .map(known)
            .collect();
        let generations: Vec<u32> = exclude.iter().map(|reference| reference.generation()).collect();
        let expected = self.model.expect(session, &generations);
        let key = session.map(|session| session.to_string());
        let granted = self.bench.try_acquire(key.as_deref(), &exclude);
        let answer = granted
            .as_ref()
            .map(|grant| (grant.backend.reference.generation(), grant.reason.as_str()));
        prop_assert_eq!(answer.map_err(Error::code), expected);
        if let (Ok(grant), Ok((generation, reason))) = (&granted, expected) {
            self.model.grant(grant.lease, session, generation, reason);
        }
        Ok(())
    }

    fn settle(&mut self, lease: LeaseId, outcome: Outcome) {
        self.bench.settle(lease, outcome);
        self.model.settle(lease);
        self.settled.push(lease);
    }

    /// I6: evidence about an incarnation that is gone changes nothing at all.
    fn report(&mut self, backend: BackendRef, evidence: Evidence) -> Result<(), TestCaseError> {
        let before = self.bench.statistics();
        match evidence {
            Evidence::Probe(alive) => self.bench.pool.report_probe(backend, alive, self.bench.now),
            Evidence::Bytes => self.bench.pool.note_alive(backend, self.bench.now),
        }
        let after = self.bench.statistics();
        for backends in before.backends.iter().zip(&after.backends) {
            prop_assert!(backends.0 == backends.1 || backends.0.info.reference == backend);
        }
        prop_assert_eq!(before.retired, after.retired);
        Ok(())
    }

    fn copy_health(&mut self) {
        for backend in self.bench.statistics().backends {
            let generation = backend.info.reference.generation();
            for incarnation in &mut self.model.incarnations {
                if incarnation.generation == generation {
                    incarnation.health = backend.health;
                    if backend.health != Health::HalfOpen {
                        incarnation.trial = None;
                    }
                }
            }
        }
    }

    /// I1, and that every other number is the model's.
    fn check(&self) -> Result<(), TestCaseError> {
        let statistics = self.bench.statistics();
        let outstanding: u32 = statistics
            .backends
            .iter()
            .chain(&statistics.retired)
            .map(|b| b.outstanding)
            .sum();
        prop_assert_eq!(outstanding, statistics.outstanding);
        prop_assert_eq!(outstanding as usize, self.model.leases.len());
        prop_assert_eq!(statistics.leases, self.model.leases.len());
        prop_assert_eq!(statistics.sessions, self.model.sessions.len());
        prop_assert_eq!(statistics.outcomes.total(), self.settled.len() as u64);
        prop_assert_eq!(
            statistics.picks.total(),
            (self.settled.len() + self.model.leases.len()) as u64
        );
        self.check_backends(&statistics.backends, false)?;
        self.check_backends(&statistics.retired, true)?;
        let eligible = self
            .model
            .incarnations
            .iter()
            .filter(|incarnation| incarnation.is_eligible())
            .count();
        prop_assert_eq!(statistics.census.eligible as usize, eligible);
        prop_assert_eq!(statistics.census.registered as usize, statistics.backends.len());
        Ok(())
    }

    fn check_backends(&self, backends: &[BackendStatistics], removed: bool) -> Result<(), TestCaseError> {
        let expected = self
            .model
            .incarnations
            .iter()
            .filter(|incarnation| incarnation.removed == removed);
        prop_assert_eq!(backends.len(), expected.count());
        for backend in backends {
            let generation = backend.info.reference.generation();
            let incarnation = self.model.find(generation).expect("known to the model");
            prop_assert_eq!(backend.outstanding as usize, self.model.outstanding(generation));
            prop_assert_eq!(backend.sessions as usize, self.model.sessions_on(generation));
            prop_assert_eq!(backend.eligible, incarnation.is_eligible());
            prop_assert_eq!(backend.draining, incarnation.draining && !removed);
        }
        Ok(())
    }

    /// I7: when everything is settled, closed and removed, nothing is left.
    fn finish(mut self) -> Result<(), TestCaseError> {
        let open: Vec<LeaseId> = self.model.leases.keys().copied().collect();
        let (early, late) = open.split_at(open.len() / 2);
        for lease in early {
            self.settle(*lease, Outcome::Completed);
        }
        for session in 0..7u8 {
            self.bench.pool.close_session(&session.to_string(), self.bench.now);
        }
        for port in 1..6u16 {
            // Some are not registered; that is as good.
            drop(self.bench.pool.remove_backend(&port.to_string(), self.bench.now));
        }
        for lease in late {
            self.settle(*lease, Outcome::Cancelled);
        }
        let statistics = self.bench.statistics();
        prop_assert_eq!((statistics.backends.len(), statistics.retired.len()), (0, 0));
        prop_assert_eq!(
            (statistics.sessions, statistics.leases, statistics.outstanding),
            (0, 0, 0)
        );
        prop_assert_eq!(self.bench.pool.backends().count(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// I1, I6, I7: the pool agrees with the model after every operation, ties included, and ends empty.
    #[test]
    fn i1_i6_i7_any_interleaving_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..150)) {
        let mut trial = Trial::new();
        for operation in &operations {
            trial.apply(operation)?;
        }
        trial.finish()?;
    }
}
