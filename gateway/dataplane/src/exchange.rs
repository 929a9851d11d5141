//! One execution: from the pick of a backend to the settlement of its lease, whatever happens in between.
//!
//! [`Exchange`] is the one value that knows how far an execution got. It is dropped when the client goes away (hyper
//! drops the request or the response body), when the data plane is cut, and when a task panics; its destructor then
//! closes the engine's connection and, if a byte of the request may have left, aborts the generation by its id.

use crate::abort::{Abort, unasked};
use crate::body::Outgoing;
use crate::context;
use crate::error::{Code, Failure};
use crate::headers;
use crate::in_flight::{Execution, Place};
use crate::latency::RequestPhase;
use crate::observe::{Expected, Label};
use crate::plane::Plane;
use crate::poison::Trail;
use crate::relay::is_event_stream;
use crate::shared::LeaseGuard;
use crate::stats::add;
use crate::trace::Trace;
use crate::upstream::{ConnectError, EngineLink, Upstream};
use crate::version_log::VersionMismatch;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::time::Timestamp;
use router_core::version::Published;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

pub(crate) struct Exchange {
    plane: Arc<Plane>,
    upstream: Arc<Upstream>,
    /// Open until the execution is settled.
    lease: Option<LeaseGuard>,
    lease_id: LeaseId,
    version: Option<Published>,
    link: Option<EngineLink>,
    /// What the connection had written before this request.
    written_before: u64,
    /// Length of the request's body.
    body_bytes: u64,
    /// Held until the execution is settled, or its abort is over.
    execution: Option<Arc<Execution>>,
    authorization: Option<HeaderValue>,
    /// When the request began to look for a backend, on the clock of the pool.
    began: Timestamp,
    /// By what the request would be recognised if it killed its engine.
    trail: Trail,
    /// Of a request whose client records it, when somebody makes spans of them.
    trace: Option<Box<Trace>>,
}

/// When we stop waiting for the head of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) first_byte: Option<Duration>,
    pub(crate) total: Option<Instant>,
}

/// How an attempt to get a response head ended.
pub(crate) enum Refusal {
    /// Not one byte of the request was written: another backend may be tried.
    NotSent(Failure),
    /// Final.
    Final(Failure),
}

impl Exchange {
    pub(crate) fn new(
        plane: &Arc<Plane>,
        upstream: Arc<Upstream>,
        lease: LeaseGuard,
        execution: Arc<Execution>,
        authorization: Option<HeaderValue>,
        began: Timestamp,
    ) -> Self {
        lease
            .pool()
            .note_phase(RequestPhase::Queue, lease.granted().since(began));
        execution.runs_at(Place {
            upstream: Arc::clone(&upstream),
            authorization: authorization.clone(),
            lease: lease.id(),
        });
        Self {
            plane: Arc::clone(plane),
            upstream,
            lease_id: lease.id(),
            version: lease.version(),
            lease: Some(lease),
            link: None,
            written_before: 0,
            body_bytes: 0,
            execution: Some(execution),
            authorization,
            began,
            trail: Trail::default(),
            trace: None,
        }
    }

