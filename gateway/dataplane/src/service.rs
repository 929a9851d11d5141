//! One request, from its head to the head of its answer.

use crate::abort_request;
use crate::access::Origin;
use crate::answer::Answer;
use crate::attempt::{Attempts, Started};
use crate::body::Received;
use crate::client_io::ClientSignals;
use crate::control;
use crate::error::{Code, Failure};
use crate::exchange::{Deadlines, before};
use crate::genrm;
use crate::headers::{self, ACCEL_BUFFERING, Asked, BACKEND, LEASE, ROUTING_KEY, SESSION, WEIGHT_VERSION};
use crate::lease_api;
use crate::openapi;
use crate::plane::{Plane, Role};
use crate::ready;
use crate::relay::Relay;
use crate::request_id::{AbortIds, RequestId};
use crate::route::{Endpoint, Route, route};
use crate::selection::{select_model, session_in_body, session_in_headers, session_key};
use crate::stats::Gauge;
use crate::terms::Terms;
use bytes::Bytes;
use http::header::CONNECTION;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use tokio::time::Instant;

/// What the requests of one client connection share.
pub(crate) struct Connection {
    pub(crate) plane: Arc<Plane>,
    pub(crate) signals: Arc<ClientSignals>,
    /// There is no descriptor to serve it with: one answer, and the end.
    pub(crate) turned_away: bool,
}

