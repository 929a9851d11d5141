//! From a chat completion to the text of a judge.

use crate::answer::Answer;
use crate::attempt::Started;
use crate::error::{Code, Failure};
use crate::exchange::{Deadlines, Exchange, before_either, describe};
use crate::headers::{self, BACKEND, LEASE, SESSION, WEIGHT_VERSION};
use crate::observe::Observer;
use crate::plane::Plane;
use crate::relay::settlement;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode, Version};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Reads the engine's answer to its end and makes `{"response": text}` of it; one that is an error passes as it is.
pub(crate) async fn answer(
    plane: &Plane,
    started: Started,
    total: Option<Instant>,
    session: Option<HeaderValue>,
) -> Result<Response<Answer>, Failure> {
    let Started { mut exchange, response } = started;
    let (mut parts, body) = response.into_parts();
    let (backend, lease) = (exchange.upstream().id_header.clone(), exchange.label());
    let version = exchange.version();
    let bytes = collect(plane, &mut exchange, body, parts.status, total).await?;
    headers::prepare_for_client(&mut parts.headers);
    let bytes = if parts.status.is_success() {
        let text = judgement(&bytes).map_err(|problem| exchange.unusable(problem))?;
        parts.status = StatusCode::OK;
        parts
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Bytes::from(json!({ "response": text.trim() }).to_string())
    } else {
        Bytes::from(bytes)
    };
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    parts.headers.insert(BACKEND, backend);
    parts.headers.insert(LEASE, lease);
    if let Some(version) = version {
        parts.headers.insert(WEIGHT_VERSION, HeaderValue::from(version));
    }
    if let Some(session) = session {
        parts.headers.insert(SESSION, session);
    }
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, Answer::full(bytes)))
}

/// The whole body, with its lease settled.
async fn collect(
    plane: &Plane,
    exchange: &mut Exchange,
    mut body: Incoming,
    status: StatusCode,
    total: Option<Instant>,
) -> Result<Vec<u8>, Failure> {
    let mut observer = Observer::new(false).expecting(exchange.expected());
    let mut bytes = Vec::new();
    let deadlines = Deadlines {
        first_byte: plane.config.timeouts.idle,
        total,
    };
    loop {
        let next = std::future::poll_fn(|cx| exchange.poll_frame(&mut body, cx));
        let frame = match before_either(deadlines, next).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                let what = format!("broke off its response ({})", describe(&error));
                return Err(exchange.break_off(Code::UpstreamBroken, &what));
            }
            Err(code) => {
                let code = if code == Code::TotalTimeout {
                    code
                } else {
                    Code::IdleTimeout
                };
                return Err(exchange.break_off(code, "did not finish its response in time"));
            }
        };
        let Ok(chunk) = frame.into_data() else { continue };
        exchange.upstream().hear();
        observer.feed(&chunk);
        if let Some(version) = observer.take_other_version() {
            exchange.note_other_version(version);
        }
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > plane.config.limits.max_body_bytes {
            return Err(exchange.break_off(Code::UpstreamBroken, "answered more than max_body_bytes"));
        }
    }
    exchange.complete(settlement(status, &observer));
    Ok(bytes)
}

/// The text of a chat completion that came to its end.
fn judgement(bytes: &[u8]) -> Result<String, &'static str> {
    let completion: Value = serde_json::from_slice(bytes).map_err(|_| "answered something that is not JSON")?;
    // Of an immutable value an index that is not there is null.
    let choice = &completion["choices"][0];
    // What an interrupted judge said so far is no judgement, and would become a reward.
    match choice["finish_reason"].as_str() {
        None => return Err("answered without a reason why the generation ended"),
        Some("abort") => return Err("aborted the generation"),
        Some(_) => {}
    }
    let text = choice["message"]["content"].as_str();
    text.map(str::to_owned)
        .ok_or("answered without a text in choices[0].message.content")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A complete text passes; an interrupted one, and what is none, does not become a reward.
    #[test]
    fn judgements() {
        let completion = |content: &str, finish: &str| {
            format!(r#"{{"choices":[{{"message":{{"content":{content}}},"finish_reason":"{finish}"}}]}}"#)
        };
        assert_eq!(
            judgement(completion("\" 1 \"", "stop").as_bytes()),
            Ok(" 1 ".to_owned())
        );
        assert_eq!(judgement(completion("\"1\"", "length").as_bytes()), Ok("1".to_owned()));
        for bad in [
            completion("\"1\"", "abort"),
            completion("null", "stop"),
            completion("\"1\"", "stop").replace("\"stop\"", "null"),
            completion("\"1\"", "stop").replace("\"stop\"", "{\"type\":\"abort\"}"),
            "{}".to_owned(),
            "<html>".to_owned(),
        ] {
            assert!(judgement(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
