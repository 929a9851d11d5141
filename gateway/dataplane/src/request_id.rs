//! Ids of executions: the ones we make, and the ones that may safely be used in an abort.

use crate::few::Few;
use bytes::Bytes;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Ids shorter than this are not used in an abort when they could be the beginning of one of ours.
const SHORTEST_UNIQUE_PREFIX: usize = 8;

/// The length of an id of ours.
pub(crate) const ID_DIGITS: usize = 32;

/// Makes ids of 32 hex digits that are unique in this process and, with 64 random bits, among gateways.
///
/// The length is fixed on purpose: SGLang aborts every request whose id *starts with* the given one.
pub(crate) struct RequestIdSource {
    process: u64,
    next: AtomicU64,
}

impl RequestIdSource {
    pub(crate) fn new() -> Self {
        // The standard library seeds each `RandomState` from the system's random numbers.
        let random = RandomState::new();
        Self {
            process: random.hash_one("process"),
            next: AtomicU64::new(random.hash_one("first")),
        }
    }

    pub(crate) fn next(&self) -> RequestId {
        RequestId::new(self.process, scatter(self.next.fetch_add(1, Relaxed)))
    }
}

/// An id that we give an execution, in every form in which it is written; they share their bytes.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Bytes);

impl RequestId {
    const KEY: &'static [u8] = b"\"rid\":";

    pub(crate) fn new(high: u64, low: u64) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = Vec::with_capacity(Self::KEY.len() + 35);
        text.extend_from_slice(Self::KEY);
        text.push(b'"');
        for byte in high.to_be_bytes().into_iter().chain(low.to_be_bytes()) {
            text.push(DIGITS[usize::from(byte >> 4)]);
            text.push(DIGITS[usize::from(byte & 0xf)]);
        }
        text.extend_from_slice(b"\",");
        Self(Bytes::from(text))
    }

    /// `"rid":"<32 hex digits>",`
    pub(crate) fn member_with_comma(&self) -> Bytes {
        self.0.clone()
    }

    /// `"rid":"<32 hex digits>"`
    pub(crate) fn member(&self) -> Bytes {
        self.0.slice(..self.0.len() - 1)
    }

    /// `"<32 hex digits>"`
    pub(crate) fn literal(&self) -> Bytes {
        self.0.slice(Self::KEY.len()..self.0.len() - 1)
    }
}

/// A one-to-one mix of all bits (the finaliser of splitmix64), so that consecutive ids do not look alike.
fn scatter(count: u64) -> u64 {
    let mut x = count;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The ids by which one HTTP request can be aborted, as JSON string literals with their quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AbortIds(Few<Bytes>);

impl AbortIds {
    /// The one id we spliced in.
    pub(crate) fn ours(id: &RequestId) -> Self {
        Self(Few::one(id.literal()))
    }

    /// The ids of a client's `rid`: a string, or a list of strings for a batch.
    ///
    /// Left out are ids that would abort other people's requests too, because aborting is by prefix: the empty one,
    /// and short ones that could begin an id of ours. Such a request is ended by closing its connection alone.
    pub(crate) fn of_client(raw: &Bytes) -> Self {
        let is_safe = |literal: &Bytes| is_safe_in_an_abort(&literal[1..literal.len() - 1]);
        match raw.first() {
            Some(b'"' | b'[') => Self(string_literals(raw).filter(is_safe).collect()),
            // Neither a string nor a list: the engine will refuse the request.
            _ => Self::default(),
        }
    }

    /// The ids that a sender gives its request; the error says which of them could abort requests of others.
    pub(crate) fn of_sender<'a>(ids: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let literal = |id: &'a str| {
            if is_safe_in_an_abort(id.as_bytes()) {
                Ok(Bytes::from(serde_json::Value::from(id).to_string()))
            } else {
                Err(id.to_owned())
            }
        };
        ids.into_iter().map(literal).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }
}

/// Whether no id of ours, nor of another gateway, can begin with `text`.
pub(crate) fn is_safe_in_an_abort(text: &[u8]) -> bool {
    text.len() >= SHORTEST_UNIQUE_PREFIX || text.iter().any(|byte| !byte.is_ascii_hexdigit())
}

/// The string literals in `raw`, which is one JSON string or an array that was checked to be well-formed.
fn string_literals(raw: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position + memchr::memchr(b'"', &raw[position..])?;
        let mut end = start + 1;
        loop {
            end += memchr::memchr2(b'"', b'\\', &raw[end..])?;
            if raw[end] == b'"' {
                break;
            }
            end += 2;
        }
        position = end + 1;
        Some(raw.slice(start..position))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn ids(raw: &'static str) -> Vec<String> {
        AbortIds::of_client(&Bytes::from_static(raw.as_bytes()))
            .iter()
            .map(|id| String::from_utf8_lossy(id).into_owned())
            .collect()
    }

    /// Ids have one length, so that none is a prefix of another, and do not repeat.
    #[test]
    fn ids_are_unique_and_of_one_length() {
        let source = RequestIdSource::new();
        let made: HashSet<Bytes> = (0..10_000).map(|_| source.next().literal()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(
            made.iter()
                .all(|id| id.len() == 34 && id[1..33].iter().all(u8::is_ascii_hexdigit))
        );
    }

    /// Every form of an id has the same digits.
    #[test]
    fn forms_of_an_id() {
        let id = RequestId::new(0x0123_4567_89ab_cdef, 0xf0);
        assert_eq!(id.literal(), "\"0123456789abcdef00000000000000f0\"");
        assert_eq!(id.member(), "\"rid\":\"0123456789abcdef00000000000000f0\"");
        assert_eq!(id.member_with_comma(), "\"rid\":\"0123456789abcdef00000000000000f0\",");
    }

    /// A client's id is used as it was written, a batch's ids one by one.
    #[test]
    fn ids_of_clients() {
        assert_eq!(ids(r#""job-1""#), [r#""job-1""#]);
        assert_eq!(ids(r#"["job-\"1\"", "job\\"]"#), [r#""job-\"1\"""#, r#""job\\""#]);
    }

    /// A sender's ids become JSON literals; one that could abort requests of others is named.
    #[test]
    fn ids_of_senders() {
        let ids = AbortIds::of_sender(["job-\"1\"", "0123456789abcdef"]).expect("safe");
        assert_eq!(
            ids.iter().collect::<Vec<_>>(),
            [r#""job-\"1\"""#, r#""0123456789abcdef""#]
        );
        assert_eq!(AbortIds::of_sender(["job-1", "a1"]), Err("a1".to_owned()));
        assert!(AbortIds::of_sender([""]).is_err());
    }

    /// Aborting is by prefix: ids that could hit requests of others are never sent.
    #[test]
    fn dangerous_ids_are_left_out() {
        assert!(ids(r#""""#).is_empty());
        assert!(ids(r#""a1""#).is_empty());
        assert_eq!(ids(r#"["", "a1", "0123456789abcdef"]"#), [r#""0123456789abcdef""#]);
    }
}
