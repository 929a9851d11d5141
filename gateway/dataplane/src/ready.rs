//! `/live` and `/ready`: the process runs; every pool has an engine that can take a request.

use crate::answer::Answer;
use crate::json::push_string;
use crate::plane::Plane;
use crate::upstream::EngineNote;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use std::fmt::Write as _;

pub(crate) fn live() -> Response<Answer> {
    json(StatusCode::OK, Bytes::from_static(b"{\"status\":\"live\"}"))
}

pub(crate) fn ready(plane: &Plane) -> Response<Answer> {
    let mut pools = String::new();
    let mut reason = None;
    for pool in &plane.pools {
        let name = pool.shared().name();
        let census = pool.shared().with(|pool, _| pool.census());
        if census.eligible == 0 && reason.is_none() {
            reason = Some(format!("pool {name:?} has no eligible backend ({census})"));
        }
        if !pools.is_empty() {
            pools.push(',');
        }
        push_string(&mut pools, name);
        let _ = write!(
            pools,
            ":{{\"eligible\":{},\"unproven\":{},\"down\":{},\"draining\":{},\"registered\":{}",
            census.eligible, census.unproven, census.down, census.draining, census.registered
        );
        push_notes(&mut pools, &pool.notes());
        pools.push('}');
    }
    if plane.pools.is_empty() {
        reason = Some("no pool is configured".to_owned());
    }
    let Some(reason) = reason else {
        return json(
            StatusCode::OK,
            Bytes::from(format!("{{\"ready\":true,\"pools\":{{{pools}}}}}")),
        );
    };
    let mut body = String::from("{\"ready\":false,\"reason\":");
    push_string(&mut body, &reason);
    let _ = write!(body, ",\"pools\":{{{pools}}}}}");
    json(StatusCode::SERVICE_UNAVAILABLE, Bytes::from(body))
}

/// Adds what is odd about engines, by their ids; nothing when nothing is.
fn push_notes(json: &mut String, notes: &[EngineNote]) {
    for (index, note) in notes.iter().enumerate() {
        json.push_str(if index == 0 { ",\"notes\":{" } else { "," });
        push_string(json, &note.backend);
        json.push(':');
        push_string(json, &note.note);
    }
    if !notes.is_empty() {
        json.push('}');
    }
}

fn json(status: StatusCode, body: Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::full(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