    pub(crate) fn trace(&mut self, trace: Option<Box<Trace>>) {
        self.trace = trace;
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// The lease's id, as it is shown to the client.
    pub(crate) fn label(&self) -> HeaderValue {
        headers::lease(self.lease_id)
    }

    /// The weights that run it; `None` when none were published at its grant.
    pub(crate) fn version(&self) -> Option<u64> {
        self.version.map(|published| published.version)
    }

    /// What the answer has to say of its weights; `None` when it may say what it likes.
    pub(crate) fn expected(&self) -> Option<Expected> {
        let lease = self.lease.as_ref()?;
        Some(Expected {
            version: lease.version()?.version,
            is_named: lease.names_version(),
        })
    }

    /// The engine says to have run other weights than those of the lease.
    #[cold]
    pub(crate) fn note_other_version(&self, observed: Label) {
        if let (Some(lease), Some(expected)) = (&self.lease, self.version()) {
            lease.pool().note_version_mismatch();
            self.plane.mismatches.note(VersionMismatch {
                pool: lease.pool().name().to_owned(),
                backend: self.upstream.id.clone(),
                expected,
                observed: observed.version(),
                lease: lease.id().to_string(),
                count: 1,
            });
        }
    }

    /// Sends `request` and waits for the response head; on a refusal the lease is settled.
    ///
    /// A pooled connection that turns out to be dead before it took a byte is replaced by a fresh one.
    pub(crate) async fn send(
        &mut self,
        request: &Request<Outgoing>,
        deadlines: Deadlines,
    ) -> Result<Response<Incoming>, Refusal> {
        self.body_bytes = request.body().length();
        let pooled = self.upstream.take_idle();
        let mut fresh = pooled.is_none();
        self.link = pooled;
        loop {
            if self.link.is_none() {
                self.connect(deadlines.total).await?;
            }
            let Some(link) = &mut self.link else {
                unreachable!("connected above")
            };
            self.written_before = link.written();
            // Pinned here, because it is too large to be handed on.
            let answered = before_either(deadlines, pin!(link.send(request.clone()))).await;
            match answered {
                Ok(Ok(response)) => {
                    self.note_head(request, &response);
                    return Ok(response);
                }
                Ok(Err(_)) if !self.was_written() && !fresh => {
                    self.link = None;
                    fresh = true;
                }
                Ok(Err(error)) => {
                    self.take_print(request);
                    return Err(self.broken_before_head(&error));
                }
                Err(code) => {
                    self.take_print(request);
                    let failure = self.late(code);
                    return Err(Refusal::Final(failure));
                }
            }
        }
    }

    fn note_head(&mut self, request: &Request<Outgoing>, response: &Response<Incoming>) {
        if let Some(lease) = &self.lease {
            if is_event_stream(response.headers()) {
                self.trail.take_print(lease.pool(), request);
            } else {
                self.trail.note_answered();
            }
            let waited = lease.pool().now().since(lease.granted());
            lease.pool().note_phase(RequestPhase::FirstByte, waited);
            if let Some(trace) = &mut self.trace {
                trace.note_head(waited, response.status().as_u16());
            }
        }
    }

    fn finish_trace(&mut self, lease: &LeaseGuard, outcome: Outcome) {
        if let (Some(trace), Some(traces)) = (self.trace.take(), &self.plane.traces) {
            traces.finish(*trace, lease, outcome, self.began);
        }
    }

    async fn connect(&mut self, total: Option<Instant>) -> Result<(), Refusal> {
        match before(total, self.connect_once()).await {
            Ok(Ok(link)) => {
                self.link = Some(link);
                Ok(())
            }
            Ok(Err(error)) => Err(self.not_connected(&error)),
            Err(_) => {
                let failure = self.late(Code::TotalTimeout);
                Err(Refusal::Final(failure))
            }
        }
    }

    /// Without a descriptor left, those of idle connections to engines are taken.
    async fn connect_once(&self) -> Result<EngineLink, ConnectError> {
        match self.upstream.connect().await {
            Err(ConnectError::Exhausted(_)) => {
                self.plane.free_idle_connections();
                Box::pin(self.upstream.connect()).await
            }
            connected => connected,
        }
    }

    fn not_connected(&mut self, error: &ConnectError) -> Refusal {
        let not_sent = Settlement::new(Outcome::NotSent);
        let (code, settlement) = match error {
            ConnectError::Timeout(_) => (Code::ConnectTimeout, not_sent),
            ConnectError::Refused(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    self.note_refused();
                }
                (Code::BackendUnreachable, not_sent)
            }
            // Our own shortage must not mark a healthy engine as failing.
            ConnectError::Exhausted(_) => (Code::BackendUnreachable, not_sent.without_evidence()),
        };
        self.settle(settlement);
        let message = format!(
            "{} could not be reached: {error}; nothing was sent, the request may be sent again",
            self.upstream.describe()
        );
        Refusal::NotSent(self.failure(code, message))
    }

    fn broken_before_head(&mut self, error: &hyper::Error) -> Refusal {
        let cause = describe(error);
        if !self.was_written() {
            self.link = None;
            self.settle(Settlement::new(Outcome::NotSent));
            let message = format!(
                "{} closed the connection before it took a byte ({cause}); the request may be sent again",
                self.upstream.describe()
            );
            return Refusal::NotSent(self.failure(Code::BackendUnreachable, message));
        }
        Refusal::Final(self.break_off(
            Code::UpstreamBroken,
            &format!("broke the exchange before it answered ({cause})"),
        ))
    }

    /// Gives up waiting.
    pub(crate) fn late(&mut self, code: Code) -> Failure {
        if self.was_written() {
            return self.break_off(code, "did not answer in time");
        }
        self.link = None;
        // Not the engine's failure: the whole time had passed before it was asked.
        self.settle(Settlement::new(Outcome::NotSent).without_evidence());
        let message = format!(
            "the time for the request passed before {} was asked",
            self.upstream.describe()
        );
        self.failure(code, message)
    }

