//! The two pieces of JSON text the data plane handles itself: writing strings, and reading short ones.

use std::fmt::Write as _;

/// Appends `text` as a JSON string literal.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// The text of a JSON string literal, given without its quotes. A lone surrogate becomes U+FFFD.
///
/// `None` when it is not valid UTF-8 or an escape is malformed.
pub(crate) fn unescape(raw: &[u8]) -> Option<String> {
    let raw = std::str::from_utf8(raw).ok()?;
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(backslash) = rest.find('\\') {
        text.push_str(&rest[..backslash]);
        let escape = *rest.as_bytes().get(backslash + 1)?;
        // None when a character of several bytes follows the backslash.
        rest = rest.get(backslash + 2..)?;
        match escape {
            b'"' | b'\\' | b'/' => text.push(char::from(escape)),
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            b'u' => {
                let (character, after) = unicode_escape(rest)?;
                text.push(character);
                rest = after;
            }
            _ => return None,
        }
    }
    text.push_str(rest);
    Some(text)
}

/// Reads what follows `\u`, with the second half when it is the first half of a surrogate pair.
fn unicode_escape(text: &str) -> Option<(char, &str)> {
    let unit = hex_unit(text)?;
    let after = &text[4..];
    if let 0xd800..=0xdbff = unit
        && let Some(low) = after.strip_prefix("\\u").and_then(hex_unit)
        && let Some(Ok(character)) = char::decode_utf16([unit, low]).next()
    {
        return Some((character, &after[6..]));
    }
    Some((
        char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER),
        after,
    ))
}

fn hex_unit(text: &str) -> Option<u16> {
    let digits = text
        .get(..4)
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is written is read back by a JSON parser as the same text.
        #[test]
        fn written_strings_are_json(text in any::<String>()) {
            let mut literal = String::new();
            push_string(&mut literal, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&literal).expect("valid JSON"), text.clone());
            prop_assert_eq!(unescape(&literal.as_bytes()[1..literal.len() - 1]), Some(text));
        }
    }

    /// Every escape, surrogate pairs included, is decoded; a lone surrogate is replaced.
    #[test]
    fn escapes_are_decoded() {
        assert_eq!(unescape(br"r\u0069d").as_deref(), Some("rid"));
        assert_eq!(
            unescape(br"\ud83d\ude00\b\f\/").as_deref(),
            Some("\u{1f600}\u{8}\u{c}/")
        );
        assert_eq!(unescape(br"\ud83dx").as_deref(), Some("\u{fffd}x"));
        assert_eq!(unescape(br"\ud83d\u0041").as_deref(), Some("\u{fffd}A"));
        assert_eq!(unescape(br"\u12"), None);
        assert_eq!(unescape("\\\u{feff}".as_bytes()), None);
        assert_eq!(unescape(b"\\"), None);
        assert_eq!(unescape(b"\xff"), None);
    }
}
