//! `POST /<role>/abort_request`: ends an execution on the engine that runs it.
//!
//! SGLang answers 200 to every abort, known or not, and aborts every request whose id *begins* with the given one. A
//! caller of the gateway is told what is known of its id, and nobody else's request is ever ended by it: the abort goes
//! to the one engine that runs the id, ids that could be the beginning of others are refused, and ending everything
//! needs the admin key.

use crate::abort;
use crate::access::Origin;
use crate::answer::Answer;
use crate::body::Outgoing;
use crate::error::{Code, Failure};
use crate::exchange::before;
use crate::headers;
use crate::in_flight::{Execution, Found, Place};
use crate::json::push_string;
use crate::plane::{Plane, Role};
use crate::request_id::is_safe_in_an_abort;
use crate::stats::add;
use crate::upstream::{Caller, NoAnswer, Upstream};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body; one with an id in it has a thousandth of it.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What is to be ended.
enum Target {
    One(String),
    All,
}

pub(crate) async fn answer(
    plane: &Plane,
    role: &Role,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Failure> {
    let (mut parts, body) = request.into_parts();
    plane.via.check(&parts.headers)?;
    plane.access.check_client(&parts.headers).map_err(Failure::denied)?;
    let timeouts = &plane.config.timeouts;
    let body = before(timeouts.deadline(), read(body)).await;
    match target(&body.unwrap_or_else(|_| Err(Failure::body_too_late(timeouts)))?)? {
        Target::One(id) => abort_one(plane, role, &id, &parts.headers).await,
        Target::All => {
            plane
                .access
                .check_admin(&parts.headers, Origin::Listener)
                .map_err(Failure::denied)?;
            plane.access.strip(&mut parts.headers);
            headers::strip_for_engine(&mut parts.headers);
            abort_all(plane, role, &parts.headers).await
        }
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let message = format!("the body of an abort is larger than {MAX_BODY_BYTES} bytes");
        Failure::new(Code::BodyTooLarge, message).closing()
    };
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Failure::new(Code::IncompleteBody, "the request body ended before its announced end").closing()
        })?;
        bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
        if bytes.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
    }
    Ok(bytes)
}

/// Reads SGLang's forms: `{"rid": "..."}` and `{"abort_all": true}`; members it does not know change nothing.
fn target(body: &[u8]) -> Result<Target, Failure> {
    const FORMS: &str = r#"send {"rid": "<id>"}, or {"abort_all": true} with the admin key"#;
    if body.is_empty() {
        return Err(Failure::new(
            Code::MissingBody,
            format!("the request has no body; {FORMS}"),
        ));
    }
    let members: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        Failure::new(
            Code::InvalidJson,
            format!("the body is not a JSON object ({error}); {FORMS}"),
        )
    })?;
    let invalid = |what: &str| Failure::new(Code::InvalidRequestId, format!("{what}; {FORMS}"));
    match members.get("abort_all") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return Ok(Target::All),
        Some(_) => return Err(invalid("\"abort_all\" must be true or false")),
    }
    let id = match members.get("rid") {
        Some(Value::String(id)) => id,
        None | Some(Value::Null) => return Err(invalid("\"rid\" is missing")),
        Some(_) => return Err(invalid("\"rid\" must be one string")),
    };
    if is_safe_in_an_abort(id.as_bytes()) {
        return Ok(Target::One(id.clone()));
    }
    Err(invalid(&format!(
        "\"rid\" {id:?} is too short: engines abort every request whose id begins with it; give requests ids of at least \
         8 characters"
    )))
}

async fn abort_one(plane: &Plane, role: &Role, id: &str, headers: &HeaderMap) -> Result<Response<Answer>, Failure> {
    let executions = match plane.in_flight.find(&role.name, id) {
        Found::Running(executions) => executions,
        Found::Ended => return Ok(reply(&json!({"status": "finished", "rid": id}))),
        Found::Unknown => {
            let message = format!(
                "no request {id:?} of role {:?} is in flight through this gateway, and none ended recently",
                role.name
            );
            return Err(Failure::new(Code::UnknownRequest, message).with_text("rid", id));
        }
    };
    let mut owners = Vec::new();
    for execution in &executions {
        owners.push(owner(plane, execution, id)?);
    }
    let calls = owners.iter().map(|place| {
        let caller = Caller::with_key(place.authorization.as_ref()).asked_by(headers);
        tell(plane, &place.upstream, id_body(id), caller)
    });
    for (place, result) in owners.iter().zip(join_all(calls).await) {
        if result.status != "aborted" {
            let message = format!("{} {}; send the abort again", place.upstream.describe(), result.what());
            let failure = Failure::new(Code::AbortUnconfirmed, message).with_text("rid", id);
            return Err(failure
                .of_backend(&place.upstream.id_header)
                .of_lease(headers::lease(place.lease)));
        }
    }
    // At least one: an entry of the directory is never empty.
    let first = &owners[0];
    let lease = first.lease.to_string();
    Ok(reply(
        &json!({"status": "aborted", "rid": id, "backend": first.upstream.id, "lease": lease}),
    ))
}

