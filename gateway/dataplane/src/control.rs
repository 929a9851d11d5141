//! What the data plane does not serve itself goes to the control app over its private Unix socket, untouched and
//! streamed both ways.

use crate::access;
use crate::answer::Answer;
use crate::client_io::ClientSignals;
use crate::cut::{Cut, PendingCut};
use crate::error::{Code, Failure};
use crate::headers::{ACCESS, strip_hop_by_hop};
use crate::link::Link;
use crate::plane::Plane;
use crate::upload::{self, Upload};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, EXPECT, HOST};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::UnixStream;

/// Methods of HTTP that a server may be asked for; all others are refused without asking the control app.
const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::OPTIONS,
    Method::PATCH,
    Method::TRACE,
];

type ControlLink = Link<UnixStream, Upload>;

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
    plane.via.check(request.headers())?;
    let Some(socket) = plane.config.control_socket.as_deref() else {
        return Err(not_found(&request));
    };
    refuse_unreadable(&request)?;
    let (path, headers) = (request.uri().path(), request.headers());
    plane.access.check_control(path, headers).map_err(Failure::denied)?;
    let verdict = plane.access.verdict(headers);
    let mut link = connect(socket).await?;
    let response = link.send(outgoing(plane, request, verdict)).await.map_err(|error| {
        if upload::is_late(&error) {
            Failure::body_too_late(&plane.config.timeouts)
        } else {
            unavailable(&error)
        }
    })?;
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

/// Answers what the control app's parser would call a bad request: it does so in plain text, with a trace in the log.
fn refuse_unreadable(request: &Request<Incoming>) -> Result<(), Failure> {
    let (method, target) = (request.method(), request.uri().path_and_query());
    if !METHODS.contains(method) {
        let path = request.uri().path();
        return Err(Failure::method_not_allowed(path, "GET, HEAD, POST"));
    }
    match target.map(PathAndQuery::as_str) {
        Some(target) if target.starts_with('/') && target.is_ascii() => Ok(()),
        _ => Err(not_found(request)),
    }
}

/// The answer to OPTIONS on a path that takes `methods`.
pub(crate) fn options(methods: &'static str) -> Response<Answer> {
    let mut response = Response::new(Answer::full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn not_found(request: &Request<Incoming>) -> Failure {
    let message = format!("nothing is served at {} {}", request.method(), request.uri().path());
    Failure::new(Code::NotFound, message)
}

async fn connect(socket: &Path) -> Result<ControlLink, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unavailable(&error))?;
    Link::open(stream, None).await.map_err(|error| unavailable(&error))
}

fn outgoing(plane: &Plane, request: Request<Incoming>, verdict: HeaderValue) -> Request<Upload> {
    let (mut parts, body) = request.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    // For what the app asks of engines in turn.
    plane.via.add_to(&mut parts.headers);
    parts.headers.remove(EXPECT);
    access::strip_all(&mut parts.headers);
    // In place of whatever a client wrote there.
    parts.headers.insert(ACCESS, verdict);
    // Nothing there reads a body, and a body that cannot be decoded would be an error.
    parts.headers.remove(CONTENT_ENCODING);
    // One, where clients sent none or several.
    let host = parts.headers.remove(HOST);
    let host = host.unwrap_or(HeaderValue::from_static("localhost"));
    parts.headers.insert(HOST, host);
    // Clients of proxies send the whole URL; a server wants the path.
    if let Some(path) = parts.uri.path_and_query().cloned() {
        parts.uri = Uri::from(path);
    }
    // Among them hyper's handle for upgrades, which are not relayed.
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, Upload::new(body, plane.config.timeouts.deadline()))
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
