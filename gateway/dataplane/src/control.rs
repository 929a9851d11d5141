//! What the data plane does not serve itself goes to the control app over its private Unix socket, untouched and
//! streamed both ways.

use crate::answer::Answer;
use crate::client_io::ClientSignals;
use crate::cut::{Cut, PendingCut};
use crate::error::{Code, Failure};
use crate::headers::strip_hop_by_hop;
use crate::link::Link;
use crate::plane::Plane;
use bytes::Bytes;
use http::header::{EXPECT, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::UnixStream;

type ControlLink = Link<UnixStream, Incoming>;

/// A response of the control app on its way to the client.
pub(crate) struct ControlBody {
    link: ControlLink,
    body: Incoming,
    signals: Arc<ClientSignals>,
    broken: Option<PendingCut>,
}

/// Has the control app answer `request`.
pub(crate) async fn forward(
    plane: &Plane,
    signals: &Arc<ClientSignals>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Failure> {
    let Some(socket) = plane.config.control_socket.as_deref() else {
        let message = format!("nothing is served at {} {}", request.method(), request.uri().path());
        return Err(Failure::new(Code::NotFound, message));
    };
    let mut link = connect(socket).await?;
    let response = link
        .send(outgoing(request))
        .await
        .map_err(|error| unavailable(&error))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(unavailable(&"it wants to switch protocols"));
    }
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    let body = ControlBody {
        link,
        body,
        signals: Arc::clone(signals),
        broken: None,
    };
    Ok(Response::from_parts(parts, Answer::control(body)))
}

async fn connect(socket: &Path) -> Result<ControlLink, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unavailable(&error))?;
    Link::open(stream, None).await.map_err(|error| unavailable(&error))
}

fn outgoing(request: Request<Incoming>) -> Request<Incoming> {
    let (mut parts, body) = request.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    parts.headers.remove(EXPECT);
    if !parts.headers.contains_key(HOST) {
        parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
    }
    // Clients of proxies send the whole URL; a server wants the path.
    if let Some(path) = parts.uri.path_and_query().cloned() {
        parts.uri = Uri::from(path);
    }
    // Among them hyper's handle for upgrades, which are not relayed.
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, body)
}

fn unavailable(cause: &dyn std::fmt::Display) -> Failure {
    let message = format!("the control app does not answer ({cause}); it may be starting, try again");
    Failure::new(Code::ControlUnavailable, message)
}

impl ControlBody {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.broken.is_none() {
            match ready!(self.link.poll_frame(&mut self.body, cx)) {
                Some(Err(_)) => {}
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                None => return Poll::Ready(None),
            }
        }
        let broken = self
            .broken
            .get_or_insert_with(|| PendingCut::new(Arc::clone(&self.signals)));
        broken.poll().map(|cut| Some(Err(cut)))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
