//! Finished executions of traced requests, for the shell to make spans of.
//!
//! A request is traced when its client says so: its `traceparent` has the flag "sampled". Nothing is decided or invented
//! here. What was not collected in time is dropped and counted, so that a shell that sleeps costs a fixed amount of
//! memory.

use crate::shared::LeaseGuard;
use http::HeaderMap;
use parking_lot::Mutex;
use router_core::lease::Outcome;
use router_core::time::Timestamp;
use std::time::{Duration, SystemTime};

/// Executions that wait to be collected, at most.
const KEPT: usize = 4096;

/// One execution of a traced request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTrace {
    /// The client's, as it came.
    pub traceparent: String,
    /// The client's, if it sent one.
    pub tracestate: Option<String>,
    /// The pool, `role/model`.
    pub pool: String,
    /// The id of the engine.
    pub backend: String,
    /// The lease.
    pub lease: String,
    /// The session, if it has one.
    pub session: Option<String>,
    /// The weights of the lease, if any were published.
    pub weight_version: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The engine's status; `None` when its answer never began.
    pub status: Option<u16>,
    /// When it ended, by the clock on the wall.
    pub ended: SystemTime,
    /// From the begin of the request to the grant of the lease.
    pub queue: Duration,
    /// From there to the head of the answer.
    pub first_byte: Option<Duration>,
    /// From the begin of the request to the end of the execution.
    pub total: Duration,
}

/// What a traced execution carries along.
pub(crate) struct Trace {
    traceparent: String,
    tracestate: Option<String>,
    session: Option<String>,
    head: Option<(Duration, u16)>,
}

#[derive(Default)]
pub(crate) struct TraceLog {
    state: Mutex<(Vec<FinishedTrace>, u64)>,
}

impl Trace {
    /// The trace of a request with these headers, if its client records it.
    pub(crate) fn of(headers: &HeaderMap, session: Option<&str>) -> Option<Box<Self>> {
        let text = |name| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let traceparent = text("traceparent").filter(|text| is_sampled(text))?;
        Some(Box::new(Self {
            traceparent,
            tracestate: text("tracestate"),
            session: session.map(str::to_owned),
            head: None,
        }))
    }

    pub(crate) fn note_head(&mut self, since_grant: Duration, status: u16) {
        self.head = Some((since_grant, status));
    }
}

impl TraceLog {
    /// Keeps an execution that ends now.
    pub(crate) fn finish(&self, trace: Trace, lease: &LeaseGuard, outcome: Outcome, began: Timestamp) {
        let finished = FinishedTrace {
            traceparent: trace.traceparent,
            tracestate: trace.tracestate,
            pool: lease.pool().name().to_owned(),
            backend: lease.backend().id.clone(),
            lease: lease.id().to_string(),
            session: trace.session,
            weight_version: lease.version().map(|published| published.version),
            outcome,
            status: trace.head.map(|(_, status)| status),
            ended: SystemTime::now(),
            queue: lease.granted().since(began),
            first_byte: trace.head.map(|(duration, _)| duration),
            total: lease.pool().now().since(began),
        };
        let mut state = self.state.lock();
        if state.0.len() < KEPT {
            state.0.push(finished);
        } else {
            state.1 += 1;
        }
    }

    /// Takes what ended since the last call, and how many more found no room.
    pub(crate) fn take(&self) -> (Vec<FinishedTrace>, u64) {
        std::mem::take(&mut *self.state.lock())
    }
}

/// Whether a `traceparent` is one, and says that the trace is recorded.
fn is_sampled(traceparent: &str) -> bool {
    let mut parts = traceparent.split('-');
    let mut next = |length: usize| {
        let part = parts.next().unwrap_or_default();
        (part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(part)
    };
    let (version, trace, span, flags) = (next(2), next(32), next(16), next(2));
    let flags = flags.and_then(|flags| u8::from_str_radix(flags, 16).ok());
    version.is_some() && trace.is_some() && span.is_some() && flags.is_some_and(|flags| flags & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::is_sampled;

    /// Only a well-formed header with the flag "sampled" is a trace.
    #[test]
    fn the_client_decides() {
        let header = |flags| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        assert!(is_sampled(&header("01")) && is_sampled(&header("03")));
        assert!(!is_sampled(&header("00")));
        for broken in ["", "00", "00-0af7-b7ad-01", &header("0x"), &header("1")] {
            assert!(!is_sampled(broken), "{broken}");
        }
    }
}
