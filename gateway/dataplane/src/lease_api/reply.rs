//! Answers: JSON, each with the incarnation of the router and where the pool stands.

use super::{Context, Stamped};
use crate::answer::Answer;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use router_core::pool::Pool;
use serde::Serialize;
use std::time::Duration;

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
    let mut response = Response::new(Answer::full(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// For members called `…_ms`.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
