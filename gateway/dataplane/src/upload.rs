//! The body of a request on its way to the control app, which has to be through in time.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

/// A client's body, and when it must have come to its end. What the app does after that takes as long as it takes.
pub(crate) struct Upload {
    body: Incoming,
    limit: Option<Pin<Box<Sleep>>>,
}

/// The body did not come to its end in time.
#[derive(Debug)]
struct Late;

impl Upload {
    pub(crate) fn new(body: Incoming, deadline: Option<Instant>) -> Self {
        let is_here = body.is_end_stream();
        Self {
            body,
            limit: deadline
                .filter(|_| !is_here)
                .map(|deadline| Box::pin(sleep_until(deadline))),
        }
    }
}

/// Whether an exchange failed because its [`Upload`] was late.
pub(crate) fn is_late(error: &hyper::Error) -> bool {
    error.source().is_some_and(<dyn Error>::is::<Late>)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut self.limit {
            Some(limit) => limit.as_mut().poll(cx).map(|()| Some(Err(Late.into()))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body was late")
    }
}

impl Error for Late {}
