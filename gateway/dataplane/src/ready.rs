//! `/live` and `/ready`: the process runs; every pool has the engines it must have.
//!
//! An update of weights changes nothing here: it takes seconds, and requests that may wait for its end do. A pool whose
//! engines sleep, that failed, was closed or awaits its first version cannot serve however many engines it has.

use crate::answer::Answer;
use crate::json::push_string;
use crate::model_state::model_state;
use crate::plane::Plane;
use crate::upstream::EngineNote;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use std::fmt::Write as _;

/// States in which a pool cannot serve for longer than an update takes.
const NEVER_READY: [&str; 4] = ["starting", "sleeping", "failed", "closed"];

pub(crate) fn live() -> Response<Answer> {
    json(StatusCode::OK, Bytes::from_static(b"{\"status\":\"live\"}"))
}

pub(crate) fn ready(plane: &Plane) -> Response<Answer> {
    let mut pools = String::new();
    let mut reason = None;
    for pool in &plane.pools {
        let name = pool.shared().name();
        let statistics = pool.shared().with(|pool, _| pool.statistics());
        let census = &statistics.census;
        let state = model_state(&statistics);
        let min_ready = plane.config.min_ready_of(name);
        if min_ready > 0 && reason.is_none() {
            reason = match census.eligible {
                0 => Some(format!("pool {name:?} has no eligible backend ({census})")),
                few if few < min_ready => Some(format!(
                    "pool {name:?} has {few} eligible backends and must have {min_ready} ({census})"
                )),
                _ if NEVER_READY.contains(&state) => Some(format!("pool {name:?} is {state}")),
                _ => None,
            };
        }
        if !pools.is_empty() {
            pools.push(',');
        }
        push_string(&mut pools, name);
        let _ = write!(
            pools,
            ":{{\"state\":\"{state}\",\"min_ready\":{min_ready},\"eligible\":{},\"unproven\":{},\"down\":{},\
             \"draining\":{},\"registered\":{}",
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
