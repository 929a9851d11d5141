//! Request bodies: read whole (to route, and to send again while nothing was written), sent without a copy.

use crate::config::Limits;
use crate::error::{Code, Failure};
use crate::peek::{Peek, Scanner, splice};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A complete request body and what it says.
#[derive(Debug)]
pub(crate) struct Received {
    chunks: Vec<Bytes>,
    pub(crate) peek: Peek,
}

impl Received {
    /// Reads `body` to its end, or to the first byte that makes it unacceptable.
    pub(crate) async fn read(mut body: Incoming, limits: &Limits) -> Result<Self, Failure> {
        if body.size_hint().lower() > limits.max_body_bytes {
            return Err(too_large(limits));
        }
        let mut scanner = Scanner::default();
        let mut chunks = Vec::new();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(
                    Failure::new(Code::IncompleteBody, "the request body ended before its announced end").closing(),
                );
            };
            // Trailers say nothing an engine listens to.
            let Ok(chunk) = frame.into_data() else { continue };
            length += chunk.len() as u64;
            if length > limits.max_body_bytes {
                return Err(too_large(limits));
            }
            if let Err(malformed) = scanner.feed(&chunk) {
                let failure = Failure::malformed(malformed);
                return Err(if body.is_end_stream() {
                    failure
                } else {
                    failure.closing()
                });
            }
            if !chunk.is_empty() {
                chunks.push(chunk);
            }
        }
        if length == 0 {
            return Err(Failure::new(
                Code::MissingBody,
                "the request has no body; send a JSON object",
            ));
        }
        let peek = scanner.finish().map_err(Failure::malformed)?;
        Ok(Self { chunks, peek })
    }

    /// Gives the request the id `id`, when the client gave it none.
    pub(crate) fn insert_request_id(&mut self, id: &str) {
        let (at, remove, insert) = if let Some(null) = &self.peek.rid {
            // For the engine `null` is the same as absent, and a second key in front of it would lose against it.
            (null.start, null.raw.len(), format!("\"{id}\""))
        } else {
            let comma = if self.peek.empty { "" } else { "," };
            (self.peek.first_member, 0, format!("\"rid\":\"{id}\"{comma}"))
        };
        splice(&mut self.chunks, at, remove, Bytes::from(insert));
    }

    /// The body in one piece.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    /// Another body in the place of this one.
    pub(crate) fn replace(&mut self, body: Bytes) -> Result<(), Failure> {
        let mut scanner = Scanner::default();
        scanner.feed(&body).map_err(Failure::malformed)?;
        self.peek = scanner.finish().map_err(Failure::malformed)?;
        self.chunks = vec![body];
        Ok(())
    }

    /// The body as it goes to an engine.
    pub(crate) fn into_outgoing(self) -> Outgoing {
        Outgoing::new(self.chunks)
    }
}

fn too_large(limits: &Limits) -> Failure {
    let limit = limits.max_body_bytes;
    Failure::new(
        Code::BodyTooLarge,
        format!("the request body is larger than the limit of {limit} bytes (max_body_bytes)"),
    )
    .with_number("max_body_bytes", limit)
    .closing()
}

/// A body to send. A clone starts from the beginning and shares the bytes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    chunks: Arc<[Bytes]>,
    next: usize,
    length: u64,
    left: u64,
}

impl Outgoing {
    pub(crate) fn new(chunks: Vec<Bytes>) -> Self {
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self {
            chunks: chunks.into(),
            next: 0,
            length,
            left: length,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::new(Vec::new())
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

impl Clone for Outgoing {
    fn clone(&self) -> Self {
        Self {
            chunks: Arc::clone(&self.chunks),
            next: 0,
            length: self.length,
            left: self.length,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(chunk) = self.chunks.get(self.next).cloned() else {
            return Poll::Ready(None);
        };
        self.next += 1;
        self.left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
