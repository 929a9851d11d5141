//! Answers: JSON, each with the incarnation of the router and where the pool stands.

mod object;

use super::{Context, Stamped};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
pub(super) use object::{Members, Object};
use router_core::pool::Pool;
use serde::Serialize;
use std::time::Duration;

/// The body of an answer: small, and complete.
pub(crate) type Answer = Bytes;

/// Where a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stamp {
    /// Grows with every update that begins.
    pool_gen: u32,
    /// Grows with every change a watcher may wait for.
    revision: u64,
}

impl Stamp {
    pub(super) fn of(pool: &Pool) -> Self {
        Self {
            pool_gen: pool.generation(),
            revision: pool.revision(),
        }
    }

    pub(super) fn revision(self) -> u64 {
        self.revision
    }
}

#[derive(Serialize)]
struct Granted<'a, T> {
    #[serde(flatten)]
    body: &'a T,
    incarnation: &'a str,
    #[serde(flatten)]
    stamp: Stamp,
}

/// The body of a refusal.
#[derive(Serialize)]
pub(super) struct Refused<'a, T> {
    pub(super) error: &'a T,
    pub(super) incarnation: &'a str,
    #[serde(flatten)]
    pub(super) stamp: Option<Stamp>,
}

impl Context<'_> {
    /// The answer `body` about a pool that stands at its stamp.
    pub(super) fn ok<T: Serialize>(&self, body: &Stamped<T>) -> Response<Answer> {
        let granted = Granted {
            body: &body.value,
            incarnation: &self.api.incarnation,
            stamp: body.stamp,
        };
        json(StatusCode::OK, &granted)
    }
}

impl Context<'_> {
    /// The same for an answer that every execution gets.
    pub(super) fn write(&self, body: &Stamped<impl Members>) -> Bytes {
        let mut object = Object::with_capacity(1);
        object.raw("{");
        body.value.write(&mut object);
        self.close(object, body.stamp)
    }

    /// Ends an answer about a pool that stands at `stamp`.
    pub(super) fn close(&self, mut object: Object, stamp: Stamp) -> Bytes {
        object.text("\"incarnation\":", &self.api.incarnation);
        object.number("\"pool_gen\":", stamp.pool_gen.into());
        object.number("\"revision\":", stamp.revision);
        object.without_comma().raw("}");
        object.into_bytes()
    }
}

impl<T> Stamped<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Stamped<U> {
        Stamped {
            value: change(self.value),
            stamp: self.stamp,
        }
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<Answer> {
    // The types here have text keys and finite numbers, which is all that writing JSON can fail on.
    bytes(status, Bytes::from(serde_json::to_vec(body).unwrap_or_default()))
}

pub(super) fn bytes(status: StatusCode, body: Bytes) -> Response<Answer> {
    with_headers(HeaderMap::new(), status, body)
}

/// Answers with the header map of the request: hyper keeps it for the next one, so a connection allocates it once.
pub(super) fn reusing(mut headers: HeaderMap, body: Bytes) -> Response<Answer> {
    headers.clear();
    with_headers(headers, StatusCode::OK, body)
}

fn with_headers(mut headers: HeaderMap, status: StatusCode, body: Bytes) -> Response<Answer> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// For members called `…_ms`.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
