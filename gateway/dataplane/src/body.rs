//! Request bodies: read whole (to route, and to send again while nothing was written), sent without a copy.

use crate::config::Limits;
use crate::edit::{Names, edit, extract};
use crate::error::{Code, Failure};
use crate::peek::{Field, Peek, Scanner, Span};
use crate::request_id::{AbortIds, RequestId};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A longer `rid` (a large batch's list) is not used for aborts; closing the connection ends the batch as well.
const MAX_RID_BYTES: usize = 64 * 1024;

/// A complete request body and what it says.
#[derive(Debug)]
pub(crate) struct Received {
    chunks: Vec<Bytes>,
    pub(crate) peek: Peek,
}

impl Received {
    /// Reads `body` to its end, or to the first byte that makes it unacceptable.
    pub(crate) async fn read(body: &mut Incoming, limits: &Limits, cuts_model: bool) -> Result<Self, Failure> {
        if body.size_hint().lower() > limits.max_body_bytes {
            return Err(too_large(limits));
        }
        let mut scanner = Scanner::new(cuts_model);
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

    /// The bytes of a value, at most `limit` of them.
    pub(crate) fn extract(&self, span: Span, limit: usize) -> Bytes {
        extract(&self.chunks, span, limit)
    }

    /// The body in one piece.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    /// Another body in the place of this one.
    pub(crate) fn replace(&mut self, body: Bytes) -> Result<(), Failure> {
        let mut scanner = Scanner::new(false);
        scanner.feed(&body).map_err(Failure::malformed)?;
        self.peek = scanner.finish().map_err(Failure::malformed)?;
        self.chunks = vec![body];
        Ok(())
    }

    /// What the client's own `rid` can be aborted by; `None` when it gave none.
    pub(crate) fn client_ids(&self) -> Option<AbortIds> {
        let span = self.peek.value(Field::Rid)?;
        if span.end - span.start > MAX_RID_BYTES {
            return Some(AbortIds::default());
        }
        let raw = self.extract(span, MAX_RID_BYTES);
        (raw != "null").then(|| AbortIds::of_client(&raw))
    }

    /// The body as it goes to an engine: without its selectors, and with the id `id`.
    pub(crate) fn into_outgoing(mut self, id: Option<&RequestId>) -> Outgoing {
        let names = edit(&mut self.chunks, &self.peek, id);
        Outgoing::with_names(self.chunks, names)
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
    content: Arc<Content>,
    next: usize,
    left: u64,
}

#[derive(Debug)]
struct Content {
    chunks: Vec<Bytes>,
    length: u64,
    /// Where the names of the request and its session stand.
    names: Names,
}

impl Outgoing {
    pub(crate) fn new(chunks: Vec<Bytes>) -> Self {
        Self::with_names(chunks, Names::default())
    }

    /// The same of a body in which the names of the request and its session stand there.
    pub(crate) fn with_names(chunks: Vec<Bytes>, names: Names) -> Self {
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self {
            content: Arc::new(Content { chunks, length, names }),
            next: 0,
            left: length,
        }
    }

    /// The pieces of the body that make it the request it is: without the names of the request and its session, which
    /// a client may choose anew when it sends it again.
    pub(crate) fn essence(&self) -> impl Iterator<Item = &[u8]> {
        let mut end = 0;
        self.content.chunks.iter().flat_map(move |chunk| {
            let start = end;
            end += chunk.len();
            self.content.names.around(chunk, start)
        })
    }

    pub(crate) fn empty() -> Self {
        Self::new(Vec::new())
    }

    pub(crate) fn length(&self) -> u64 {
        self.content.length
    }
}

impl Clone for Outgoing {
    fn clone(&self) -> Self {
        Self {
            content: Arc::clone(&self.content),
            next: 0,
            left: self.content.length,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(chunk) = self.content.chunks.get(self.next).cloned() else {
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