/// Where `execution` runs, if it can be aborted there by `id` without hitting another one.
fn owner(plane: &Plane, execution: &Arc<Execution>, id: &str) -> Result<Place, Failure> {
    let Some(found) = execution.place() else {
        let message = format!("request {id:?} waits for an engine; close its connection, or abort it once it runs");
        return Err(Failure::new(Code::RequestWaiting, message).with_text("rid", id));
    };
    match plane.in_flight.also_hit(&found.upstream, id) {
        0 => Ok(found),
        others => {
            let message = format!(
                "{others} more requests on {} have ids that begin with {id:?}, and an engine would abort them too; close \
                 the connection of the request instead, and give requests ids of one length",
                found.upstream.describe()
            );
            let failure = Failure::new(Code::SharedPrefix, message).with_text("rid", id);
            Err(failure.with_number("others", others as u64))
        }
    }
}

async fn abort_all(plane: &Plane, role: &Role, headers: &HeaderMap) -> Result<Response<Answer>, Failure> {
    // Whatever is left there is no key of ours, and so meant for the engines.
    let authorization = headers.get(AUTHORIZATION).or(plane.engine_key.as_ref());
    let mut engines: Vec<(&str, Arc<Upstream>)> = Vec::new();
    for model in &role.models {
        let backends = model
            .upstreams
            .shared()
            .with(|pool, _| pool.backends().cloned().collect::<Vec<_>>());
        for backend in backends {
            let upstream = model.upstreams.of(&backend);
            if !engines.iter().any(|(_, known)| Arc::ptr_eq(known, &upstream)) {
                engines.push((&model.name, upstream));
            }
        }
    }
    let caller = Caller::with_key(authorization).asked_by(headers);
    let calls = engines
        .iter()
        .map(|(_, upstream)| tell(plane, upstream, all_body(), caller));
    let results = join_all(calls).await;
    let all = results.iter().all(|result| result.status == "aborted");
    let views = engines.iter().zip(&results).map(|((model, upstream), result)| {
        json!({
            "backend": upstream.id,
            "model": model,
            "status": result.status,
            "engine_status": result.engine_status,
        })
    });
    let views = Value::Array(views.collect());
    if all {
        return Ok(reply(&json!({"status": "aborted", "engines": views})));
    }
    let message = "not every engine confirmed the abort; detail.engines says which, send it again";
    Err(Failure::new(Code::AbortUnconfirmed, message).with_json("engines", &views.to_string()))
}

/// What an engine said to an abort.
struct Told {
    status: &'static str,
    engine_status: Option<u16>,
}

impl Told {
    fn what(&self) -> String {
        match self.engine_status {
            Some(status) => format!("answered {status} to the abort"),
            None => "did not answer the abort in time".to_owned(),
        }
    }
}

async fn tell(plane: &Plane, upstream: &Upstream, body: Outgoing, caller: Caller<'_>) -> Told {
    add(&plane.counters.aborts_sent);
    let call = abort::tell(upstream, body, caller);
    let answer = tokio::time::timeout(plane.config.timeouts.abort_grace, call)
        .await
        .unwrap_or(Err(NoAnswer::Silent));
    match answer {
        Ok(status) if status.is_success() => {
            add(&plane.counters.aborts_confirmed);
            Told {
                status: "aborted",
                engine_status: Some(status.as_u16()),
            }
        }
        Ok(status) => Told {
            status: "refused",
            engine_status: Some(status.as_u16()),
        },
        Err(_) => Told {
            status: "unreachable",
            engine_status: None,
        },
    }
}

fn id_body(id: &str) -> Outgoing {
    let mut body = String::from("{\"rid\":");
    push_string(&mut body, id);
    body.push('}');
    Outgoing::new(vec![Bytes::from(body)])
}

fn all_body() -> Outgoing {
    Outgoing::new(vec![Bytes::from_static(b"{\"abort_all\":true}")])
}

fn reply(document: &Value) -> Response<Answer> {
    let mut response = Response::new(Answer::full(Bytes::from(document.to_string())));
    *response.status_mut() = StatusCode::OK;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> &'static str {
        match target(body.as_bytes()) {
            Ok(Target::One(_)) => "one",
            Ok(Target::All) => "all",
            Err(failure) => failure.code().as_str(),
        }
    }

    /// SGLang's two forms; whatever could hit other requests, or is neither, is refused.
    #[test]
    fn forms() {
        for (body, expected) in [
            (r#"{"rid":"job-1"}"#, "one"),
            (r#"{"rid":"0123456789abcdef","abort_all":false,"extra":[1]}"#, "one"),
            (r#"{"abort_all":true}"#, "all"),
            (r#"{"rid":"","abort_all":true}"#, "all"),
            ("", "missing_body"),
            ("[]", "invalid_json"),
            ("{", "invalid_json"),
            ("{}", "invalid_request_id"),
            (r#"{"rid":""}"#, "invalid_request_id"),
            (r#"{"rid":"a1"}"#, "invalid_request_id"),
            (r#"{"rid":null}"#, "invalid_request_id"),
            (r#"{"rid":["job-1"]}"#, "invalid_request_id"),
            (r#"{"rid":"job-1","abort_all":1}"#, "invalid_request_id"),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
    }
}
