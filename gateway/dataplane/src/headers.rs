//! Which headers cross the gateway: everything, except what belongs to one connection and what is ours.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The machine-readable code of an error of ours.
pub(crate) const ERROR: HeaderName = HeaderName::from_static("x-trimtab-error");
/// The backend that answered.
pub(crate) const BACKEND: HeaderName = HeaderName::from_static("x-trimtab-backend");
/// The lease the answer ran under.
pub(crate) const LEASE: HeaderName = HeaderName::from_static("x-trimtab-lease");
/// The sticky key, in requests and answers.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("x-trimtab-session");
/// For the control app: `admin`, or why the caller is none.
pub(crate) const ACCESS: HeaderName = HeaderName::from_static("x-trimtab-access");
/// The sticky key as `sglang_router` calls it.
pub(crate) const ROUTING_KEY: HeaderName = HeaderName::from_static("x-smg-routing-key");
/// How many seconds a request may wait for its lease.
pub(crate) const WAIT: HeaderName = HeaderName::from_static("x-trimtab-wait");
/// The weights an answer was made with; in a request, the only ones it may run on.
pub(crate) const WEIGHT_VERSION: HeaderName = HeaderName::from_static("x-trimtab-weight-version");
/// Tells nginx and its like not to hold events back.
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Tells OpenAI clients not to repeat the request.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const OURS: &str = "x-trimtab-";

/// Removes the headers that describe one connection, and those the `Connection` header names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        // Of the two the encoding counted when the body was read, so that the length may be wrong.
        headers.remove(CONTENT_LENGTH);
    }
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// Turns an engine's headers into those of the answer: what we say about an execution cannot come from an engine.
pub(crate) fn prepare_for_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    strip_ours(headers);
}

fn strip_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OURS))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Turns a client's headers into those of the request to an engine with a body of `length` bytes.
pub(crate) fn prepare_for_engine(headers: &mut HeaderMap, host: &HeaderValue, length: u64) {
    strip_hop_by_hop(headers);
    // The body is complete here, so there is nothing left to ask permission for.
    headers.remove(EXPECT);
    strip_ours(headers);
    headers.insert(HOST, host.clone());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::AUTHORIZATION;

    fn headers(lines: &[(&str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    name.parse::<HeaderName>().expect("a name"),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    /// Connection headers, those they name and ours stay here; all else goes on untouched.
    #[test]
    fn engine_headers() {
        let mut map = headers(&[
            ("connection", "Keep-Alive, X-Secret-Hop"),
            ("keep-alive", "timeout=5"),
            ("x-secret-hop", "1"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("transfer-encoding", "chunked"),
            ("x-trimtab-session", "s"),
            ("x-trimtab-wait", "1"),
            ("x-session-id", "s"),
            ("authorization", "Bearer k"),
            ("accept-encoding", "gzip"),
            ("host", "gateway"),
        ]);
        prepare_for_engine(&mut map, &HeaderValue::from_static("engine:1"), 7);
        let mut left: Vec<&str> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                "accept-encoding",
                "authorization",
                "content-length",
                "host",
                "x-session-id"
            ]
        );
        assert_eq!(map[HOST], "engine:1");
        assert_eq!(map[CONTENT_LENGTH], "7");
        assert_eq!(map[AUTHORIZATION], "Bearer k");
    }
}
