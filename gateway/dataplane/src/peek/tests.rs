use super::*;

const FIELDS: [(Field, &str); 5] = [
    (Field::Model, "model"),
    (Field::RouteKey, "route_key"),
    (Field::Rid, "rid"),
    (Field::SessionId, "session_id"),
    (Field::User, "user"),
];

/// Scans `body` cut into chunks of `size` bytes.
fn scan(body: &[u8], size: usize) -> Result<Peek, Malformed> {
    let mut scanner = Scanner::new(true);
    for chunk in body.chunks(size) {
        scanner.feed(chunk)?;
    }
    scanner.finish()
}

fn raw<'a>(body: &'a [u8], peek: &Peek, field: Field) -> Option<&'a str> {
    let span = peek.value(field)?;
    Some(std::str::from_utf8(&body[span.start..span.end]).expect("UTF-8"))
}

/// Keys are found at the top level only, in every spelling, and the last one counts.
#[test]
fn top_level_keys_are_found() {
    let body = br#" {"a":{"model":"no","rid":["no"]},"model" : "x","r\u0069d":["a","b"],"mod\u0065l":"y\n"} "#;
    for size in 1..=body.len() {
        let peek = scan(body, size).expect("well-formed");
        assert_eq!(raw(body, &peek, Field::Model), Some(r#""y\n""#), "chunks of {size}");
        assert_eq!(raw(body, &peek, Field::Rid), Some(r#"["a","b"]"#), "chunks of {size}");
        assert_eq!(peek.first_member, 2);
        assert!(peek.keeps_members);
    }
}

/// Every key of ours is known, plain and with each letter escaped; a longer one is not.
#[test]
fn every_field_in_every_spelling() {
    for (field, key) in FIELDS {
        let escaped: String = key.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        for spelling in [key.to_owned(), escaped] {
            for size in [1, 7, 4096] {
                let body = format!("{{\"{spelling}\":\"v\"}}");
                let peek = scan(body.as_bytes(), size).expect("well-formed");
                assert_eq!(raw(body.as_bytes(), &peek, field), Some("\"v\""), "{body}");
                let body = format!("{{\"{spelling}x\":\"v\"}}");
                let peek = scan(body.as_bytes(), size).expect("well-formed");
                assert!(FIELDS.iter().all(|(field, _)| peek.value(*field).is_none()), "{body}");
            }
        }
    }
}

/// Values of every kind are found from their first to their last byte.
#[test]
fn values_of_every_kind() {
    for text in [
        "null",
        "-1.5e+7",
        "0",
        "true",
        "{\"a\":[{}]}",
        "[[],[1]]",
        "\"\"",
        "\"\\u00e9\\\"\"",
        "\"\\\\\"",
        "[\"]\\\\\",\"\\\"]\"]",
        "{\"}\":\"{\"}",
        "NaN",
        "-Infinity",
    ] {
        for body in [format!("{{\"rid\":{text}}}"), format!("{{\"rid\": {text} ,\"z\":1}}")] {
            for size in 1..=body.len() {
                let peek = scan(body.as_bytes(), size).expect("well-formed");
                assert_eq!(
                    raw(body.as_bytes(), &peek, Field::Rid),
                    Some(text),
                    "{body} in chunks of {size}"
                );
            }
        }
    }
}

/// A body whose structure is broken is refused at the byte that cannot stand there, however it is cut into chunks.
#[test]
fn malformed_bodies_are_located() {
    for (body, offset) in [
        ("", 0),
        ("  ", 2),
        ("[1]", 0),
        ("nope", 0),
        ("{", 1),
        ("{'a':1}", 1),
        (r#"{"a" 1}"#, 5),
        (r#"{"a":}"#, 5),
        (r#"{"a":1,}"#, 7),
        (r#"{"a":1 "b":2}"#, 7),
        (r#"{"a":1]"#, 6),
        (r#"{"a":tru"#, 8),
        (r#"{"a":"x"#, 7),
        (r#"{"a":"x\""#, 9),
        (r#"{"a":[1}"#, 8),
        (r#"{"a":{"b":[}"#, 12),
        (r#"{"a":1} x"#, 8),
        (r#"{"a":1}{"a":1}"#, 7),
        ("{\0\"\0a\0\"\0", 1),
    ] {
        for size in 1..=body.len().max(1) {
            let error = scan(body.as_bytes(), size).expect_err(body);
            assert_eq!(error.offset, offset, "{body:?} in chunks of {size}: {error}");
        }
    }
}

/// What is wrong inside a value is the engine's to find: it is passed on.
#[test]
fn the_inside_of_a_value_is_not_looked_at() {
    for body in [
        r#"{"a":[1,]}"#,
        r#"{"a":01}"#,
        r#"{"a":[{]}"#,
        "{\"a\":\"x\ny\"}",
        r#"{"a":"\x"}"#,
    ] {
        for size in 1..=body.len() {
            assert!(scan(body.as_bytes(), size).is_ok(), "{body:?} in chunks of {size}");
        }
    }
}

/// A UTF-8 byte order mark in front is passed over; anything else there is not.
#[test]
fn byte_order_marks() {
    let body = b"\xef\xbb\xbf{\"model\":\"m\"}";
    for size in 1..=body.len() {
        let peek = scan(body, size).expect("well-formed");
        assert_eq!((peek.first_member, raw(body, &peek, Field::Model)), (4, Some("\"m\"")));
    }
    for body in [b"\xff\xfe{\0}\0".as_slice(), b"\xfe\xff\0{\0}", b"{}\xef\xbb\xbf"] {
        assert!(scan(body, 4096).is_err(), "{body:?}");
    }
}

/// Deep nesting costs a counter, not a call frame, and a long run of backslashes is counted once.
#[test]
fn hostile_bodies_are_harmless() {
    let deep = 1_000_000;
    let body = format!("{{\"a\":{}{},\"rid\":\"x\"}}", "[".repeat(deep), "]".repeat(deep));
    let peek = scan(body.as_bytes(), 4096).expect("well-formed");
    assert_eq!(raw(body.as_bytes(), &peek, Field::Rid), Some("\"x\""));
    assert!(scan(format!("{{\"a\":{}", "[".repeat(deep)).as_bytes(), 4096).is_err());
    let body = format!("{{\"a\":\"{}\",\"rid\":\"x\"}}", "\\".repeat(deep));
    let peek = scan(body.as_bytes(), 1).expect("well-formed");
    assert_eq!(raw(body.as_bytes(), &peek, Field::Rid), Some("\"x\""));
}

/// A body that repeats a selector without end is refused, not cut to pieces.
#[test]
fn selectors_are_repeated_a_few_times_at_most() {
    let body = |times: usize| format!("{{{}\"a\":1}}", "\"model\":\"m\" ,".repeat(times));
    assert_eq!(
        scan(body(MAX_CUTS).as_bytes(), 4096).expect("well-formed").cuts.len(),
        MAX_CUTS
    );
    assert!(scan(body(MAX_CUTS + 1).as_bytes(), 4096).is_err());
}
