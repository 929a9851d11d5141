//! What an engine receives, held against a JSON parser: the client's value without our selectors and with our id.

use super::*;
use crate::peek::Scanner;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value as Json};

/// Bodies that were awkward once, one a line.
const CORPUS: &str = include_str!("corpus.txt");
const ID: &str = "0123456789abcdef0123456789abcdef";

fn own() -> RequestId {
    RequestId::new(0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef)
}

fn scan(chunks: &[Bytes], cuts_model: bool) -> Option<Peek> {
    let mut scanner = Scanner::new(cuts_model);
    chunks
        .iter()
        .try_for_each(|chunk| scanner.feed(chunk))
        .and_then(|()| scanner.finish())
        .ok()
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

/// Scans and edits `body` as a request does; `None` when it is refused.
fn sent(body: &[u8], sizes: &[usize], cuts_model: bool) -> Option<Vec<u8>> {
    let mut chunks = cut(body, sizes);
    let peek = scan(&chunks, cuts_model)?;
    let own_id = peek
        .value(Field::Rid)
        .is_some_and(|span| extract(&chunks, span, 5) != "null");
    edit(&mut chunks, &peek, (!own_id).then_some(&own()));
    assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
    Some(chunks.concat())
}

/// What the engine should make of `value`.
fn expected(mut value: Map<String, Json>, cuts_model: bool) -> Json {
    value.remove("route_key");
    if cuts_model {
        value.remove("model");
    }
    if value.get("rid").is_none_or(Json::is_null) {
        value.insert("rid".to_owned(), Json::from(ID));
    }
    Json::Object(value)
}

/// Whatever a JSON parser accepts as an object is accepted, and arrives as that object without selectors, with an id.
fn check(body: &[u8], sizes: &[usize], cuts_model: bool) -> Result<(), TestCaseError> {
    let sent = sent(body, sizes, cuts_model);
    let text = String::from_utf8_lossy(body);
    prop_assert_eq!(
        &sent,
        &self::sent(body, &[usize::MAX], cuts_model),
        "chunks matter: {}",
        text
    );
    if let Ok(Json::Object(value)) = serde_json::from_slice(body) {
        let sent = sent.ok_or_else(|| TestCaseError::fail(format!("refused: {text}")))?;
        let received: Json =
            serde_json::from_slice(&sent).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(received, expected(value, cuts_model), "{}", text);
    }
    Ok(())
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        "[\\\\\"\\]\\[}{,:]{0,6}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// The text of an object, with duplicates, escaped keys and white space as no serialiser writes them.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![
        3 => prop::sample::select(vec!["model", "route_key", "rid", "session_id", "user"]).prop_map(str::to_owned),
        2 => any::<String>(),
    ];
    let space = prop::sample::select(vec!["", "", " ", "\n\t "]);
    let member = (key, any::<bool>(), json(), space.clone());
    (prop::collection::vec(member, 0..8), space, any::<bool>()).prop_map(|(members, space, mark)| {
        let member = |(key, escaped, value, space): (String, bool, Json, &str)| {
            let key = if escaped {
                let units: Vec<String> = key.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                format!("\"{}\"", units.concat())
            } else {
                Json::from(key).to_string()
            };
            format!("{space}{key}{space}:{space}{value}{space}")
        };
        let members: Vec<String> = members.into_iter().map(member).collect();
        let mark = if mark && space.is_empty() { " " } else { "" };
        format!("{space}{{{mark}{}}}{space}", members.join(",")).into_bytes()
    })
}

/// A body of the corpus with a few bytes changed, or cut off.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let bodies: Vec<&str> = CORPUS.lines().collect();
    let token = prop::sample::select(vec![
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "0",
        "null",
        "\"rid\"",
        "\"model\":\"m\"",
        "\u{feff}",
        "e",
    ]);
    let change = (any::<prop::sample::Index>(), 0usize..4, token);
    (prop::sample::select(bodies), prop::collection::vec(change, 0..4)).prop_map(|(body, changes)| {
        let mut body = body.as_bytes().to_vec();
        for (place, remove, token) in changes {
            let at = place.index(body.len() + 1);
            let end = (at + remove).min(body.len());
            body.splice(at..end, token.bytes());
        }
        body
    })
}

