//! Which headers cross the gateway: everything, except what belongs to one connection and what is ours.

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use router_core::lease::LeaseId;
use router_core::routing::SESSION_HEADERS;

/// The machine-readable code of an error of ours.
pub(crate) const ERROR: HeaderName = HeaderName::from_static("x-trimtab-error");
/// The backend that answered.
pub(crate) const BACKEND: HeaderName = HeaderName::from_static("x-trimtab-backend");
/// The lease the answer ran under.
pub(crate) const LEASE: HeaderName = HeaderName::from_static("x-trimtab-lease");
/// The sticky key, in requests and answers.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("x-trimtab-session");
/// The sticky key as `sglang_router` calls it.
pub(crate) const ROUTING_KEY: HeaderName = HeaderName::from_static("x-smg-routing-key");
/// For the control app: `admin`, or why the caller is none.
pub(crate) const ACCESS: HeaderName = HeaderName::from_static("x-trimtab-access");
/// How many seconds a request may wait for its lease.
pub(crate) const WAIT: HeaderName = HeaderName::from_static("x-trimtab-wait");
/// The weights an answer was made with; in a request, the only ones it may run on.
pub(crate) const WEIGHT_VERSION: HeaderName = HeaderName::from_static("x-trimtab-weight-version");
/// Tells nginx and its like not to hold events back.
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Tells OpenAI clients not to repeat the request.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

const OURS: &str = "x-trimtab-";

/// What a client's headers ask of us; of a header that is repeated the first one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    /// The first of [`SESSION_HEADERS`] that is there.
    pub(crate) session: Option<&'a HeaderValue>,
    pub(crate) wait: Option<&'a HeaderValue>,
    pub(crate) version: Option<&'a HeaderValue>,
}

impl<'a> Asked<'a> {
    /// Reads them in one pass, which costs less than a look-up for each that may be there.
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut asked = Self::default();
        let mut rank = SESSION_HEADERS.len();
        for (name, value) in headers {
            let known = SESSION_HEADERS.iter().position(|known| *known == name.as_str());
            if let Some(known) = known.filter(|known| *known < rank) {
                rank = known;
                asked.session = Some(value);
            } else if *name == WAIT {
                asked.wait.get_or_insert(value);
            } else if *name == WEIGHT_VERSION {
                asked.version.get_or_insert(value);
            }
        }
        asked
    }
}

/// A lease's id, as it is shown to the client.
pub(crate) fn lease(id: LeaseId) -> HeaderValue {
    HeaderValue::from_bytes(&id.to_hex()).unwrap_or(HeaderValue::from_static("-"))
}

/// Turns an engine's headers into those of the answer: what we say about an execution cannot come from an engine.
pub(crate) fn prepare_for_client(headers: &mut HeaderMap) {
    strip(headers, is_ours);
}

/// Removes what a client says to us alone. Before anything of ours is added: `Connection` may name any header.
pub(crate) fn strip_for_engine(headers: &mut HeaderMap) {
    strip(headers, is_ours);
    // The body is read before an engine is asked, so there is nothing left to ask permission for.
    headers.remove(EXPECT);
}

/// Addresses stripped headers to an engine, for a body of `length` bytes.
pub(crate) fn address_to_engine(headers: &mut HeaderMap, host: &HeaderValue, length: u64) {
    headers.insert(HOST, host.clone());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Removes the headers that describe one connection, and those the `Connection` header names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    strip(headers, |_| false);
}

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with(OURS)
}

/// Removes what belongs to one connection, and what else is to leave.
fn strip(headers: &mut HeaderMap, leaves: fn(&HeaderName) -> bool) {
    // One pass over the few headers there are costs less than asking for each of the many that may be there.
    let mut leaving: Vec<HeaderName> = Vec::new();
    let mut encoded = false;
    for name in headers.keys() {
        if name == TRANSFER_ENCODING {
            encoded = true;
        }
        if is_hop_by_hop(name) || leaves(name) {
            leaving.push(name.clone());
        }
    }
    if encoded {
        // Of the two the encoding counted when the body was read, so that the length may be wrong.
        leaving.push(CONTENT_LENGTH);
    }
    if leaving.contains(&CONNECTION) {
        leaving.extend(named_by_connection(headers));
    }
    for name in leaving {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    // Names are in lower case.
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
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

    /// The first session header in the order of their rank counts, wherever it stands; of a repeated one the first.
    #[test]
    fn what_clients_ask() {
        let map = headers(&[
            ("x-smg-routing-key", "low"),
            ("x-session-id", "first"),
            ("x-session-id", "second"),
            ("x-trimtab-wait", "1"),
            ("x-trimtab-wait", "2"),
            ("x-other", "3"),
        ]);
        let asked = Asked::of(&map);
        let text = |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).map(str::to_owned);
        assert_eq!(text(asked.session).as_deref(), Some("first"));
        assert_eq!(text(asked.wait).as_deref(), Some("1"));
        assert_eq!(text(asked.version), None);
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
        strip_for_engine(&mut map);
        address_to_engine(&mut map, &HeaderValue::from_static("engine:1"), 7);
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
