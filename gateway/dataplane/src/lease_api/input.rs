//! Reading a body: bounded, strict, and for this start of the router.

use super::LeaseApi;
use super::error::{Problem, Refusal};
use super::request::Body;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::error::Category;

/// The largest body: a batch of a thousand requests has a hundredth of it.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A body that was read and not yet understood.
pub(super) struct Input<'a> {
    api: &'a LeaseApi,
    bytes: Vec<u8>,
}

impl<'a> Input<'a> {
    pub(super) async fn read(api: &'a LeaseApi, mut body: Incoming) -> Result<Self, Refusal> {
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                let message = "the request body ended before its announced end";
                return Err(Refusal::new(Problem::Malformed, message).closing());
            };
            let Ok(chunk) = frame.into_data() else { continue };
            if bytes.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Self { api, bytes })
    }

    /// What the body says. No body at all is an object without members.
    pub(super) fn parse<T: Body>(&self) -> Result<T, Refusal> {
        let bytes = if self.bytes.is_empty() {
            b"{}"
        } else {
            self.bytes.as_slice()
        };
        let body: T = serde_json::from_slice(bytes).map_err(|error| {
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
