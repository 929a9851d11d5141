//! Which backend runs a request: leased, and leased elsewhere while not one byte of the request has been written.

use crate::body::Outgoing;
use crate::error::Failure;
use crate::exchange::{Deadlines, Exchange, Refusal};
use crate::in_flight::Execution;
use crate::latency::RequestPhase;
use crate::plane::{Plane, Role};
use crate::stats::add;
use crate::terms::{self, Terms};
use crate::trace::Trace;
use crate::upstream::Upstreams;
use crate::{headers, model_state, plane, poison};
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use router_core::error::Error;
use router_core::membership::BackendRef;
use router_core::pool::AcquireRequest;
use std::sync::Arc;

/// A request that is ready to run on any backend of a pool.
pub(crate) struct Attempts<'a> {
    pub(crate) plane: &'a Arc<Plane>,
    pub(crate) role: &'a Role,
    pub(crate) model: &'a plane::Model,
    pub(crate) session: Option<&'a str>,
    pub(crate) execution: Arc<Execution>,
    pub(crate) deadlines: Deadlines,
    pub(crate) terms: Terms,
}

/// An execution whose response head has arrived.
pub(crate) struct Started {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) response: Response<Incoming>,
}

impl Attempts<'_> {
    /// Sends `request`, which carries the client's headers without those of its connection, until a backend answers or one
    /// may have executed it.
    pub(crate) async fn run(&self, request: &mut Request<Outgoing>) -> Result<Started, Failure> {
        let upstreams: &Upstreams = &self.model.upstreams;
        let began = upstreams.shared().now();
        let until = self.terms.wait.map(|wait| terms::until(wait, self.deadlines.total));
        if let Some(key) = &self.plane.engine_key {
            request
                .headers_mut()
                .entry(AUTHORIZATION)
                .or_insert_with(|| key.clone());
        }
        let mut tried: Vec<BackendRef> = Vec::new();
        let mut last = None;
        let fingerprint = poison::shown(upstreams.shared(), request);
        for attempt in 0..self.plane.config.limits.max_attempts.max(1) {
            let wanted = AcquireRequest {
                session: self.session,
                exclude: &tried,
                key: None,
                expect_version: self.terms.version,
                fingerprint,
            };
            if upstreams.shared().is_watchful() {
                // Boxed, so that its state does not grow that of every request.
                Box::pin(poison::settle_doubts(
                    upstreams,
                    self.plane.engine_key.as_ref(),
                    &wanted,
                ))
                .await;
            }
            let total = self.deadlines.total;
            let lease = match terms::acquire(self.plane, upstreams.shared(), &wanted, until, total).await {
                Ok(lease) => lease,
                // With every backend tried, what happened to the last one says more than "none is left".
                Err(error) => {
                    if until.is_some() {
                        let pool = upstreams.shared();
                        pool.note_phase(RequestPhase::Queue, pool.now().since(began));
                    }
                    return Err(last.unwrap_or_else(|| self.refused(&error)));
                }
            };
            if attempt > 0 {
                add(&self.plane.counters.retries);
            }
            let upstream = upstreams.of(lease.backend());
            let length = request.body().length();
            headers::address_to_engine(request.headers_mut(), &upstream.host_header, length);
            let backend = lease.backend().reference;
            let authorization = request.headers().get(AUTHORIZATION).cloned();
            // Boxed, because it moves from here through every layer of the answer.
            let mut exchange = Box::new(Exchange::new(
                self.plane,
                upstream,
                lease,
                Arc::clone(&self.execution),
                authorization,
                began,
            ));
            if self.plane.traces.is_some() {
                exchange.trace(Trace::of(request.headers(), self.session));
            }
            match exchange.send(request, self.deadlines).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(exchange.foreign("switched protocols"));
                }
                Ok(response) => {
                    return Ok(Started { exchange, response });
                }
                Err(Refusal::Final(failure)) => return Err(failure),
                Err(Refusal::NotSent(failure)) => {
                    tried.push(backend);
                    last = Some(failure);
                }
            }
        }
        Err(last.unwrap_or_else(|| unreachable!("at least one attempt is made")))
    }

    fn refused(&self, error: &Error) -> Failure {
        let mut failure = Failure::refused(error, &self.role.name, &self.model.name);
        let pool = self.model.upstreams.shared();
        if let Some(state) = pool.with(|pool, _| model_state::of_refusal(error, pool)) {
            // No schedule moves the models of a gateway by itself.
            failure = failure.with_text("state", state).with_json("phase", "null");
        }
        match self.terms.wait {
            Some(_) => failure.after_waiting(),
            None => failure,
        }
    }
}
