//! `Authorization: Basic`, of which the password counts.

/// The password of `Basic <base64 of name:password>`.
pub(super) fn password(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = value.split_at_checked("basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = decode(encoded.trim_ascii())?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Base64 of RFC 4648, with or without its padding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - padding.min(2)];
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut buffer, mut bits) = (0_u32, 0);
    for &byte in digits {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            // At most six bits of the byte before are left above it.
            bytes.push(u8::try_from(buffer >> bits & 0xff).expect("one byte"));
            buffer &= (1 << bits) - 1;
        }
    }
    // One digit more holds no byte, and the bits that are left over are zero.
    (digits.len() % 4 != 1 && buffer == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, and what is none.
    #[test]
    fn base64() {
        for (text, plain) in [
            ("", Some("")),
            ("Zg==", Some("f")),
            ("Zm8=", Some("fo")),
            ("Zm9v", Some("foo")),
            ("Zm9vYg", Some("foob")),
            ("Zm9vYmE=", Some("fooba")),
            ("Zm9vYmFy", Some("foobar")),
            ("Z", None),
            ("Zh==", None),
            ("Zm9v!", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), plain.map(str::as_bytes), "{text}");
        }
        assert_eq!(password(b"Basic Zm9v"), None, "no colon");
    }
}
