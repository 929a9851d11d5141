//! Looks into a request body without building it: where `model` and `rid` are, and whether it is a JSON object.
//!
//! The body belongs to the client. Rebuilding it from a model would drop fields this version does not know, change
//! number text or reorder keys, so the scanner only *reads* top-level keys, and [`splice`] cuts the one documented
//! change into the bytes. It is fed chunk by chunk as the body arrives, keeps one bit per nesting level instead of a
//! call frame (a body of a million `[` is harmless), and copies nothing but the two values it looks for.
//!
//! It checks structure, not taste: `NaN` and `Infinity`, which Python's `json` writes and reads, pass. With duplicate
//! keys the last one counts, as in the engines.

use bytes::Bytes;
use std::fmt;

/// A top-level key longer than this (as written, escapes included) is none of ours.
const MAX_KEY_BYTES: usize = 36;
/// A `model` longer than this is no model of ours.
const MAX_MODEL_BYTES: usize = 4096;
/// A longer `rid` (a large batch's list) is not used for aborts; closing the connection ends the batch as well.
const MAX_RID_BYTES: usize = 64 * 1024;

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

/// What a well-formed body told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek {
    /// Offset just behind the opening brace.
    pub(crate) first_member: usize,
    /// The object is `{}`.
    pub(crate) empty: bool,
    pub(crate) model: Option<Value>,
    /// There are chat messages.
    pub(crate) has_messages: bool,
    /// There is what SGLang generates from: `text`, `input_ids` or `input_embeds`.
    pub(crate) has_input: bool,
    pub(crate) rid: Option<Value>,
}

/// A top-level value as the client wrote it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    /// Offset of its first byte.
    pub(crate) start: usize,
    /// Its bytes, quotes included; only a beginning when [`Value::cut`].
    pub(crate) raw: Vec<u8>,
    /// It was longer than we look.
    pub(crate) cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Model,
    Rid,
    Messages,
    Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the opening brace.
    Start,
    /// After `{`: a key or `}`.
    FirstKey,
    /// After `,` in an object.
    Key,
    Colon,
    Value,
    /// After `[`: a value or `]`.
    FirstElement,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Literal {
        word: &'static [u8],
        seen: usize,
    },
    Number(Number),
    AfterValue,
    /// After the closing brace.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// The state after one more byte; `None` when the byte is not part of the number.
    const fn step(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Minus, b'0') => Some(Self::Zero),
            (Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Some(Self::Integer),
            (Self::Zero | Self::Integer, b'.') => Some(Self::Point),
            (Self::Point | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Some(Self::Exponent),
            (Self::Exponent, b'+' | b'-') => Some(Self::ExponentSign),
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Some(Self::ExponentDigits),
            _ => None,
        }
    }

    const fn is_complete(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits)
    }
}

/// Open objects (`true`) and arrays (`false`), one bit each.
#[derive(Debug, Default)]
struct Nesting {
    bits: Vec<u64>,
    depth: usize,
}

impl Nesting {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.bits.len() {
            self.bits.push(0);
        }
        self.bits[word] = self.bits[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.bits[(self.depth - 1) / 64] >> ((self.depth - 1) % 64) & 1 == 1
    }
}

/// The scanner; feed it every byte once, in order.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    nesting: Nesting,
    /// Bytes of earlier chunks.
    consumed: usize,
    /// The current top-level key as written, as far as it could be one of ours.
    key: Vec<u8>,
    key_too_long: bool,
    recording: Option<(Field, Value)>,
    found: Peek,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Start,
            nesting: Nesting::default(),
            consumed: 0,
            key: Vec::new(),
            key_too_long: false,
            recording: None,
            found: Peek {
                empty: true,
                ..Peek::default()
            },
        }
    }
}

