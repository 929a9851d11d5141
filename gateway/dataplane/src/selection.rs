//! What a request asks for: its model, by the rules of [`router_core::routing`], and its session.

use crate::body::Received;
use crate::error::{Code, Failure};
use crate::headers::Asked;
use crate::json::unescape;
use crate::peek::Field;
use crate::plane::{Model, Role};
use bytes::Bytes;
use http::HeaderValue;
use router_core::routing::{MAX_NAME_BYTES, RoutingCode, Selector, SessionField};
use router_core::session::MAX_KEY_BYTES;

/// A string of this many bytes is longer than any name or key, however it is escaped.
const MAX_RAW_BYTES: usize = 8 * MAX_NAME_BYTES;

/// The model a request goes to.
pub(crate) fn select_model<'a>(role: &'a Role, received: &Received) -> Result<&'a Model, Failure> {
    let model = Given::read(received, Field::Model);
    let key = Given::read(received, Field::RouteKey);
    let route = role.routing.resolve(model.selector(), key.selector());
    route.map(|route| &role.models[route.index]).map_err(|error| {
        let code = match error.code() {
            RoutingCode::InvalidModel => Code::InvalidModel,
            RoutingCode::UnknownModel => Code::UnknownModel,
            RoutingCode::InvalidRouteKey => Code::InvalidRouteKey,
            RoutingCode::UnknownRouteKey => Code::UnknownRouteKey,
            RoutingCode::ModelRequired => Code::ModelRequired,
        };
        Failure::new(code, error.to_string())
    })
}

/// The session as the headers name it.
pub(crate) fn session_in_headers(asked: &Asked<'_>) -> Result<Option<HeaderValue>, Failure> {
    let Some(value) = asked.session else { return Ok(None) };
    session_key(value)?;
    Ok(Some(value.clone()))
}

/// The session as the body names it, where the role allows that. `null` names none.
pub(crate) fn session_in_body(role: &Role, received: &Received) -> Result<Option<HeaderValue>, Failure> {
    for &field in role.routing.session_fields() {
        let place = match field {
            SessionField::SessionId => Field::SessionId,
            SessionField::User => Field::User,
        };
        let text = match Given::read(received, place) {
            Given::Absent | Given::Null => continue,
            Given::Text(text) => text,
            Given::Other => {
                let message = format!("\"{}\" names the session and must be a string", field.as_str());
                return Err(Failure::new(Code::InvalidSession, message));
            }
        };
        let value = HeaderValue::from_maybe_shared(Bytes::from(text)).map_err(|_| {
            let message = format!("\"{}\" names the session and has control characters", field.as_str());
            Failure::new(Code::InvalidSession, message)
        })?;
        session_key(&value)?;
        return Ok(Some(value));
    }
    Ok(None)
}

/// The sticky key in a header's value.
pub(crate) fn session_key(value: &HeaderValue) -> Result<&str, Failure> {
    let bytes = value.as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Ok(key),
        Ok(key) => Err(Failure::new(
            Code::InvalidSession,
            format!(
                "the session key has {} bytes; it must have 1 to {MAX_KEY_BYTES}",
                key.len()
            ),
        )),
        Err(_) => Err(Failure::new(Code::InvalidSession, "the session key is not UTF-8")),
    }
}

/// The value of a top-level member, as far as it matters.
enum Given {
    Absent,
    Null,
    Text(String),
    /// Another value, or a string with a malformed escape.
    Other,
}

impl Given {
    fn read(received: &Received, field: Field) -> Self {
        let Some(span) = received.peek.value(field) else {
            return Self::Absent;
        };
        let raw = received.extract(span, MAX_RAW_BYTES);
        let is_whole = raw.len() == span.end - span.start;
        match &raw[..] {
            b"null" => Self::Null,
            [b'"', text @ .., b'"'] if is_whole => unescape(text).map_or(Self::Other, Self::Text),
            // Not a name, but the beginning of one for the message.
            [b'"', text @ ..] => Self::Text(String::from_utf8_lossy(text).into_owned()),
            _ => Self::Other,
        }
    }

    fn selector(&self) -> Selector<'_> {
        match self {
            Self::Absent => Selector::Absent,
            Self::Text(text) => Selector::Text(text),
            Self::Null | Self::Other => Selector::NotText,
        }
    }
}
