//! Refusals: the vocabulary of the lease API, and what each word means for whoever gets it.
//!
//! A refusal has a code, the status that goes with the code, and one answer to "can the same call succeed later?". What
//! the core refuses keeps the core's code; this module adds what only HTTP can get wrong.

use super::reply::{self, Answer, Stamp};
use crate::access::Denied;
use crate::config::Timeouts;
use crate::error::late_body;
use crate::headers;
use http::header::{ALLOW, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use router_core::error::{Census, Error};
use router_core::update::Blocker;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What a caller should wait before it sends the same again.
const RETRY_AFTER_MS: u64 = 1000;

/// What only HTTP can get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The text is not what it should be at all.
    Malformed,
    /// It can be read, and breaks a rule.
    Unprocessable,
    BodyTooLarge,
    RequestTimeout,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    UnknownPool,
    RouterRestarted,
    /// A manager alone does that to this pool.
    Managed,
}

impl Problem {
    #[cfg(test)]
    pub(super) const ALL: [Self; 11] = [
        Self::Malformed,
        Self::Unprocessable,
        Self::BodyTooLarge,
        Self::RequestTimeout,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnknownPool,
        Self::RouterRestarted,
        Self::Managed,
    ];

    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Malformed | Self::Unprocessable => "invalid_request",
            Self::BodyTooLarge => "body_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnknownPool => "unknown_pool",
            Self::RouterRestarted => "router_restarted",
            Self::Managed => "managed",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownPool => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RouterRestarted | Self::Managed => StatusCode::CONFLICT,
        }
    }
}

/// What a refused call was for: a failed pool is the end for a request, and a conflict for whoever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Acquire,
    Control,
}

/// An answer that is not the one asked for.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    body: Body,
    allow: Option<&'static str>,
    closes: bool,
}

/// The `error` object.
#[derive(Debug, Serialize)]
struct Body {
    code: &'static str,
    message: String,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    detail: Map<String, Value>,
}

impl Refusal {
    pub(super) fn new(problem: Problem, message: impl Into<String>) -> Self {
        Self {
            status: problem.status(),
            body: Body {
                code: problem.code(),
                message: message.into(),
                retryable: false,
                retry_after_ms: None,
                detail: Map::new(),
            },
            allow: None,
            closes: false,
        }
    }

    pub(super) fn denied(denied: Denied) -> Self {
        let problem = if denied.is_unauthenticated() {
            Problem::Unauthenticated
        } else {
            Problem::Forbidden
        };
        Self::new(problem, denied.message())
    }

    /// The body did not come in time, so the call did nothing.
    pub(super) fn body_too_late(timeouts: &Timeouts) -> Self {
        let mut refusal = Self::new(Problem::RequestTimeout, late_body(timeouts)).closing();
        (refusal.body.retryable, refusal.body.retry_after_ms) = (true, Some(RETRY_AFTER_MS));
        refusal
    }

    pub(super) fn method_not_allowed(path: &str, allow: &'static str) -> Self {
        let mut refusal = Self::new(Problem::MethodNotAllowed, format!("{path} takes {allow} only"));
        refusal.allow = Some(allow);
        refusal
    }

    pub(super) fn of(error: &Error, side: Side) -> Self {
        let retryable = error.retryable();
        Self {
            status: status_of(error, side),
            body: Body {
                code: error.code(),
                message: error.to_string(),
                retryable,
                retry_after_ms: retryable.then_some(RETRY_AFTER_MS),
                detail: detail_of(error),
            },
            allow: None,
            closes: false,
        }
    }

