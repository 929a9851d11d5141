//! The description of the API, as a document that is kept by hand and checked by a test.

use super::reply::{Answer, bytes};
use ::bytes::Bytes;
use http::{Response, StatusCode};

pub(crate) const DOCUMENT: &str = include_str!("openapi.json");

pub(super) fn document() -> Response<Answer> {
    bytes(StatusCode::OK, Bytes::from_static(DOCUMENT.as_bytes()))
}

#[cfg(test)]
mod tests;
