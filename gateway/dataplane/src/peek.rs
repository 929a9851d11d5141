//! Looks into a request body without building it: where its selectors and its id stand, and whether it is a JSON object.
//!
//! The body belongs to the client. Rebuilding it from a model would drop fields this version does not know, change
//! number text or reorder keys, so the scanner only *reads* top-level keys, and the documented changes are cut into the
//! bytes (see [`crate::edit`]). It is fed chunk by chunk as the body arrives and copies nothing but the current key.
//!
//! It is strict where it must understand (the object, its keys, where each value ends) and blind where it need not: the
//! inside of a value is passed over without a look (see [`skip`]). What is wrong in there is the engine's to find, as it
//! would without a gateway. An object that any JSON parser accepts is read as that parser reads it: keys may be escaped,
//! the same key further inside means nothing, and of duplicates the last one counts. A byte order mark is passed on.

mod skip;

use skip::{Nested, Quoted};
use std::fmt;

/// A top-level key longer than this (as written) is none of ours: `session_id`, escaped to the last letter, has 60.
const MAX_KEY_BYTES: usize = 60;
/// A body that repeats its selectors more often than this is an attack on whoever has to cut them out.
const MAX_CUTS: usize = 64;

/// Why a body is not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Offset of the first byte that cannot stand there; the body's length when it ends too early.
    pub(crate) offset: usize,
    /// What should be there.
    pub(crate) expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the body is not valid JSON at byte {}: expected {}",
            self.offset, self.expected
        )
    }
}

/// A piece of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A top-level member that means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Model,
    RouteKey,
    Rid,
    SessionId,
    User,
    /// What a chat is made from.
    Messages,
    /// What SGLang generates from: `text`, `input_ids` or `input_embeds`.
    Input,
}

impl Field {
    fn of(key: &[u8]) -> Option<Self> {
        if key.contains(&b'\\') {
            let key = crate::json::unescape(key)?;
            return Self::of_plain(key.as_bytes());
        }
        Self::of_plain(key)
    }

    fn of_plain(key: &[u8]) -> Option<Self> {
        match key {
            b"model" => Some(Self::Model),
            b"route_key" => Some(Self::RouteKey),
            b"rid" => Some(Self::Rid),
            b"session_id" => Some(Self::SessionId),
            b"user" => Some(Self::User),
            b"messages" => Some(Self::Messages),
            b"text" | b"input_ids" | b"input_embeds" => Some(Self::Input),
            _ => None,
        }
    }
}

/// What a well-formed body told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek {
    /// Offset just behind the opening brace.
    pub(crate) first_member: usize,
    /// Members are left when the cuts are made.
    pub(crate) keeps_members: bool,
    /// The selectors that are not for the engine, each with one of its commas, in ascending order.
    pub(crate) cuts: Vec<Span>,
    values: [Option<Span>; 7],
}

impl Peek {
    /// Where the value of a member stands, from its first byte to its last.
    pub(crate) fn value(&self, field: Field) -> Option<Span> {
        self.values[field as usize]
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before the opening brace.
    Start,
    /// After `{`: a key or `}`.
    FirstKey,
    /// After `,`.
    NextKey,
    Key(Quoted),
    Colon,
    Value,
    Text(Quoted),
    Nested(Nested),
    /// A number or a word.
    Scalar,
    AfterValue,
    /// After the closing brace.
    End,
}

/// The beginning of a key as written. One byte too many marks one that is too long to be one of ours.
#[derive(Debug)]
struct Key {
    buffer: [u8; MAX_KEY_BYTES + 1],
    length: usize,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            buffer: [0; MAX_KEY_BYTES + 1],
            length: 0,
        }
    }
}

impl Key {
    fn note(&mut self, bytes: &[u8]) {
        let room = &mut self.buffer[self.length..];
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// The scanner; feed it every byte once, in order.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// `model` is a selector only; else the engine wants it as well.
    cuts_model: bool,
    /// Bytes of earlier chunks.
    consumed: usize,
    /// The current key as written, as far as it could be one of ours.
    key: Key,
    field: Option<Field>,
    /// Offsets: of the current key's quote, of the current value, of the last comma.
    member: usize,
    value: usize,
    comma: usize,
    /// The last cut takes the comma that follows.
    takes_comma: bool,
    found: Peek,
}

impl Scanner {
    pub(crate) fn new(cuts_model: bool) -> Self {
        Self {
            state: State::Start,
            cuts_model,
            consumed: 0,
            key: Key::default(),
            field: None,
            member: 0,
            value: 0,
            comma: 0,
            takes_comma: false,
            found: Peek::default(),
        }
    }

