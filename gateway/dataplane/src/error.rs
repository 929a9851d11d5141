//! The errors the data plane itself answers with: whose fault, whether a retry is safe, and what to do next.

use crate::access::Denied;
use crate::answer::Answer;
use crate::config::Timeouts;
use crate::headers;
use crate::json::push_string;
use crate::peek::Malformed;
use crate::poison;
use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use router_core::error::Error;
use router_core::version::Published;
use std::fmt::Write as _;

/// Seconds a client should wait before it tries again what may work later.
const RETRY_AFTER_S: u32 = 1;

/// What went wrong. Each code has one status, and one answer to "may the client send this again?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    InvalidJson,
    MissingBody,
    IncompleteBody,
    BodyTooLarge,
    RequestTimeout,
    InvalidSession,
    InvalidWait,
    InvalidWeightVersion,
    InvalidModel,
    UnknownModel,
    InvalidRouteKey,
    UnknownRouteKey,
    ModelRequired,
    InvalidRequestId,
    UnknownRequest,
    RequestWaiting,
    SharedPrefix,
    NotFound,
    UnknownRole,
    MethodNotAllowed,
    AtCapacity,
    NoEligibleBackend,
    Fenced,
    NotServing,
    VersionNotAcked,
    VersionMismatch,
    TooManyWaiters,
    SessionClosed,
    PoolFailed,
    PoolClosed,
    PoisonSuspected,
    BackendUnreachable,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    TotalTimeout,
    UpstreamBroken,
    AbortUnconfirmed,
    LoopDetected,
    ControlUnavailable,
    TooManyConnections,
}

impl Code {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::InvalidRequest => "invalid_request",
            Self::InvalidJson => "invalid_json",
            Self::MissingBody => "missing_body",
            Self::IncompleteBody => "incomplete_body",
            Self::BodyTooLarge => "body_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::InvalidSession => "invalid_session",
            Self::InvalidWait => "invalid_wait",
            Self::InvalidWeightVersion => "invalid_weight_version",
            Self::InvalidModel => "invalid_model",
            Self::UnknownModel => "unknown_model",
            Self::InvalidRouteKey => "invalid_route_key",
            Self::UnknownRouteKey => "unknown_route_key",
            Self::ModelRequired => "model_required",
            Self::InvalidRequestId => "invalid_request_id",
            Self::UnknownRequest => "unknown_request",
            Self::RequestWaiting => "request_waiting",
            Self::SharedPrefix => "shared_prefix",
            Self::NotFound => "not_found",
            Self::UnknownRole => "unknown_role",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::AtCapacity => "at_capacity",
            Self::NoEligibleBackend => "no_eligible_backend",
            Self::Fenced => "fenced",
            Self::NotServing => "not_serving",
            Self::VersionNotAcked => "version_not_acked",
            Self::VersionMismatch => "version_mismatch",
            Self::TooManyWaiters => "too_many_waiters",
            Self::SessionClosed => "session_closed",
            Self::PoolFailed => "pool_failed",
            Self::PoolClosed => "pool_closed",
            Self::PoisonSuspected => "poison_suspected",
            Self::BackendUnreachable => "backend_unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::TotalTimeout => "total_timeout",
            Self::UpstreamBroken => "upstream_broken",
            Self::AbortUnconfirmed => "abort_unconfirmed",
            Self::LoopDetected => "loop_detected",
            Self::ControlUnavailable => "control_unavailable",
            Self::TooManyConnections => "too_many_connections",
        }
    }

    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest
            | Self::InvalidJson
            | Self::MissingBody
            | Self::IncompleteBody
            | Self::InvalidSession
            | Self::InvalidWait
            | Self::InvalidWeightVersion
            | Self::InvalidModel
            | Self::UnknownModel
            | Self::InvalidRouteKey
            | Self::UnknownRouteKey
            | Self::ModelRequired
            | Self::InvalidRequestId => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::NotFound | Self::UnknownRole | Self::UnknownRequest => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::SessionClosed | Self::RequestWaiting | Self::SharedPrefix => StatusCode::CONFLICT,
            Self::VersionMismatch => StatusCode::TOO_EARLY,
            Self::PoisonSuspected => StatusCode::UNPROCESSABLE_ENTITY,
            Self::AtCapacity | Self::TooManyWaiters => StatusCode::TOO_MANY_REQUESTS,
            Self::NoEligibleBackend
            | Self::Fenced
            | Self::NotServing
            | Self::VersionNotAcked
            | Self::PoolFailed
            | Self::PoolClosed
            | Self::BackendUnreachable
            | Self::ControlUnavailable
            | Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout | Self::FirstByteTimeout | Self::IdleTimeout | Self::TotalTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::UpstreamBroken | Self::AbortUnconfirmed => StatusCode::BAD_GATEWAY,
            Self::LoopDetected => StatusCode::LOOP_DETECTED,
        }
    }

    /// The same request may succeed later, and sending it again cannot run a generation twice. (Errors that left an
    /// execution in doubt override this, see [`Failure::maybe_executed`].)
    const fn retryable(self) -> bool {
        matches!(
            self,
            Self::AtCapacity
                | Self::NoEligibleBackend
                | Self::Fenced
                | Self::NotServing
                | Self::VersionNotAcked
                | Self::TooManyWaiters
                | Self::BackendUnreachable
                | Self::ControlUnavailable
                | Self::TooManyConnections
                | Self::RequestTimeout
                | Self::ConnectTimeout
                | Self::TotalTimeout
                | Self::FirstByteTimeout
                // An abort may be sent any number of times.
                | Self::RequestWaiting
                | Self::AbortUnconfirmed
        )
    }

    /// The error type OpenAI clients expect.
    const fn openai_type(self) -> &'static str {
        match self.status().as_u16() {
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }
}

