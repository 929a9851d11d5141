//! Relaying an engine's response body to the client, as it arrives and no faster than the client takes it.
//!
//! hyper asks for a frame only while its buffer to the client has room, and only then is the engine's connection
//! read; so a slow client slows its engine down through TCP, and memory stays bounded.

use crate::client_io::ClientSignals;
use crate::config::Timeouts;
use crate::cut::{Cut, PendingCut};
use crate::error::{Code, Failure};
use crate::exchange::{Exchange, describe};
use crate::observe::Observer;
use crate::plane::Plane;
use crate::stats::{Gauge, add};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use router_core::lease::{Outcome, Settlement};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// An engine's response body on its way to the client.
pub(crate) struct Relay {
    plane: Arc<Plane>,
    exchange: Box<Exchange>,
    body: Incoming,
    status: StatusCode,
    openai: bool,
    observer: Observer,
    /// Bytes to come, when the engine announced the length.
    left: Option<u64>,
    /// The engine ends its event stream by closing, so only the stream's last event proves that it is complete.
    needs_done: bool,
    patience: Patience,
    state: State,
    signals: Arc<ClientSignals>,
    /// Present for event streams.
    stream: Option<Gauge>,
}

#[derive(Debug)]
enum State {
    Flowing,
    Ended,
    /// Broken; nothing more will be relayed.
    Breaking(PendingCut),
}

impl Relay {
    /// `deadline`: when the whole request must be over.
    pub(crate) fn new(
        plane: &Arc<Plane>,
        exchange: Box<Exchange>,
        response: &response::Parts,
        body: Incoming,
        openai: bool,
        deadline: Option<Instant>,
        signals: Arc<ClientSignals>,
    ) -> Self {
        let streaming = is_event_stream(&response.headers);
        let left = body.size_hint().exact();
        let mut relay = Self {
            status: response.status,
            openai,
            observer: Observer::new(streaming).expecting(exchange.expected()),
            left,
            needs_done: streaming && ends_by_closing(response),
            patience: Patience::new(&plane.config.timeouts, deadline),
            state: State::Flowing,
            signals,
            stream: streaming.then(|| Gauge::raise(&plane.counters, |counters| &counters.open_streams)),
            plane: Arc::clone(plane),
            exchange,
            body,
        };
        if relay.body.is_end_stream() {
            relay.end();
        }
        relay
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            match &mut self.state {
                State::Flowing => {}
                State::Ended => return Poll::Ready(None),
                State::Breaking(cut) => return cut.poll().map(|cut| Some(Err(cut))),
            }
            match self.exchange.poll_frame(&mut self.body, cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are addressed to the next hop, which is us.
                    let Ok(chunk) = frame.into_data() else { continue };
                    self.pass(&chunk);
                    return Poll::Ready(Some(Ok(Frame::data(chunk))));
                }
                Poll::Ready(None) if self.needs_done && !self.observer.saw_done() => {
                    if let Some(event) = self.break_off(Code::UpstreamBroken, "ended the stream without its last event")
                    {
                        return Poll::Ready(Some(Ok(Frame::data(event))));
                    }
                }
                Poll::Ready(None) => self.end(),
                Poll::Ready(Some(Err(error))) => {
                    let what = format!("broke off its response ({})", describe(&error));
                    if let Some(event) = self.break_off(Code::UpstreamBroken, &what) {
                        return Poll::Ready(Some(Ok(Frame::data(event))));
                    }
                }
                Poll::Pending => {
                    let code = ready!(self.patience.poll(cx));
                    if let Some(event) = self.break_off(code, "did not finish its response in time") {
                        return Poll::Ready(Some(Ok(Frame::data(event))));
                    }
                }
            }
        }
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        self.observer.is_streaming()
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match (&self.state, self.left) {
            (State::Flowing, Some(left)) => SizeHint::with_exact(left),
            (State::Ended, _) => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }

    /// Notes a chunk that goes to the client.
    fn pass(&mut self, chunk: &Bytes) {
        self.exchange.upstream().hear();
        self.exchange.note_answered();
        self.patience.rest();
        self.observer.feed(chunk);
        if let Some(version) = self.observer.take_other_version() {
            self.exchange.note_other_version(version);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(chunk.len() as u64);
            if *left == 0 {
                // hyper does not ask for more than was announced, so this is the last call.
                self.end();
            }
        }
    }

    /// The response is complete.
    fn end(&mut self) {
        self.state = State::Ended;
        self.stream = None;
        self.exchange.complete(settlement(self.status, &self.observer));
    }

    /// The response will never be complete; returns the event that tells the client, if it reads events.
    fn break_off(&mut self, code: Code, what: &str) -> Option<Bytes> {
        let failure: Failure = self.exchange.break_off(code, what);
        self.plane.failures.note(&failure);
        add(&self.plane.counters.broken_streams);
        self.state = State::Breaking(PendingCut::new(Arc::clone(&self.signals)));
        let streams = self.stream.take().is_some();
        // Where a length was announced an event would fill it up, and the answer would look complete.
        (streams && self.left.is_none()).then(|| failure.event(self.openai, self.observer.at_event_boundary()))
    }
}

/// How an execution with a complete response ended.
pub(crate) fn settlement(status: StatusCode, observer: &Observer) -> Settlement {
    let outcome = match status.as_u16() {
        200..=299 if observer.aborted() => Outcome::Aborted,
        200..=299 => Outcome::Completed,
        500.. => Outcome::Failed,
        _ => Outcome::Rejected,
    };
    let settlement = Settlement::new(outcome);
    match observer.output_tokens() {
        Some(tokens) => settlement.with_output_tokens(tokens),
        None => settlement,
    }
}

/// The response is a server-sent event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.as_bytes().get(..b"text/event-stream".len()))
        .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The body ends when the engine closes, and its bytes can be read here.
fn ends_by_closing(response: &response::Parts) -> bool {
    [TRANSFER_ENCODING, CONTENT_LENGTH, CONTENT_ENCODING]
        .into_iter()
        .all(|name| !response.headers.contains_key(name))
}

/// How long we wait for an engine's next bytes.
///
/// Only waiting for the engine counts: while the client is slow nobody asks, and no time passes.
struct Patience {
    idle: Option<Duration>,
    total: Option<Instant>,
    /// Running while we wait.
    alarm: Option<Alarm>,
}

struct Alarm {
    sleep: Pin<Box<Sleep>>,
    code: Code,
}

impl Patience {
    fn new(timeouts: &Timeouts, total: Option<Instant>) -> Self {
        Self {
            idle: timeouts.idle,
            total,
            alarm: None,
        }
    }

    /// Bytes came.
    fn rest(&mut self) {
        self.alarm = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Code> {
        if self.alarm.is_none() {
            let idle = self.idle.and_then(|idle| Instant::now().checked_add(idle));
            let (deadline, code) = match (idle, self.total) {
                (None, None) => return Poll::Pending,
                (Some(idle), Some(total)) if total < idle => (total, Code::TotalTimeout),
                (Some(idle), _) => (idle, Code::IdleTimeout),
                (None, Some(total)) => (total, Code::TotalTimeout),
            };
            let sleep = Box::pin(tokio::time::sleep_until(deadline));
            self.alarm = Some(Alarm { sleep, code });
        }
        let Some(alarm) = &mut self.alarm else {
            return Poll::Pending;
        };
        ready!(alarm.sleep.as_mut().poll(cx));
        Poll::Ready(alarm.code)
    }
}