impl Scanner {
    /// Reads the next bytes of the body.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        // Where in this chunk the value being recorded begins.
        let mut recorded = 0;
        let mut at = 0;
        while at < chunk.len() {
            let byte = chunk[at];
            match self.state {
                State::Text { key } => {
                    at = self.text(chunk, at, key)?;
                    if self.state == State::AfterValue {
                        self.end_value(chunk, recorded, at);
                    }
                    continue;
                }
                State::Escape { key } => {
                    self.state = match byte {
                        b'u' => State::Hex { key, left: 4 },
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text { key },
                        _ => return self.fail(at, "one of \" \\ / b f n r t u after a backslash"),
                    };
                    self.note_key(key, &[byte]);
                }
                State::Hex { key, left } => {
                    if !byte.is_ascii_hexdigit() {
                        return self.fail(at, "four hex digits after \\u");
                    }
                    self.state = if left == 1 {
                        State::Text { key }
                    } else {
                        State::Hex { key, left: left - 1 }
                    };
                    self.note_key(key, &[byte]);
                }
                State::Literal { word, seen } => {
                    if word[seen] != byte {
                        return self.fail(at, "a value");
                    }
                    if seen + 1 == word.len() {
                        self.state = State::AfterValue;
                        self.end_value(chunk, recorded, at + 1);
                    } else {
                        self.state = State::Literal { word, seen: seen + 1 };
                    }
                }
                State::Number(number) => match number.step(byte) {
                    Some(next) => self.state = State::Number(next),
                    None if number == Number::Minus && byte == b'I' => {
                        self.state = State::Literal {
                            word: b"Infinity",
                            seen: 1,
                        };
                    }
                    None if number.is_complete() => {
                        self.state = State::AfterValue;
                        self.end_value(chunk, recorded, at);
                        continue;
                    }
                    None => return self.fail(at, "a digit"),
                },
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
                _ => {
                    if self.structure(chunk, recorded, at)? {
                        recorded = at;
                    }
                }
            }
            at += 1;
        }
        self.record(&chunk[recorded.min(chunk.len())..]);
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

    /// Goes on inside a string from `at`; returns where it stopped.
    fn text(&mut self, chunk: &[u8], at: usize, key: bool) -> Result<usize, Malformed> {
        let rest = &chunk[at..];
        let run = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        // The smallest byte instead of a search: without an early exit the compiler tests many bytes at once.
        if rest[..run].iter().fold(b' ', |smallest, &byte| smallest.min(byte)) < b' ' {
            let position = rest.iter().position(|&byte| byte < b' ').unwrap_or(run);
            return self.fail(at + position, "no raw control character in a string");
        }
        self.note_key(key, &rest[..run]);
        match rest.get(run) {
            None => return Ok(chunk.len()),
            Some(b'"') => self.state = if key { State::Colon } else { State::AfterValue },
            Some(_) => {
                self.note_key(key, b"\\");
                self.state = State::Escape { key };
            }
        }
        Ok(at + run + 1)
    }

    /// Takes a byte between two values; tells whether it begins one that is to be recorded.
    fn structure(&mut self, chunk: &[u8], recorded: usize, at: usize) -> Result<bool, Malformed> {
        let byte = chunk[at];
        let in_object = self.nesting.in_object();
        match self.state {
            State::FirstElement if byte == b']' => self.close(chunk, recorded, at),
            State::Value | State::FirstElement => {
                let ours = self.begin_value(at);
                self.value(byte, at)?;
                return Ok(ours);
            }
            State::AfterValue => match byte {
                b',' => self.state = if in_object { State::Key } else { State::Value },
                b'}' if in_object => self.close(chunk, recorded, at),
                b']' if !in_object => self.close(chunk, recorded, at),
                _ if in_object => return self.fail(at, "',' or '}'"),
                _ => return self.fail(at, "',' or ']'"),
            },
            State::FirstKey | State::Key => match byte {
                b'"' => {
                    self.state = State::Text { key: true };
                    self.key.clear();
                    self.key_too_long = false;
                    self.found.empty &= self.nesting.depth > 1;
                }
                b'}' if self.state == State::FirstKey => self.close(chunk, recorded, at),
                _ if self.state == State::FirstKey => return self.fail(at, "'\"' or '}'"),
                _ => return self.fail(at, "'\"'"),
            },
            State::Colon if byte == b':' => self.state = State::Value,
            State::Colon => return self.fail(at, "':'"),
            State::Start if byte == b'{' => {
                self.nesting.push(true);
                self.found.first_member = self.consumed + at + 1;
                self.state = State::FirstKey;
            }
            State::Start => return self.fail(at, "a JSON object"),
            _ => return self.fail(at, "nothing after the object"),
        }
        Ok(false)
    }