/// An error answer in the making. Boxed, because functions that almost always succeed return it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: Code,
    status: StatusCode,
    retryable: bool,
    /// What, which engine, the last evidence, the next step.
    message: String,
    /// Members of the `detail` object, as JSON text without the braces.
    detail: String,
    /// Bytes of the request reached an engine, so a generation may have run.
    maybe_executed: bool,
    allow: Option<&'static str>,
    close: bool,
    /// `x-trimtab-backend`, `-lease` and `-session`, as far as the request got.
    labels: [Option<HeaderValue>; 3],
    /// The weights of the lease, when it has a version.
    version: Option<u64>,
}

const LABELS: [HeaderName; 3] = [headers::BACKEND, headers::LEASE, headers::SESSION];

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            status: code.status(),
            retryable: code.retryable(),
            message: message.into(),
            detail: String::new(),
            maybe_executed: false,
            allow: None,
            close: false,
            labels: [const { None }; 3],
            version: None,
        }))
    }

    /// The request was not read, so the connection ends with the answer.
    pub(crate) fn denied(denied: Denied) -> Self {
        let code = if denied.is_unauthenticated() {
            Code::Unauthenticated
        } else {
            Code::Forbidden
        };
        Self::new(code, denied.message()).closing()
    }

    pub(crate) fn malformed(malformed: Malformed) -> Self {
        Self::new(Code::InvalidJson, malformed.to_string()).with_number("offset", malformed.offset as u64)
    }

    /// The body did not come within the time of the whole request.
    pub(crate) fn body_too_late(timeouts: &Timeouts) -> Self {
        Self::new(Code::RequestTimeout, late_body(timeouts)).closing()
    }

    pub(crate) fn method_not_allowed(path: &str, allow: &'static str) -> Self {
        let mut failure = Self::new(Code::MethodNotAllowed, format!("{path} takes {allow} only"));
        failure.0.allow = Some(allow);
        failure
    }

    /// An answer to an acquire that was refused.
    pub(crate) fn refused(error: &Error, role: &str, model: &str) -> Self {
        let code = match error {
            Error::AtCapacity { .. } => Code::AtCapacity,
            Error::TooManyWaiters { .. } => Code::TooManyWaiters,
            Error::InvalidSessionKey { .. } => Code::InvalidSession,
            Error::Fenced { .. } => Code::Fenced,
            Error::NotServing { .. } => Code::NotServing,
            Error::VersionNotAcked { .. } => Code::VersionNotAcked,
            Error::StaleVersion { .. } => Code::VersionMismatch,
            Error::SessionClosed => Code::SessionClosed,
            Error::PoolFailed { .. } => Code::PoolFailed,
            Error::PoolClosed => Code::PoolClosed,
            Error::PoisonSuspected { .. } => Code::PoisonSuspected,
            _ => Code::NoEligibleBackend,
        };
        let failure = Self::new(code, format!("{error} (role {role:?}, model {model:?})"))
            .with_text("role", role)
            .with_text("model", model);
        match error {
            Error::NoEligibleBackend { census } => failure
                .with_number("registered", census.registered.into())
                .with_number("eligible", census.eligible.into())
                .with_number("unproven", census.unproven.into())
                .with_number("down", census.down.into())
                .with_number("draining", census.draining.into())
                .with_number("pending_version", census.pending_version.into())
                .with_number("tainted", census.tainted.into()),
            Error::PoisonSuspected { entry } => failure.with_json("poison", &poison::view(entry).to_string()),
            Error::StaleVersion { expected, published } => failure.of_other_version(*expected, *published),
            Error::AtCapacity { outstanding, limit } => failure
                .with_number("outstanding", (*outstanding).into())
                .with_number("max_concurrent", (*limit).into()),
            _ => failure,
        }
    }

    /// Only a version that may still be published is worth asking for again.
    fn of_other_version(mut self, expected: u64, published: Option<Published>) -> Self {
        self.0.retryable = published.is_none_or(|published| published.version < expected);
        let failure = self.with_number("expected", expected);
        match published {
            Some(published) => failure.with_number("published", published.version),
            None => failure,
        }
    }

    /// The answer to a request that was ready to wait: what it waited for has not come yet.
    pub(crate) fn after_waiting(mut self) -> Self {
        if matches!(
            self.0.code,
            Code::Fenced | Code::NotServing | Code::VersionNotAcked | Code::NoEligibleBackend
        ) {
            self.0.status = StatusCode::TOO_EARLY;
        }
        self
    }

    /// Marks that an engine may have run the request: it must not be sent again blindly.
    pub(crate) fn maybe_executed(mut self) -> Self {
        self.0.maybe_executed = true;
        self.with_json("maybe_executed", "true")
    }

    /// Closes the client's connection after the answer, because the request was not read to its end.
    pub(crate) fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }

    pub(crate) fn closes(&self) -> bool {
        self.0.close
    }

    pub(crate) fn of_backend(mut self, id: &HeaderValue) -> Self {
        self.0.labels[0] = Some(id.clone());
        self
    }

    pub(crate) fn of_lease(mut self, id: HeaderValue) -> Self {
        self.0.labels[1] = Some(id);
        self
    }

    pub(crate) fn of_version(mut self, version: Option<u64>) -> Self {
        self.0.version = version;
        self
    }

    pub(crate) fn of_session(mut self, key: Option<&HeaderValue>) -> Self {
        self.0.labels[2] = key.cloned();
        self
    }

    pub(crate) fn with_text(self, key: &str, value: &str) -> Self {
        let mut literal = String::new();
        push_string(&mut literal, value);
        self.with_json(key, &literal)
    }

    pub(crate) fn with_number(self, key: &str, value: u64) -> Self {
        self.with_json(key, &value.to_string())
    }

    /// `json` is the member's value as it is written.
    pub(crate) fn with_json(mut self, key: &str, json: &str) -> Self {
        let comma = if self.0.detail.is_empty() { "" } else { "," };
        let _ = write!(self.0.detail, "{comma}\"{key}\":{json}");
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Backend, lease and session, as far as the request got.
    pub(crate) fn labels(&self) -> [Option<String>; 3] {
        self.0.labels.each_ref().map(|label| {
            label
                .as_ref()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
    }

    /// The fleet's trouble, or ours; not a client's mistake.
    pub(crate) fn concerns_operator(&self) -> bool {
        let status = self.0.code.status();
        status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
    }

    fn retryable(&self) -> bool {
        self.0.retryable && !self.0.maybe_executed
    }

    /// The answer's JSON; `openai` adds what OpenAI clients look for.
    pub(crate) fn body(&self, openai: bool) -> String {
        let mut body = String::from("{\"error\":{\"code\":");
        push_string(&mut body, self.0.code.as_str());
        body.push_str(",\"message\":");
        push_string(&mut body, &self.0.message);
        let _ = write!(body, ",\"retryable\":{}", self.retryable());
        if openai {
            let _ = write!(body, ",\"type\":\"{}\",\"param\":null", self.0.code.openai_type());
        }
        if self.waits() {
            let _ = write!(body, ",\"retry_after_ms\":{}", RETRY_AFTER_S * 1000);
        }
        if !self.0.detail.is_empty() {
            let _ = write!(body, ",\"detail\":{{{}}}", self.0.detail);
        }
        body.push_str("}}");
        body
    }

    /// The error as one event of an event stream.
    pub(crate) fn event(&self, openai: bool, at_boundary: bool) -> Bytes {
        let separator = if at_boundary { "" } else { "\n\n" };
        Bytes::from(format!("{separator}data: {}\n\n", self.body(openai)))
    }

    fn waits(&self) -> bool {
        self.retryable() && matches!(self.0.status.as_u16(), 425 | 429 | 503)
    }

    pub(crate) fn into_response(self, openai: bool) -> Response<Answer> {
        let mut response = Response::new(Answer::full(Bytes::from(self.body(openai))));
        *response.status_mut() = self.0.status;
        let map = response.headers_mut();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(headers::ERROR, HeaderValue::from_static(self.0.code.as_str()));
        if !self.retryable() {
            map.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.waits() {
            map.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            map.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.0.allow {
            map.insert(ALLOW, HeaderValue::from_static(allow));
        }
        for (name, value) in LABELS.into_iter().zip(self.0.labels) {
            if let Some(value) = value {
                map.insert(name, value);
            }
        }
        if let Some(version) = self.0.version {
            map.insert(headers::WEIGHT_VERSION, HeaderValue::from(version));
        }
        if self.0.close {
            map.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// What whoever sends too slowly is told.
pub(crate) fn late_body(timeouts: &Timeouts) -> String {
    format!(
        "the request body did not arrive within {} s (total_timeout_s), and nothing was done; send the whole request again",
        timeouts.total.unwrap_or_default().as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may have run says so, is not retryable, and carries its evidence; the body is JSON in both styles.
    #[test]
    fn doubt_forbids_a_retry() {
        let failure = Failure::new(Code::TotalTimeout, "a \"quoted\" message").with_text("backend", "b\n");
        for (failure, retryable) in [(failure.clone(), true), (failure.maybe_executed(), false)] {
            for openai in [false, true] {
                let body: serde_json::Value = serde_json::from_str(&failure.body(openai)).expect("JSON");
                let error = &body["error"];
                assert_eq!(error["code"], "total_timeout");
                assert_eq!(error["retryable"], retryable);
                assert_eq!(error["detail"]["backend"], "b\n");
                assert_eq!(error.get("type").is_some(), openai);
                assert_eq!(error["detail"]["maybe_executed"] == true, !retryable);
            }
            let response = failure.into_response(false);
            assert_eq!(response.headers().contains_key(headers::SHOULD_RETRY), !retryable);
        }
    }

    /// "All busy" and "none exist" are told apart, and both say when to come back.
    #[test]
    fn refusals_say_when_to_come_back() {
        let busy = Failure::refused(
            &Error::AtCapacity {
                outstanding: 4,
                limit: 4,
            },
            "r",
            "m",
        )
        .into_response(false);
        let census = router_core::error::Census::default();
        let none = Failure::refused(&Error::NoEligibleBackend { census }, "r", "m").into_response(true);
        assert_eq!((busy.status().as_u16(), none.status().as_u16()), (429, 503));
        assert_eq!(
            (&busy.headers()[RETRY_AFTER], &none.headers()[RETRY_AFTER]),
            (&"1".parse().unwrap(), &"1".parse().unwrap())
        );
    }
}