    /// Closes the connection after the answer, because the request was not read to its end.
    pub(super) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.body.detail.insert(key.to_owned(), value.into());
        self
    }

    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The body of the answer as a part of another one.
    pub(super) fn to_value(&self) -> Value {
        json!({ "error": &self.body })
    }

    pub(super) fn into_response(self, incarnation: &str, stamp: Option<Stamp>) -> Response<Answer> {
        let mut response = reply::json(
            self.status,
            &reply::Refused {
                error: &self.body,
                incarnation,
                stamp,
            },
        );
        let headers = response.headers_mut();
        headers.insert(headers::ERROR, HeaderValue::from_static(self.body.code));
        if !self.body.retryable {
            headers.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
        } else if matches!(self.status.as_u16(), 425 | 429 | 503) {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MS.div_ceil(1000)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn status_of(error: &Error, side: Side) -> StatusCode {
    match error {
        Error::InvalidAddress { .. }
        | Error::InvalidCapacity { .. }
        | Error::InvalidBackendId { .. }
        | Error::InvalidSessionKey { .. }
        | Error::InvalidArgument { .. }
        | Error::UnknownOwner { .. }
        | Error::PoisonSuspected { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::UnknownBackend { .. }
        | Error::UnknownLease
        | Error::UnknownSender { .. }
        | Error::UnknownUpdate { .. } => StatusCode::NOT_FOUND,
        Error::NoEligibleBackend { .. }
        | Error::Fenced { .. }
        | Error::VersionNotAcked { .. }
        | Error::NotServing { .. } => StatusCode::TOO_EARLY,
        Error::AtCapacity { .. } | Error::TooManyTombstones { .. } | Error::TooManyWaiters { .. } => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Error::DrainTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        Error::PoolFailed { .. } if side == Side::Acquire => StatusCode::SERVICE_UNAVAILABLE,
        // The rest says that the pool is not as the call takes it to be.
        _ => StatusCode::CONFLICT,
    }
}

/// What a program can use of an error, beyond its code.
fn detail_of(error: &Error) -> Map<String, Value> {
    let detail = match error {
        Error::NoEligibleBackend { census } => json!({ "census": census_view(census) }),
        Error::AtCapacity { outstanding, limit } => json!({ "outstanding": outstanding, "max_concurrent": limit }),
        Error::TooManyTombstones { limit } | Error::TooManyWaiters { limit } => json!({ "limit": limit }),
        Error::Fenced { owner, reasons } => json!({ "owner": owner, "fences": reasons }),
        Error::VersionNotAcked {
            owner,
            published,
            acknowledged,
        } => json!({ "owner": owner, "published": published, "acknowledged": acknowledged }),
        Error::NotServing {
            state,
            server_paused,
            update,
        } => json!({ "state": state, "server_paused": server_paused, "update": update }),
        Error::RequestSettled { outcome } => json!({ "outcome": outcome.as_str() }),
        Error::StaleRequest { seq } => json!({ "seq": seq }),
        Error::StaleVersion { expected, published } => {
            json!({ "expected": expected, "published": published.map(|published| published.version) })
        }
        Error::OutcomeConflict { recorded, reported } => {
            json!({ "recorded": recorded.as_str(), "reported": reported.as_str() })
        }
        Error::UpdateInProgress { id, phase, .. } => json!({ "update_id": id, "phase": phase.as_str() }),
        Error::InvalidTransition { operation, state } => json!({ "operation": operation, "state": state }),
        Error::VersionRegression { requested, published } => {
            json!({ "requested": requested, "published": published.version, "epoch": published.epoch })
        }
        Error::BackendBusy { id, outstanding } => json!({ "backend": id, "outstanding": outstanding }),
        Error::PoolFailed { failure } => json!({ "cause": failure.cause.as_str() }),
        Error::PoisonSuspected { entry } => json!({ "poison": crate::poison::view(entry) }),
        Error::DrainTimeout {
            update,
            outstanding,
            blockers,
            engines,
            failed,
        } => json!({
            "update_id": update,
            "outstanding": outstanding,
            "blockers": blockers.iter().map(blocker_view).collect::<Vec<_>>(),
            "engines": engines,
            "pool_failed": failed,
        }),
        _ => return Map::new(),
    };
    match detail {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

pub(super) fn census_view(census: &Census) -> Value {
    json!({
        "registered": census.registered,
        "eligible": census.eligible,
        "unproven": census.unproven,
        "down": census.down,
        "draining": census.draining,
        "pending_version": census.pending_version,
        "tainted": census.tainted,
        "excluded": census.excluded,
    })
}

pub(super) fn blocker_view(blocker: &Blocker) -> Value {
    json!({
        "lease_id": blocker.lease.to_string(),
        "backend": blocker.backend.id,
        "session": blocker.session,
        "sender": blocker.sender,
        "age_ms": reply::milliseconds(blocker.age),
        "ambiguous": blocker.ambiguous,
    })
}

#[cfg(test)]
pub(super) mod tests;
