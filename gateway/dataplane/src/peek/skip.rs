//! Passing over a value at the speed of memory: strings by their quotes, arrays and objects by their brackets.
//!
//! A prompt is 64 kB of token ids between two brackets. Looking at each digit costs more than all the rest of a request,
//! and tells nothing that matters here: the engine reads the numbers anyway, and says what is wrong with them. In a
//! well-formed array the brackets of the other kind are balanced, so that only its own kind, and quotes (brackets in a
//! string are text), need to be found: three bytes, which `memchr` looks for 32 at a time.

use memchr::{memchr, memchr3};

/// A string between its quotes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quoted {
    /// The bytes seen last are an odd number of backslashes: the next quote is text.
    escaped: bool,
}

impl Quoted {
    /// The length of what is left of the string in `bytes`, with its closing quote; `None` when it goes on.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        while let Some(offset) = memchr(b'"', &bytes[from..]) {
            let quote = from + offset;
            if !self.odd_backslashes(&bytes[..quote]) {
                return Some(quote + 1);
            }
            from = quote + 1;
        }
        self.escaped = self.odd_backslashes(bytes);
        None
    }

    /// Whether `text` and what came before it end in an odd number of backslashes.
    fn odd_backslashes(self, text: &[u8]) -> bool {
        let run = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
        (run % 2 == 1) ^ (run == text.len() && self.escaped)
    }
}

/// An array or an object behind its opening bracket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nested {
    open: u8,
    close: u8,
    depth: usize,
    inside: Option<Quoted>,
}

impl Nested {
    pub(super) const ARRAY: Self = Self::new(b'[', b']');
    pub(super) const OBJECT: Self = Self::new(b'{', b'}');

    const fn new(open: u8, close: u8) -> Self {
        Self {
            open,
            close,
            depth: 1,
            inside: None,
        }
    }

    /// The length of what is left of the value in `bytes`, with its closing bracket; `None` when it goes on.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if let Some(quoted) = &mut self.inside {
                at += quoted.end(&bytes[at..])?;
                self.inside = None;
            }
            at += memchr3(b'"', self.open, self.close, &bytes[at..])?;
            let byte = bytes[at];
            at += 1;
            if byte == b'"' {
                self.inside = Some(Quoted::default());
            } else if byte == self.open {
                self.depth += 1;
            } else {
                self.depth -= 1;
                if self.depth == 0 {
                    return Some(at);
                }
            }
        }
    }
}