/// Answers one request. Dropping the future means that the client has left.
pub(crate) async fn answer(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let counters = &connection.plane.counters;
    let open = Gauge::raise(counters, |counters| &counters.open_requests);
    connection.signals.use_it();
    if let Some(deadline) = connection.plane.config.timeouts.deadline() {
        connection.signals.answer_by(Some(deadline));
    }
    let mut response = dispatch(&connection, request).await;
    if connection.turned_away {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    counters.count_status(response.status());
    response.body_mut().hold(open);
    Ok(response)
}

async fn dispatch(connection: &Connection, mut request: Request<Incoming>) -> Response<Answer> {
    let plane = &connection.plane;
    let (path, method) = (request.uri().path(), request.method());
    let route = route(path, &plane.roles);
    if let Some(allow) = route.methods()
        && !allow.split(", ").any(|allowed| allowed == method.as_str())
    {
        if method == Method::OPTIONS {
            return control::options(allow);
        }
        let openai = matches!(route, Route::Engine { endpoint, .. } if endpoint.is_openai());
        let failure = Failure::method_not_allowed(path, allow);
        let is_read = request.body().is_end_stream();
        return refuse(connection, if is_read { failure } else { failure.closing() }, openai);
    }
    let answer = match route {
        Route::Live => Ok(ready::live()),
        Route::Ready => Ok(ready::ready(plane)),
        _ if connection.turned_away => Err(no_room()),
        Route::Engine { role, endpoint } => {
            let answer = execute(connection, &plane.roles[role], endpoint, &mut request).await;
            return answer.unwrap_or_else(|failure| refuse(connection, failure, endpoint.is_openai()));
        }
        // Boxed, so that its state does not grow that of every proxied request.
        Route::Abort { role } => Box::pin(abort_request::answer(plane, &plane.roles[role], request)).await,
        Route::OpenApi => Ok(openapi::document()),
        // Not boxed: its state is smaller than that of a proxied request.
        Route::Leases => return serve_leases(connection, request).await,
        Route::UnknownRole if plane.config.control_socket.is_none() => Err(unknown_role(path, plane)),
        Route::UnknownRole | Route::Control if method == Method::CONNECT => {
            Err(Failure::method_not_allowed("a server that is no proxy", "GET, POST"))
        }
        Route::UnknownRole | Route::Control => control::forward(plane, &connection.signals, request).await,
    };
    answer.unwrap_or_else(|failure| refuse(connection, failure, false))
}

fn refuse(connection: &Connection, failure: Failure, openai: bool) -> Response<Answer> {
    connection.plane.failures.note(&failure);
    if failure.closes() {
        connection.signals.linger();
    }
    failure.into_response(openai)
}

async fn serve_leases(connection: &Connection, request: Request<Incoming>) -> Response<Answer> {
    let (response, closes) = lease_api::answer(&connection.plane, request, Origin::Listener).await;
    if closes {
        connection.signals.linger();
    }
    response.map(Answer::full)
}

fn no_room() -> Failure {
    let message = "the gateway serves as many connections as its descriptors allow; try again, or raise 'ulimit -n'";
    Failure::new(Code::TooManyConnections, message).closing()
}

fn unknown_role(path: &str, plane: &Plane) -> Failure {
    let known: Vec<&str> = plane.roles.iter().map(|role| role.name.as_str()).collect();
    Failure::new(
        Code::UnknownRole,
        format!("{path} names no role served here; roles: {}", known.join(", ")),
    )
}

/// Leases a backend and relays its answer.
async fn execute(
    connection: &Connection,
    role: &Role,
    endpoint: Endpoint,
    request: &mut Request<Incoming>,
) -> Result<Response<Answer>, Failure> {
    let plane = &connection.plane;
    let deadlines = Deadlines {
        first_byte: plane.config.timeouts.first_byte,
        total: plane.config.timeouts.deadline(),
    };
    plane.via.check(request.headers())?;
    plane.access.check_client(request.headers()).map_err(Failure::denied)?;
    plane.access.strip(request.headers_mut());
    // Nobody reads the body of a request that its head has failed.
    let asked = Asked::of(request.headers());
    let session_header = session_in_headers(&asked).map_err(Failure::closing)?;
    let terms = Terms::read(&asked).map_err(Failure::closing)?;
    let received = Received::read(request.body_mut(), &plane.config.limits, endpoint.cuts_model());
    let received = before(deadlines.total, pin!(received)).await;
    let mut received = received.unwrap_or_else(|_| Err(Failure::body_too_late(&plane.config.timeouts)))?;
    let model = select_model(role, &received)?;
    let session_header = match session_header {
        None => session_in_body(role, &received)?,
        named => named,
    };
    let session = session_header.as_ref().map(session_key).transpose()?;
    let judge = model.genrm.as_ref().filter(|_| endpoint == Endpoint::Generate);
    let is_judged = match judge {
        Some(genrm) => genrm.translate(&mut received)?,
        None => false,
    };
    let (ids, id) = request_ids(plane, endpoint, &received);
    let execution = plane.in_flight.enter(&role.name, ids);

    let mut outgoing = Request::new(received.into_outgoing(id.as_ref()));
    *outgoing.method_mut() = Method::POST;
    let engine_endpoint = if is_judged { Endpoint::ChatCompletions } else { endpoint };
    *outgoing.uri_mut() = engine_uri(engine_endpoint, request.uri().query());
    *outgoing.headers_mut() = std::mem::take(request.headers_mut());
    headers::strip_for_engine(outgoing.headers_mut());
    plane.via.add_to(outgoing.headers_mut());
    if is_judged {
        genrm::prepare(outgoing.headers_mut());
    }
    if let (true, Some(session)) = (model.behind_router, &session_header) {
        let headers = outgoing.headers_mut();
        headers.entry(ROUTING_KEY).or_insert_with(|| session.clone());
    }
    let attempts = Attempts {
        plane,
        role,
        model,
        session,
        execution,
        deadlines,
        terms,
    };
    let started = attempts
        .run(&mut outgoing)
        .await
        .map_err(|failure| failure.of_session(session_header.as_ref()))?;
    if is_judged {
        // Boxed, so that its state does not grow that of every proxied request.
        return Box::pin(genrm::answer(plane, started, deadlines.total, session_header)).await;
    }
    Ok(relay(connection, started, endpoint, deadlines.total, session_header))
}

fn relay(
    connection: &Connection,
    started: Started,
    endpoint: Endpoint,
    deadline: Option<Instant>,
    session: Option<HeaderValue>,
) -> Response<Answer> {
    let Started { exchange, response } = started;
    let (mut parts, body) = response.into_parts();
    let (backend, lease) = (exchange.upstream().id_header.clone(), exchange.label());
    let version = exchange.version();
    let signals = Arc::clone(&connection.signals);
    let relay = Relay::new(
        &connection.plane,
        exchange,
        &parts,
        body,
        endpoint.is_openai(),
        deadline,
        signals,
    );
    headers::prepare_for_client(&mut parts.headers);
    if relay.is_event_stream() {
        parts.headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    parts.headers.insert(BACKEND, backend);
    parts.headers.insert(LEASE, lease);
    if let Some(version) = version {
        parts.headers.insert(WEIGHT_VERSION, HeaderValue::from(version));
    }
    if let Some(session) = session {
        parts.headers.insert(SESSION, session);
    }
    // Of this hop, whatever the engine speaks.
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, Answer::engine(relay))
}

/// The ids to abort the request by, and the one to give it when the client did not.
fn request_ids(plane: &Plane, endpoint: Endpoint, received: &Received) -> (AbortIds, Option<RequestId>) {
    if !endpoint.takes_request_id() {
        return (AbortIds::default(), None);
    }
    if let Some(ids) = received.client_ids() {
        return (ids, None);
    }
    let id = plane.request_ids.next();
    (AbortIds::ours(&id), Some(id))
}

fn engine_uri(endpoint: Endpoint, query: Option<&str>) -> Uri {
    /// Made once, because making one means to parse it.
    static PLAIN: LazyLock<[Uri; Endpoint::ALL.len()]> =
        LazyLock::new(|| Endpoint::ALL.map(|endpoint| Uri::from_static(endpoint.path())));
    let plain = || PLAIN[endpoint as usize].clone();
    let Some(query) = query else {
        return plain();
    };
    let whole = format!("{}?{query}", endpoint.path());
    // The query was part of a valid URI a moment ago.
    PathAndQuery::from_maybe_shared(Bytes::from(whole)).map_or_else(|_| plain(), Uri::from)
}
