use super::*;
use proptest::prelude::*;
use serde_json::Value as Json;

/// Scans `body` cut into chunks of `size` bytes.
fn scan(body: &[u8], size: usize) -> Result<Peek, Malformed> {
    let mut scanner = Scanner::default();
    for chunk in body.chunks(size) {
        scanner.feed(chunk)?;
    }
    scanner.finish()
}

fn raw(value: Option<&Value>) -> Option<&str> {
    value.map(|value| std::str::from_utf8(&value.raw).expect("UTF-8"))
}

/// The two keys are found at the top level only, in every spelling, and the last one counts.
#[test]
fn top_level_keys_are_found() {
    let body = br#" {"a":{"model":"no","rid":["no"]},"model" : "x","r\u0069d":["a","b"],"model":"y\n"} "#;
    for size in 1..=body.len() {
        let peek = scan(body, size).expect("well-formed");
        assert_eq!(raw(peek.model.as_ref()), Some(r#""y\n""#), "chunks of {size}");
        assert_eq!(raw(peek.rid.as_ref()), Some(r#"["a","b"]"#), "chunks of {size}");
        assert_eq!(peek.first_member, 2);
        assert!(!peek.empty);
    }
}

/// Values of every kind are recorded from their first to their last byte.
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
        "NaN",
        "-Infinity",
    ] {
        for body in [format!("{{\"rid\":{text}}}"), format!("{{\"rid\": {text} ,\"z\":1}}")] {
            for size in 1..=body.len() {
                let peek = scan(body.as_bytes(), size).expect("well-formed");
                assert_eq!(raw(peek.rid.as_ref()), Some(text), "{body} in chunks of {size}");
                let start = peek.rid.map(|rid| rid.start).expect("found");
                assert_eq!(&body[start..start + text.len()], text);
            }
        }
    }
}

/// A malformed body is refused at the byte that cannot stand there, however it is cut into chunks.
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
        (r#"{"a":[1,]}"#, 8),
        (r#"{"a":[1}"#, 7),
        (r#"{"a":1]"#, 6),
        (r#"{"a":01}"#, 6),
        (r#"{"a":1.}"#, 7),
        (r#"{"a":-}"#, 6),
        (r#"{"a":tru }"#, 8),
        (r#"{"a":"x"#, 7),
        (r#"{"a":"\x"}"#, 7),
        (r#"{"a":"\u12g4"}"#, 10),
        ("{\"a\":\"x\ny\"}", 7),
        (r#"{"a":1} x"#, 8),
    ] {
        for size in 1..=body.len().max(1) {
            let error = scan(body.as_bytes(), size).expect_err(body);
            assert_eq!(error.offset, offset, "{body:?} in chunks of {size}: {error}");
        }
    }
}

/// Deep nesting costs a bit per level, not a call frame.
#[test]
fn deep_nesting_is_harmless() {
    let deep = 1_000_000;
    let body = format!("{{\"a\":{}{},\"rid\":\"x\"}}", "[".repeat(deep), "]".repeat(deep));
    let peek = scan(body.as_bytes(), 4096).expect("well-formed");
    assert_eq!(raw(peek.rid.as_ref()), Some("\"x\""));
    assert!(scan(format!("{{\"a\":{}", "[".repeat(deep)).as_bytes(), 4096).is_err());
}

/// Values longer than we look are marked, not kept.
#[test]
fn long_values_are_cut() {
    let body = format!(
        "{{\"model\":\"{}\",\"rid\":\"{}\"}}",
        "m".repeat(10_000),
        "r".repeat(100_000)
    );
    let peek = scan(body.as_bytes(), 1000).expect("well-formed");
    let (model, rid) = (peek.model.expect("found"), peek.rid.expect("found"));
    assert!(model.cut && model.raw.len() == MAX_MODEL_BYTES);
    assert!(rid.cut && rid.raw.len() == MAX_RID_BYTES);
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Json> {
    let key = prop_oneof![
        any::<String>(),
        Just("model".to_owned()),
        Just("rid".to_owned()),
        "[a-z]{1,40}"
    ];
    prop::collection::vec((key, json()), 0..8).prop_map(|members| Json::Object(members.into_iter().collect()))
}

fn cut(body: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    let (mut rest, mut sizes) = (body, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
        chunks.push(Bytes::copy_from_slice(&rest[..size]));
        rest = &rest[size..];
    }
    chunks
}

proptest! {
    /// Every JSON object is accepted, and the scanner agrees with a parser about both keys (B16).
    #[test]
    fn agrees_with_a_parser(value in object(), pretty in any::<bool>(), size in 1usize..64) {
        let body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let body = body.expect("JSON");
        let peek = scan(&body, size).expect("well-formed");
        for (found, key) in [(&peek.model, "model"), (&peek.rid, "rid")] {
            let found: Option<Json> = found.as_ref().map(|value| serde_json::from_slice(&value.raw).expect("a value"));
            prop_assert_eq!(found.as_ref(), value.get(key));
        }
        prop_assert_eq!(peek.empty, value.as_object().is_some_and(serde_json::Map::is_empty));
    }

    /// After the splice the engine sees the client's value plus our id; every other byte is the client's (B16).
    #[test]
    fn the_splice_changes_nothing_else(value in object(), sizes in prop::collection::vec(1usize..40, 1..5)) {
        let mut value = value;
        value.as_object_mut().expect("an object").remove("rid");
        let body = serde_json::to_vec(&value).expect("JSON");
        let peek = scan(&body, 7).expect("well-formed");
        let mut chunks = cut(&body, &sizes);
        let insert = if peek.empty { "\"rid\":\"id\"" } else { "\"rid\":\"id\"," };
        splice(&mut chunks, peek.first_member, 0, Bytes::from_static(insert.as_bytes()));
        let sent = chunks.concat();
        let (before, after) = body.split_at(peek.first_member);
        prop_assert_eq!(&sent, &[before, insert.as_bytes(), after].concat());
        value.as_object_mut().expect("an object").insert("rid".to_owned(), Json::from("id"));
        prop_assert_eq!(serde_json::from_slice::<Json>(&sent).expect("JSON"), value);
    }

    /// Removing and inserting works at every offset of every chunking.
    #[test]
    fn splices_anywhere(
        body in prop::collection::vec(any::<u8>(), 1..60),
        sizes in prop::collection::vec(1usize..9, 1..4),
        place in any::<prop::sample::Index>(),
        remove in 0usize..9,
    ) {
        let at = place.index(body.len());
        let remove = remove.min(body.len() - at);
        let mut chunks = cut(&body, &sizes);
        splice(&mut chunks, at, remove, Bytes::from_static(b"<>"));
        prop_assert_eq!(chunks.concat(), [&body[..at], b"<>", &body[at + remove..]].concat());
        prop_assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
    }

    /// Whatever the bytes are, the answer does not depend on how they were cut into chunks.
    #[test]
    fn chunking_does_not_matter(body in "[\\[\\]{}\":,\\\\a-eurtnl0-2 .+-]{0,40}", size in 1usize..20) {
        let body = format!("{{\"a\":{body}");
        prop_assert_eq!(scan(body.as_bytes(), size), scan(body.as_bytes(), usize::MAX));
    }
}
