//! Reads facts out of a response that streams by: how the generation ended, how many tokens it made, and (where weights
//! have versions) which weights made them.
//!
//! Nothing is parsed and nothing is changed: the bytes are searched for `"finish_reason"` and `"completion_tokens"`.
//! Inside a JSON string a quote is escaped, so neither marker can occur in generated text. What a marker says may be
//! cut by a chunk boundary; then the cut piece is carried over to the next chunk.

use memchr::memmem::{Finder, FinderBuilder};
use std::sync::LazyLock;

/// A marker with its value never needs more bytes than this (`"finish_reason" : { "type" : "abort"` and some space).
const WINDOW: usize = 96;
/// As many last bytes as tell how a stream ended (`[DONE]` and line breaks).
const TAIL: usize = 16;

static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| FinderBuilder::new().build_forward(b"\"finish_reason\""));
static TOKENS: LazyLock<Finder<'static>> =
    LazyLock::new(|| FinderBuilder::new().build_forward(b"\"completion_tokens\""));

/// What a marker's value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict<T> {
    Says(T),
    /// Not what we look for.
    Nothing,
    /// The bytes end before one can tell.
    Cut,
}

/// The observer of one response.
#[derive(Debug)]
pub(crate) struct Observer {
    streaming: bool,
    finish: Marker,
    tokens: Marker,
    aborted: bool,
    count: Option<u64>,
    tail: Tail,
    /// Absent when the lease has no version, so that others do not pay for it.
    versions: Option<Box<Versions>>,
}

impl Observer {
    /// `streaming`: the response is an event stream, in which each event repeats the count so far.
    pub(crate) fn new(streaming: bool) -> Self {
        Self {
            streaming,
            finish: Marker::default(),
            tokens: Marker::default(),
            aborted: false,
            count: None,
            tail: Tail::default(),
            versions: None,
        }
    }

    /// The same, looking for weights other than these.
    pub(crate) fn expecting(mut self, expected: Option<Expected>) -> Self {
        self.versions = expected.map(|expected| Box::new(Versions::expecting(expected)));
        self
    }

