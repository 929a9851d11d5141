//! Ending an execution on its engine when nobody waits for it any more.

use crate::body::Outgoing;
use crate::in_flight::Execution;
use crate::plane::Plane;
use crate::request_id::AbortIds;
use crate::shared::{LeaseGuard, SharedPool};
use crate::stats::add;
use crate::upstream::{Caller, NoAnswer, Upstream};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use router_core::lease::{Outcome, Settlement};
use std::sync::Arc;
use std::time::Duration;

/// Pause before an abort that could not be sent is tried again.
const SHORTAGE_RETRY: Duration = Duration::from_millis(20);

/// An execution to be ended.
pub(crate) struct Abort {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) ids: AbortIds,
    /// A request that is known as in flight until the abort is over.
    #[expect(dead_code, reason = "held, and never asked")]
    pub(crate) execution: Option<Arc<Execution>>,
    /// The client's own credentials: the abort is made on its behalf.
    pub(crate) authorization: Option<HeaderValue>,
    /// Held until the engine confirms, so that the execution stays counted while it may run.
    pub(crate) lease: Option<LeaseGuard>,
}

impl Abort {
    /// Sends the abort in a task of its own; may be called from a destructor.
    pub(crate) fn start(self, plane: &Arc<Plane>) {
        let task = plane.tasks.enter();
        let runtime = plane.runtime.clone();
        let plane = Arc::clone(plane);
        // When the runtime is already gone the task is dropped at once, and with it the lease, as ambiguous.
        runtime.spawn(async move {
            self.run(&plane).await;
            drop(task);
        });
    }

    async fn run(self, plane: &Plane) {
        let grace = plane.config.timeouts.abort_grace;
        let verdict = tokio::time::timeout(grace, self.send(plane))
            .await
            .unwrap_or(Verdict::Silent);
        let Some(lease) = self.lease else { return };
        let pool = Arc::clone(lease.pool());
        let outcome = match verdict {
            Verdict::Confirmed => Outcome::Cancelled,
            Verdict::Withheld => return lease.settle(Settlement::new(unasked(&pool)).without_evidence()),
            Verdict::Refused | Verdict::Silent => Outcome::Ambiguous,
        };
        if outcome == Outcome::Ambiguous {
            lease.leave_clue(&self.ids, self.authorization.as_ref());
        }
        lease.settle(Settlement::new(outcome));
        if let Verdict::Refused = verdict {
            // It does not know how to abort, but it answered: that is no failing engine.
            pool.with(|pool, now| pool.note_alive(self.upstream.reference, now));
        }
    }

    /// Whether the engine answered the abort of every id, within the caller's deadline.
    pub(crate) async fn is_confirmed(&self, plane: &Plane) -> bool {
        self.send(plane).await == Verdict::Confirmed
    }

    async fn send(&self, plane: &Plane) -> Verdict {
        let mut verdict = Verdict::Confirmed;
        for id in self.ids.iter() {
            if plane.in_flight.is_shared(&self.upstream, id) {
                if verdict == Verdict::Confirmed {
                    verdict = Verdict::Withheld;
                }
                continue;
            }
            add(&plane.counters.aborts_sent);
            match self.call(id).await {
                Ok(status) if status.is_success() => add(&plane.counters.aborts_confirmed),
                Ok(_) => verdict = Verdict::Refused,
                Err(_) => return Verdict::Silent,
            }
        }
        verdict
    }

    async fn call(&self, id: &Bytes) -> Result<StatusCode, NoAnswer> {
        let body = Outgoing::new(vec![
            Bytes::from_static(b"{\"rid\":"),
            id.clone(),
            Bytes::from_static(b"}"),
        ]);
        tell(&self.upstream, body, Caller::with_key(self.authorization.as_ref())).await
    }
}

/// How an execution ends that only the end of its connection can stop: what comes of it shows in the engine's counts.
pub(crate) fn unasked(pool: &SharedPool) -> Outcome {
    if pool.resolves() {
        Outcome::Ambiguous
    } else {
        Outcome::Cancelled
    }
}

/// Sends one abort; again while this machine is too short of descriptors to ask at all. The caller sets the deadline.
pub(crate) async fn tell(upstream: &Upstream, body: Outgoing, caller: Caller<'_>) -> Result<StatusCode, NoAnswer> {
    loop {
        let answer = upstream
            .call(Method::POST, "/abort_request", body.clone(), caller)
            .await;
        if answer != Err(NoAnswer::NotAsked) {
            return answer;
        }
        tokio::time::sleep(SHORTAGE_RETRY).await;
    }
}

/// What the engine said to an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Confirmed,
    /// It was not asked: it would have ended requests of others, too.
    Withheld,
    Refused,
    Silent,
}