    /// Reads the next bytes of the body.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            let rest = &chunk[at..];
            let end = match &mut self.state {
                State::Key(quoted) => {
                    let end = quoted.end(rest);
                    self.key.note(&rest[..end.map_or(rest.len(), |end| end - 1)]);
                    if end.is_some() {
                        self.state = State::Colon;
                    }
                    at += end.unwrap_or(rest.len());
                    continue;
                }
                State::Text(quoted) => quoted.end(rest),
                State::Nested(nested) => nested.end(rest),
                State::Scalar => rest.iter().position(|byte| !is_scalar(*byte)),
                _ => {
                    if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                        self.structure(byte, at)?;
                    }
                    at += 1;
                    continue;
                }
            };
            at += end.unwrap_or(rest.len());
            if end.is_some() {
                self.state = State::AfterValue;
                self.end_value(at)?;
            }
        }
        self.consumed += chunk.len();
        Ok(())
    }

    /// The result, once the whole body was fed.
    pub(crate) fn finish(self) -> Result<Peek, Malformed> {
        match self.state {
            State::End => Ok(self.found),
            State::Start => self.fail(0, "a JSON object"),
            _ => self.fail(0, "more: the body ends inside the object"),
        }
    }

    /// Takes a byte between two values.
    fn structure(&mut self, byte: u8, at: usize) -> Result<(), Malformed> {
        let offset = self.consumed + at;
        self.state = match (self.state, byte) {
            (State::Start, b'{') => {
                self.found.first_member = offset + 1;
                State::FirstKey
            }
            (State::Start, _) if BYTE_ORDER_MARK.get(offset) == Some(&byte) => State::Start,
            (State::Start, _) => return self.fail(at, "a JSON object"),
            (State::FirstKey | State::NextKey, b'"') => {
                self.member = offset;
                self.key.length = 0;
                State::Key(Quoted::default())
            }
            (State::FirstKey | State::AfterValue, b'}') => State::End,
            (State::FirstKey, _) => return self.fail(at, "'\"' or '}'"),
            (State::NextKey, _) => return self.fail(at, "'\"'"),
            (State::Colon, b':') => State::Value,
            (State::Colon, _) => return self.fail(at, "':'"),
            (State::Value, _) => {
                self.value = offset;
                self.field = Field::of(self.key.bytes());
                match byte {
                    b'"' => State::Text(Quoted::default()),
                    b'[' => State::Nested(Nested::ARRAY),
                    b'{' => State::Nested(Nested::OBJECT),
                    _ if is_scalar(byte) => State::Scalar,
                    _ => return self.fail(at, "a value"),
                }
            }
            (State::AfterValue, b',') => {
                self.comma = offset;
                if std::mem::take(&mut self.takes_comma)
                    && let Some(cut) = self.found.cuts.last_mut()
                {
                    cut.end = offset + 1;
                }
                State::NextKey
            }
            (State::AfterValue, _) => return self.fail(at, "',' or '}'"),
            _ => return self.fail(at, "nothing after the object"),
        };
        Ok(())
    }

    /// A value ended before `end`.
    fn end_value(&mut self, end: usize) -> Result<(), Malformed> {
        let at = end;
        let end = self.consumed + end;
        let field = self.field.take();
        if let Some(field) = field {
            let start = self.value;
            self.found.values[field as usize] = Some(Span { start, end });
        }
        if field != Some(Field::RouteKey) && !(field == Some(Field::Model) && self.cuts_model) {
            self.found.keeps_members = true;
            return Ok(());
        }
        if self.found.cuts.len() == MAX_CUTS {
            return self.fail(at, "no selector that is repeated this often");
        }
        // A member goes with the comma in front of it, unless nothing in front of it stays.
        self.takes_comma = !self.found.keeps_members;
        let start = if self.takes_comma { self.member } else { self.comma };
        self.found.cuts.push(Span { start, end });
        Ok(())
    }

    fn fail<T>(&self, at: usize, expected: &'static str) -> Result<T, Malformed> {
        Err(Malformed {
            offset: self.consumed + at,
            expected,
        })
    }
}

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What numbers and words are made of.
const fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests;