fn any_body() -> impl Strategy<Value = (Vec<u8>, Vec<usize>, bool)> {
    let sizes = prop::collection::vec(1usize..40, 1..5);
    (prop_oneof![body(), mutated()], sizes, any::<bool>())
}

fn fuzz(cases: u32) {
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&any_body(), |(body, sizes, cuts_model)| {
        check(&body, &sizes, cuts_model)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The engine receives the client's value, minus our selectors, plus our id (B16, B65).
#[test]
fn the_engine_receives_the_same_value() {
    fuzz(2000);
}

/// The same, a hundred thousand times: `cargo test --release -p trimtab-dataplane -- --ignored` (20 s).
#[test]
#[ignore = "minutes in a debug build; for changes of the scanner"]
fn the_engine_receives_the_same_value_a_hundred_thousand_times() {
    fuzz(100_000);
}

/// Every body of the corpus, in every chunking that matters.
#[test]
fn the_corpus_arrives_as_it_is() {
    for body in CORPUS.lines() {
        for size in 1..=body.len().min(64) {
            for cuts_model in [false, true] {
                check(body.as_bytes(), &[size], cuts_model).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

/// Nothing but the members themselves is cut out, each with one comma; all else keeps its bytes.
#[test]
fn every_other_byte_is_the_clients() {
    let rid = format!("\"rid\":\"{ID}\"");
    for (body, engine) in [
        ("{}", format!("{{{rid}}}")),
        (" { } ", format!(" {{{rid} }} ")),
        (r#"{"a": 1.50}"#, format!("{{{rid},\"a\": 1.50}}")),
        (r#"{"model":"m"}"#, format!("{{{rid}}}")),
        (r#"{ "model" : "m" , "route_key":"k" }"#, format!("{{{rid}   }}")),
        (r#"{"model":"m","a":1}"#, format!("{{{rid},\"a\":1}}")),
        (r#"{"a":1, "model":"m"}"#, format!("{{{rid},\"a\":1}}")),
        (r#"{"a":1,"model":"m", "b":2}"#, format!("{{{rid},\"a\":1, \"b\":2}}")),
        (
            r#"{"model":"x","a":1,"route_key":"k","model":"m","b":2}"#,
            format!("{{{rid},\"a\":1,\"b\":2}}"),
        ),
        (r#"{"rid": null,"route_key":"k"}"#, format!("{{\"rid\": \"{ID}\"}}")),
        (r#"{"rid":["a","b"],"model":"m"}"#, r#"{"rid":["a","b"]}"#.to_owned()),
        ("\u{feff}{\"a\":1}", format!("\u{feff}{{{rid},\"a\":1}}")),
    ] {
        for size in 1..=body.len() {
            let sent = sent(body.as_bytes(), &[size], true).expect("accepted");
            assert_eq!(String::from_utf8_lossy(&sent), engine, "{body} in chunks of {size}");
        }
    }
}

proptest! {
    /// Removing and inserting works at every offset of every chunking, and so does reading.
    #[test]
    fn splices_anywhere(
        body in prop::collection::vec(any::<u8>(), 1..60),
        sizes in prop::collection::vec(1usize..9, 1..4),
        place in any::<prop::sample::Index>(),
        remove in 0usize..9,
    ) {
        let start = place.index(body.len());
        let end = (start + remove).min(body.len());
        let span = Span { start, end };
        let mut chunks = cut(&body, &sizes);
        prop_assert_eq!(extract(&chunks, span, usize::MAX), &body[start..end]);
        prop_assert_eq!(extract(&chunks, span, 3), &body[start..end.min(start + 3)]);
        splice(&mut chunks, span, Bytes::from_static(b"<>"));
        prop_assert_eq!(chunks.concat(), [&body[..start], b"<>", &body[end..]].concat());
        prop_assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
    }
}
