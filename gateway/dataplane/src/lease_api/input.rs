//! Reading a body: bounded, strict, and for this start of the router.

use super::LeaseApi;
use super::error::{Problem, Refusal};
use super::request::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::error::Category;

/// The largest body: a batch of a thousand requests has a hundredth of it.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A body that was read and not yet understood.
pub(super) struct Input<'a> {
    api: &'a LeaseApi,
    bytes: Bytes,
}

impl<'a> Input<'a> {
    pub(super) async fn read(api: &'a LeaseApi, mut body: Incoming) -> Result<Self, Refusal> {
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return Err(too_large());
        }
        let first = chunk(&mut body).await?.unwrap_or_default();
        // Nearly every body came in one piece with its head.
        let bytes = if body.is_end_stream() {
            first
        } else {
            Self::read_on(first, body).await?
        };
        if bytes.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        Ok(Self { api, bytes })
    }

    async fn read_on(first: Bytes, mut body: Incoming) -> Result<Bytes, Refusal> {
        let mut bytes = Vec::from(first);
        while let Some(chunk) = chunk(&mut body).await? {
            if bytes.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.into())
    }

    /// What the body says. No body at all is an object without members.
    pub(super) fn parse<'s, T: Body<'s>>(&'s self) -> Result<T, Refusal> {
        let bytes: &[u8] = if self.bytes.is_empty() { b"{}" } else { &self.bytes };
        // A text is checked once as a whole. Bytes that are none are parsed all the same, to tell what is wrong with them.
        let body: Result<T, _> = match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(bytes),
        };
        let body = body.map_err(|error| {
            let problem = match error.classify() {
                Category::Data => Problem::Unprocessable,
                Category::Syntax | Category::Eof | Category::Io => Problem::Malformed,
            };
            Refusal::new(problem, format!("the request body is refused: {error}"))
        })?;
        self.api.expect(body.expect_incarnation())?;
        Ok(body)
    }
}

/// The next piece of `body`; none at its end.
async fn chunk(body: &mut Incoming) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            let message = "the request body ended before its announced end";
            return Err(Refusal::new(Problem::Malformed, message).closing());
        };
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

impl LeaseApi {
    /// Refuses a call that is meant for another start of the router.
    pub(super) fn expect(&self, incarnation: Option<&str>) -> Result<(), Refusal> {
        match incarnation {
            Some(expected) if expected != self.incarnation => {
                let message = "the router was restarted since: attach again and present what you hold";
                Err(Refusal::new(Problem::RouterRestarted, message)
                    .with("expected", expected)
                    .with("incarnation", self.incarnation.as_str()))
            }
            _ => Ok(()),
        }
    }
}

fn too_large() -> Refusal {
    let message = format!("the request body is larger than {MAX_BODY_BYTES} bytes");
    Refusal::new(Problem::BodyTooLarge, message)
        .with("max_body_bytes", MAX_BODY_BYTES)
        .closing()
}