    fn value(&mut self, byte: u8, at: usize) -> Result<(), Malformed> {
        self.state = match byte {
            b'"' => State::Text { key: false },
            b'{' => {
                self.nesting.push(true);
                State::FirstKey
            }
            b'[' => {
                self.nesting.push(false);
                State::FirstElement
            }
            b'-' => State::Number(Number::Minus),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Integer),
            b't' => State::Literal { word: b"true", seen: 1 },
            b'f' => State::Literal {
                word: b"false",
                seen: 1,
            },
            b'n' => State::Literal { word: b"null", seen: 1 },
            b'N' => State::Literal { word: b"NaN", seen: 1 },
            b'I' => State::Literal {
                word: b"Infinity",
                seen: 1,
            },
            _ => return self.fail(at, "a value"),
        };
        Ok(())
    }

    fn close(&mut self, chunk: &[u8], recorded: usize, at: usize) {
        self.nesting.pop();
        if self.nesting.depth == 0 {
            self.state = State::End;
        } else {
            self.state = State::AfterValue;
            self.end_value(chunk, recorded, at + 1);
        }
    }

    fn note_key(&mut self, key: bool, bytes: &[u8]) {
        if key && self.nesting.depth == 1 && !self.key_too_long {
            self.key_too_long = self.key.len() + bytes.len() > MAX_KEY_BYTES;
            if !self.key_too_long {
                self.key.extend_from_slice(bytes);
            }
        }
    }

    /// Starts recording when the value of one of our keys begins at `at`.
    fn begin_value(&mut self, at: usize) -> bool {
        if self.nesting.depth != 1 || self.key_too_long {
            return false;
        }
        let field = if self.key.contains(&b'\\') {
            crate::json::unescape(&self.key).and_then(|key| field(key.as_bytes()))
        } else {
            field(&self.key)
        };
        let Some(field) = field else { return false };
        match field {
            Field::Model | Field::Rid => {}
            Field::Messages => self.found.has_messages = true,
            Field::Input => self.found.has_input = true,
        }
        if matches!(field, Field::Messages | Field::Input) {
            return false;
        }
        let value = Value {
            start: self.consumed + at,
            ..Value::default()
        };
        self.recording = Some((field, value));
        true
    }

    fn record(&mut self, bytes: &[u8]) {
        if let Some((field, value)) = &mut self.recording {
            let limit = match field {
                Field::Model => MAX_MODEL_BYTES,
                Field::Rid | Field::Messages | Field::Input => MAX_RID_BYTES,
            };
            let room = limit.saturating_sub(value.raw.len());
            value.cut |= bytes.len() > room;
            value.raw.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// A value ended before `end`; keeps it when it is the one being recorded.
    fn end_value(&mut self, chunk: &[u8], recorded: usize, end: usize) {
        if self.nesting.depth != 1 || self.recording.is_none() {
            return;
        }
        self.record(&chunk[recorded..end]);
        match self.recording.take() {
            Some((Field::Model, value)) => self.found.model = Some(value),
            Some((Field::Rid, value)) => self.found.rid = Some(value),
            Some((Field::Messages | Field::Input, _)) | None => {}
        }
    }

    fn fail<T>(&self, at: usize, expected: &'static str) -> Result<T, Malformed> {
        Err(Malformed {
            offset: self.consumed + at,
            expected,
        })
    }
}

fn field(key: &[u8]) -> Option<Field> {
    match key {
        b"model" => Some(Field::Model),
        b"rid" => Some(Field::Rid),
        b"messages" => Some(Field::Messages),
        b"text" | b"input_ids" | b"input_embeds" => Some(Field::Input),
        _ => None,
    }
}

/// Cuts `remove` bytes out of `chunks` at offset `at` and puts `insert` there; no other byte is copied.
pub(crate) fn splice(chunks: &mut Vec<Bytes>, at: usize, remove: usize, insert: Bytes) {
    let mut edited = Vec::with_capacity(chunks.len() + 2);
    let mut insert = Some(insert);
    let (mut position, end) = (0, at + remove);
    for chunk in chunks.drain(..) {
        let next = position + chunk.len();
        if position < at {
            edited.push(chunk.slice(..chunk.len().min(at - position)));
        }
        if next >= at {
            edited.extend(insert.take());
        }
        if next > end {
            edited.push(chunk.slice(end.saturating_sub(position)..));
        }
        position = next;
    }
    edited.extend(insert);
    *chunks = edited;
}

#[cfg(test)]
mod tests;
