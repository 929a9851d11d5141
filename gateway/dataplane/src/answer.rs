//! The body of an answer, whatever its source.

use crate::control::ControlBody;
use crate::cut::Cut;
use crate::relay::Relay;
use crate::stats::Gauge;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer. The request is open for as long as it lives.
pub(crate) struct Answer {
    source: Source,
    open: Option<Gauge>,
}

enum Source {
    /// Bytes of ours.
    Full(Bytes),
    /// An engine's response.
    Engine(Relay),
    /// The control app's response.
    Control(ControlBody),
}

impl Answer {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self {
            source: Source::Full(bytes),
            open: None,
        }
    }

    pub(crate) fn engine(relay: Relay) -> Self {
        Self {
            source: Source::Engine(relay),
            open: None,
        }
    }

    pub(crate) fn control(body: ControlBody) -> Self {
        Self {
            source: Source::Control(body),
            open: None,
        }
    }

    pub(crate) fn hold(&mut self, open: Gauge) {
        self.open = Some(open);
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.source {
            Source::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Engine(relay) => relay.poll_frame(cx),
            Source::Control(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Full(bytes) => bytes.is_empty(),
            Source::Engine(relay) => relay.is_end_stream(),
            Source::Control(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Engine(relay) => relay.size_hint(),
            Source::Control(body) => body.size_hint(),
        }
    }
}
