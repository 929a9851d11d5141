//! JSON for the answers that every execution gets, written straight into their buffer.
//!
//! serde's way costs a pass over every key and a look at every byte of it; here the keys are copied whole.

use serde::Serialize;

/// Room for an answer about one lease.
const USUAL_BYTES: usize = 512;

/// JSON text in the making: an object, or several with what is between them.
pub(in crate::lease_api) struct Object(Vec<u8>);

/// What has members to write into an object.
pub(in crate::lease_api) trait Members {
    /// Writes the members, each with the comma that follows it.
    fn write(&self, object: &mut Object);
}

impl Object {
    pub(in crate::lease_api) fn with_capacity(answers: usize) -> Self {
        Self(Vec::with_capacity(answers.max(1) * USUAL_BYTES))
    }

    /// Text of ours that is JSON already.
    #[inline]
    pub(in crate::lease_api) fn raw(&mut self, text: &'static str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// A member with a text; `key` is what stands before it, with quotes and colon.
    #[inline]
    pub(in crate::lease_api) fn text(&mut self, key: &'static str, text: &str) -> &mut Self {
        self.texts(key, "", text)
    }

    /// A member whose text has two parts, the first of which needs no escape.
    pub(in crate::lease_api) fn texts(&mut self, key: &'static str, first: &'static str, second: &str) -> &mut Self {
        self.raw(key);
        // Counted, since without a way out of the loop it is done many bytes at a time.
        let needs_escape = |byte: &u8| matches!(byte, 0..b' ' | b'"' | b'\\');
        if second.bytes().filter(needs_escape).count() > 0 {
            return self.json(&format!("{first}{second}")).raw(",");
        }
        self.0.push(b'"');
        self.0.extend_from_slice(first.as_bytes());
        self.0.extend_from_slice(second.as_bytes());
        self.raw("\",")
    }

    /// A member with a text of ASCII letters and digits.
    pub(in crate::lease_api) fn letters(&mut self, key: &'static str, letters: &[u8]) -> &mut Self {
        self.raw(key).raw("\"");
        self.0.extend_from_slice(letters);
        self.raw("\",")
    }

    #[inline]
    pub(in crate::lease_api) fn number(&mut self, key: &'static str, number: u64) -> &mut Self {
        self.raw(key).json(&number).raw(",")
    }

    #[inline]
    pub(in crate::lease_api) fn optional(&mut self, key: &'static str, number: Option<u64>) -> &mut Self {
        match number {
            Some(number) => self.number(key, number),
            None => self.raw(key).raw("null,"),
        }
    }

    #[inline]
    pub(in crate::lease_api) fn flag(&mut self, key: &'static str, flag: bool) -> &mut Self {
        self.raw(key).raw(if flag { "true," } else { "false," })
    }

    /// Whatever serde writes.
    pub(in crate::lease_api) fn json(&mut self, value: &impl Serialize) -> &mut Self {
        // The types here have text keys and finite numbers, which is all that writing JSON can fail on.
        let _ = serde_json::to_writer(&mut self.0, value);
        self
    }

    /// Takes back the comma behind the last member.
    pub(in crate::lease_api) fn without_comma(&mut self) -> &mut Self {
        if self.0.last() == Some(&b',') {
            self.0.pop();
        }
        self
    }

    pub(in crate::lease_api) fn into_bytes(self) -> bytes::Bytes {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is written is JSON with the same values, whatever the texts contain.
    #[test]
    fn what_is_written_is_json() {
        for text in ["", "plain", "a \"b\" \\ c", "line\nbreak\u{1}", "ä€😀\u{7f}"] {
            let mut object = Object::with_capacity(0);
            object
                .raw("{")
                .text("\"text\":", text)
                .texts("\"url\":", "http://", text);
            object
                .letters("\"id\":", b"0123456789abcdef")
                .number("\"number\":", u64::MAX);
            object
                .optional("\"none\":", None)
                .optional("\"some\":", Some(0))
                .flag("\"flag\":", true);
            object.without_comma().raw("}");
            let read: Value = serde_json::from_slice(&object.into_bytes()).expect("JSON");
            let expected = json!({
                "text": text, "url": format!("http://{text}"), "id": "0123456789abcdef", "number": u64::MAX,
                "none": null, "some": 0, "flag": true,
            });
            assert_eq!(read, expected);
        }
    }
}