    /// A label that is not the expected one, told once.
    pub(crate) fn take_other_version(&mut self) -> Option<Label> {
        let other = self.versions.as_ref()?.other()?;
        self.versions = None;
        Some(other)
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let Self {
            finish,
            tokens,
            aborted,
            count,
            ..
        } = self;
        finish.feed(chunk, &FINISH, says_abort, |()| *aborted = true);
        let streaming = self.streaming;
        tokens.feed(chunk, &TOKENS, number, |found| add(count, found, streaming));
        self.tail.feed(chunk);
        if let Some(versions) = &mut self.versions {
            versions.feed(chunk);
        }
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// A generation ended because it was aborted.
    pub(crate) fn aborted(&self) -> bool {
        self.aborted
    }

    /// Completion tokens: of a stream the last count, otherwise the sum over a batch. `None` when never said.
    pub(crate) fn output_tokens(&self) -> Option<u64> {
        self.count
    }

    /// The bytes so far end with the marker that ends an OpenAI or SGLang event stream.
    pub(crate) fn saw_done(&self) -> bool {
        self.tail.bytes().trim_ascii_end().ends_with(b"[DONE]")
    }

    /// The bytes so far end an event (or there are none).
    pub(crate) fn at_event_boundary(&self) -> bool {
        let tail = self.tail.bytes();
        tail.is_empty() || tail.ends_with(b"\n\n") || tail.ends_with(b"\r\n\r\n") || tail.ends_with(b"\r\r")
    }
}

fn add(count: &mut Option<u64>, found: u64, streaming: bool) {
    *count = Some(match *count {
        Some(before) if !streaming => before.saturating_add(found),
        _ => found,
    });
}

/// The search for one marker.
#[derive(Debug, Default)]
struct Marker {
    /// Last bytes that may be the beginning of a marker, or a marker whose value is not complete yet.
    carried: Vec<u8>,
}

impl Marker {
    fn feed<T>(&mut self, chunk: &[u8], needle: &Finder<'_>, read: fn(&[u8]) -> Verdict<T>, mut found: impl FnMut(T)) {
        let mut fresh = chunk;
        if !self.carried.is_empty() {
            // A seam: the carried bytes and enough new ones to decide every marker that begins in the carried part.
            let carried = self.carried.len();
            let taken = chunk.len().min(WINDOW);
            let mut seam = std::mem::take(&mut self.carried);
            seam.extend_from_slice(&chunk[..taken]);
            if taken == chunk.len() {
                // The chunk is so short that the seam is all there is.
                let keep = scan(&seam, usize::MAX, needle, read, &mut found);
                seam.drain(..keep);
                self.carried = seam;
                return;
            }
            scan(&seam, carried, needle, read, &mut found);
            fresh = chunk;
            seam.clear();
            self.carried = seam;
        }
        let keep = scan(fresh, usize::MAX, needle, read, &mut found);
        self.carried.extend_from_slice(&fresh[keep..]);
    }
}

/// Reports every marker that begins before `limit`; returns where the undecided rest of `bytes` begins.
fn scan<T>(
    bytes: &[u8],
    limit: usize,
    needle: &Finder<'_>,
    read: fn(&[u8]) -> Verdict<T>,
    found: &mut impl FnMut(T),
) -> usize {
    let length = needle.needle().len();
    let mut from = 0;
    while let Some(offset) = needle.find(&bytes[from..]) {
        let start = from + offset;
        if start >= limit {
            return bytes.len();
        }
        match read(&bytes[start + length..]) {
            Verdict::Says(value) => found(value),
            Verdict::Cut if bytes.len() - start < WINDOW => return start,
            Verdict::Nothing | Verdict::Cut => {}
        }
        from = start + length;
    }
    // A beginning of the needle may stand at the very end; every needle begins with a quote.
    let tail = from.max(bytes.len().saturating_sub(length - 1));
    memchr::memchr_iter(b'"', &bytes[tail..])
        .map(|offset| tail + offset)
        .find(|&start| needle.needle().starts_with(&bytes[start..]))
        .unwrap_or(bytes.len())
}

/// `: {"type": "abort"` or `: "abort"`.
fn says_abort(after: &[u8]) -> Verdict<()> {
    let mut rest = after;
    for (step, token) in [&b":"[..], b"{", b"\"type\"", b":", b"\"abort\""]
        .into_iter()
        .enumerate()
    {
        rest = rest.trim_ascii_start();
        if step == 1 && rest.first().is_some_and(|&byte| byte != b'{') {
            // The OpenAI form is a plain string.
            return literal(rest, b"\"abort\"");
        }
        match literal(rest, token) {
            Verdict::Says(()) => rest = &rest[token.len()..],
            other => return other,
        }
    }
    Verdict::Says(())
}

fn literal(bytes: &[u8], token: &[u8]) -> Verdict<()> {
    if bytes.starts_with(token) {
        Verdict::Says(())
    } else if token.starts_with(bytes) {
        Verdict::Cut
    } else {
        Verdict::Nothing
    }
}

/// `: 123` followed by something that is no digit.
fn number(after: &[u8]) -> Verdict<u64> {
    let rest = after.trim_ascii_start();
    let rest = match literal(rest, b":") {
        Verdict::Says(()) => rest[1..].trim_ascii_start(),
        Verdict::Nothing => return Verdict::Nothing,
        Verdict::Cut => return Verdict::Cut,
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == rest.len() {
        return Verdict::Cut;
    }
    std::str::from_utf8(&rest[..digits])
        .ok()
        .and_then(|digits| digits.parse().ok())
        .map_or(Verdict::Nothing, Verdict::Says)
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    buffer: [u8; TAIL],
    length: usize,
}

impl Tail {
    fn feed(&mut self, chunk: &[u8]) {
        let fresh = &chunk[chunk.len().saturating_sub(TAIL)..];
        let kept = self.length.min(TAIL - fresh.len());
        self.buffer.copy_within(self.length - kept..self.length, 0);
        self.buffer[kept..kept + fresh.len()].copy_from_slice(fresh);
        self.length = kept + fresh.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

mod versions;

pub(crate) use versions::{Expected, Label, Versions, version_in};

#[cfg(test)]
mod tests;