    /// Ends an execution that an engine may have run: its connection is closed, it is aborted by id, never replayed.
    pub(crate) fn break_off(&mut self, code: Code, what: &str) -> Failure {
        self.link = None;
        let mut settlement = Settlement::new(Outcome::Ambiguous);
        // A long execution is no failure of the engine; a hung engine is found by its probes.
        settlement.is_evidence = code != Code::TotalTimeout;
        settlement = self.trail.mark(settlement);
        // What it sent before is no sign of life after this.
        self.upstream.forget_heard();
        if let (Some(lease), Some(execution)) = (&self.lease, &self.execution) {
            lease.leave_clue(execution.ids(), self.authorization.as_ref());
        }
        // At once, so that the pool learns of the failure before it picks again.
        self.settle(settlement);
        self.abort(None);
        let message = format!(
            "{} {what}; the request may have been executed and was not sent again",
            self.upstream.describe()
        );
        self.failure(code, message).maybe_executed()
    }

    fn take_print(&mut self, request: &Request<Outgoing>) {
        if let Some(lease) = &self.lease {
            self.trail.take_print(lease.pool(), request);
        }
    }

    /// Notes that the engine has answered a part of the body.
    pub(crate) fn note_answered(&mut self) {
        self.trail.note_answered();
    }

    fn note_refused(&self) {
        if let Some(lease) = &self.lease {
            let backend = lease.backend().reference;
            lease.pool().with(|pool, now| pool.note_refused(backend, now));
        }
    }

    /// Ends an execution whose answer is not one of an engine.
    pub(crate) fn foreign(&mut self, what: &str) -> Failure {
        self.break_off(Code::UpstreamBroken, what)
    }

    /// The response is complete, its lease is settled, and it cannot be used.
    pub(crate) fn unusable(&self, what: &str) -> Failure {
        let message = format!("{} {what}", self.upstream.describe());
        self.failure(Code::UpstreamBroken, message).maybe_executed()
    }

    /// Ends an execution whose response is complete; the connection is kept when it can be.
    pub(crate) fn complete(&mut self, mut settlement: Settlement) {
        settlement.context_tokens = Some(context::tokens(self.body_bytes, settlement.output_tokens));
        if let Some(link) = self.link.take() {
            self.upstream.give_back(link);
        }
        self.settle(settlement);
        self.execution = None;
    }

    /// The next part of the response body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match &mut self.link {
            Some(link) => link.poll_frame(body, cx),
            None => Poll::Ready(None),
        }
    }

    fn was_written(&self) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.written() > self.written_before)
    }

    fn settle(&mut self, settlement: Settlement) {
        if let Some(lease) = self.lease.take() {
            self.finish_trace(&lease, settlement.outcome);
            lease.settle_request(settlement, self.began);
        }
    }

    fn abort(&mut self, lease: Option<LeaseGuard>) {
        let execution = self.execution.take().filter(|execution| !execution.ids().is_empty());
        let Some(execution) = execution else {
            // Closing the connection is all that can be done.
            if let Some(lease) = lease {
                let outcome = unasked(lease.pool());
                lease.settle(Settlement::new(outcome).without_evidence());
            }
            return;
        };
        let abort = Abort {
            upstream: Arc::clone(&self.upstream),
            ids: execution.ids().clone(),
            execution: Some(execution),
            authorization: self.authorization.take(),
            lease,
        };
        abort.start(&self.plane);
    }

    fn failure(&self, code: Code, message: String) -> Failure {
        Failure::new(code, message)
            .with_text("backend", &self.upstream.id)
            .of_backend(&self.upstream.id_header)
            .of_lease(self.label())
            .of_version(self.version())
    }
}

impl Drop for Exchange {
    /// The client is gone (or the data plane is cut, or the task panicked) while the execution was open.
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        add(&self.plane.counters.client_gone);
        let pool = lease.pool();
        pool.note_phase(RequestPhase::Total, pool.now().since(self.began));
        self.finish_trace(&lease, Outcome::Cancelled);
        let written = self.was_written();
        self.link = None;
        if written {
            self.abort(Some(lease));
        } else {
            lease.settle(Settlement::new(Outcome::Cancelled));
        }
    }
}

/// Waits for `work` until `deadline`, when there is one.
pub(crate) async fn before<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline, work).await,
    }
}

/// Waits for `work` until the earlier deadline, whose code is the error.
pub(crate) async fn before_either<T>(deadlines: Deadlines, work: impl Future<Output = T>) -> Result<T, Code> {
    let first_byte = deadlines.first_byte.and_then(|limit| Instant::now().checked_add(limit));
    let (deadline, code) = match (first_byte, deadlines.total) {
        (None, None) => return Ok(work.await),
        (Some(first_byte), Some(total)) if total < first_byte => (total, Code::TotalTimeout),
        (Some(first_byte), _) => (first_byte, Code::FirstByteTimeout),
        (None, Some(total)) => (total, Code::TotalTimeout),
    };
    tokio::time::timeout_at(deadline, work).await.map_err(|_| code)
}

/// The error and its cause, which hyper shows apart.
pub(crate) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
