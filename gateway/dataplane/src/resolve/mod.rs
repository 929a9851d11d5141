//! Finding out how executions with an unknown end have ended, for pools with `on_ambiguous = "resolve"`.
//!
//! A connection that breaks after the request was sent leaves an execution that may run on. It stays counted, so an
//! update waits for it, and here its engine is told to abort it and asked, until the engine demonstrably no longer has
//! it ([`case`]). Then it is `lost`: over, with its result gone. Nothing is ever sent again.
//!
//! One task per backend with such executions asks in rounds, quickly at first. An engine that was replaced by another
//! incarnation, or at whose address nobody listens, has lost everything it ran. One that cannot account for an execution
//! within [`crate::Timeouts::resolve`] (time in which the servers are paused does not count) gets nothing more: either it
//! runs empty, which is the proof, or it is down and will be replaced. The pool goes on without it, and takes it back by
//! itself. An update meanwhile waits for the execution until the deadline of its drain, which names it.
//!
//! What no caller of SGLang can see: a request that met a closed pause gate waits there, in no count and beyond the
//! reach of an abort, until the engine goes on. Controllers avoid it by letting requests arrive before they pause.

mod case;
mod clues;

pub(crate) use clues::{Clue, Clues};

use crate::abort::Abort;
use crate::loads;
use crate::plane::Plane;
use crate::upstream::{Upstream, Upstreams};
use case::Case;
use parking_lot::Mutex;
use router_core::lease::{LeaseId, Unresolved};
use router_core::membership::{BackendInfo, BackendRef};
use router_core::pool::Pool;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses between two rounds: the first, doubled up to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Watches one pool until the data plane ends.
pub(crate) async fn run(plane: Arc<Plane>, upstreams: Arc<Upstreams>) {
    let mut changes = upstreams.shared().subscribe();
    let workers: Arc<Workers> = Arc::default();
    loop {
        for unresolved in upstreams.shared().with(|pool, _| pool.unresolved()) {
            let backend = unresolved.backend;
            if workers.0.lock().insert(backend.reference) {
                let worker = Worker {
                    plane: Arc::clone(&plane),
                    upstream: upstreams.of(&backend),
                    upstreams: Arc::clone(&upstreams),
                    backend,
                    workers: Arc::clone(&workers),
                    cases: HashMap::new(),
                };
                tokio::spawn(worker.run());
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The backends that are being asked.
#[derive(Default)]
struct Workers(Mutex<HashSet<BackendRef>>);

struct Worker {
    plane: Arc<Plane>,
    upstreams: Arc<Upstreams>,
    upstream: Arc<Upstream>,
    backend: Arc<BackendInfo>,
    workers: Arc<Workers>,
    cases: HashMap<LeaseId, Open>,
}

/// A case and how long it is open, pauses of the servers left out.
#[derive(Default)]
struct Open {
    case: Case,
    age: Duration,
}

/// How the pool stands at the beginning of a round.
struct Situation {
    /// Of this backend.
    unresolved: Vec<LeaseId>,
    /// Executions on it that leases with a known end stand for.
    accounted: u64,
    paused: bool,
    /// Another incarnation has the address.
    replaced: bool,
}

impl Worker {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        while let Some(situation) = self.situation() {
            let known = self.cases.len();
            self.cases.retain(|lease, _| situation.unresolved.contains(lease));
            let began = Instant::now();
            let over = if situation.replaced {
                situation.unresolved.clone()
            } else {
                self.round(&situation).await
            };
            self.settle(&over);
            if self.cases.len() > known {
                pause = PAUSES.0;
            }
            tokio::time::sleep(pause).await;
            pause = PAUSES.1.min(pause * 2);
            if !situation.paused {
                self.grow_older(began.elapsed());
            }
        }
    }

    /// `None` when there is nothing left to find out, and this worker is off the list.
    fn situation(&self) -> Option<Situation> {
        // Held while looking, so that no lease falls between the look and the end.
        let mut workers = self.workers.0.lock();
        let situation = self
            .upstreams
            .shared()
            .with(|pool, _| Situation::of(pool, &self.backend));
        if situation.unresolved.is_empty() {
            workers.remove(&self.backend.reference);
            return None;
        }
        Some(situation)
    }

    /// Tells the engine to abort what is unresolved, and asks what it has; returns what is over.
    async fn round(&mut self, situation: &Situation) -> Vec<LeaseId> {
        let limit = self.plane.config.timeouts.probe_timeout;
        let until = Instant::now() + limit;
        let mut accepted = HashSet::new();
        for lease in &situation.unresolved {
            let answer = tokio::time::timeout_at(until, self.abort(*lease)).await;
            match answer {
                Ok(true) => accepted.insert(*lease),
                Ok(false) => false,
                Err(_) => break,
            };
        }
        let said = loads::ask(&self.upstream, self.plane.engine_key.as_ref(), limit).await;
        let mut over = Vec::new();
        for lease in &situation.unresolved {
            let open = self.cases.entry(*lease).or_default();
            if open.case.look(&said, accepted.contains(lease), situation.accounted) {
                over.push(*lease);
            }
        }
        over
    }

    /// Whether the engine answered an abort of every id of the execution.
    async fn abort(&self, lease: LeaseId) -> bool {
        let clue = self
            .upstreams
            .shared()
            .clues()
            .map(|clues| clues.find(lease))
            .unwrap_or_default();
        if clue.ids.is_empty() {
            return false;
        }
        let abort = Abort {
            upstream: Arc::clone(&self.upstream),
            ids: clue.ids,
            authorization: clue.authorization.or_else(|| self.plane.engine_key.clone()),
            lease: None,
        };
        abort.is_confirmed(&self.plane).await
    }

    fn settle(&mut self, over: &[LeaseId]) {
        let shared = self.upstreams.shared();
        for lease in over {
            // Refused when its sender told the true end meanwhile, which is better.
            let _ = shared.settle_lost(*lease);
            self.cases.remove(lease);
        }
    }

    fn grow_older(&mut self, time: Duration) {
        let mut overdue = false;
        for open in self.cases.values_mut() {
            open.age += time;
            overdue |= open.age >= self.plane.config.timeouts.resolve;
        }
        if overdue {
            let backend = self.backend.reference;
            self.upstreams.shared().with(|pool, now| pool.hold_back(backend, now));
        }
    }
}

impl Situation {
    fn of(pool: &Pool, backend: &BackendInfo) -> Self {
        let of_backend = |open: &Unresolved| open.backend.reference == backend.reference;
        let unresolved: Vec<LeaseId> = pool
            .unresolved()
            .into_iter()
            .filter(of_backend)
            .map(|open| open.lease)
            .collect();
        let outstanding = u64::from(pool.outstanding_on(backend.reference));
        Self {
            accounted: outstanding.saturating_sub(unresolved.len() as u64),
            unresolved,
            paused: pool.server_paused(),
            replaced: pool
                .backends()
                .any(|other| other.address == backend.address && other.reference != backend.reference),
        }
    }
}
