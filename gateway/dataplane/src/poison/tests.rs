use super::Printer;
use crate::body::Outgoing;
use crate::edit::edit;
use crate::peek::Scanner;
use crate::request_id::RequestIdSource;
use bytes::Bytes;

/// The fingerprint of `body` as it goes to `/generate`, having arrived in chunks of `size` bytes; with an id of ours
/// unless it has one.
fn print_of(body: &str, size: usize) -> u64 {
    let mut scanner = Scanner::new(true);
    scanner.feed(body.as_bytes()).expect("JSON");
    let peek = scanner.finish().expect("an object");
    let mut chunks: Vec<Bytes> = body.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
    let id = (!body.contains("\"rid\":\"")).then(|| RequestIdSource::new().next());
    let names = edit(&mut chunks, &peek, id.as_ref());
    Printer::new(7).print("/generate", &Outgoing::with_names(chunks, names))
}

/// Ids of requests and sessions, selectors and the borders of packets do not matter.
#[test]
fn the_same_request_has_the_same_print() {
    let long = "x".repeat(20_000);
    let bodies = [
        format!("{{\"text\":\"{long}\",\"n\":1}}"),
        format!("{{\"model\":\"m\",\"text\":\"{long}\",\"n\":1}}"),
        format!("{{\"text\":\"{long}\",\"route_key\":\"a/b\",\"n\":1}}"),
        format!("{{\"text\":\"{long}\",\"n\":1,\"model\":\"m\"}}"),
    ];
    let prints: Vec<u64> = bodies
        .iter()
        .flat_map(|body| [1, 7, 4096, 1 << 20].map(|size| print_of(body, size)))
        .collect();
    assert!(prints.iter().all(|print| *print == prints[0]), "{prints:x?}");

    for (one, other) in [
        (r#"{"text":"a","rid":"1"}"#, r#"{"text":"a","rid":"22222"}"#),
        (r#"{"rid":"1","text":"a"}"#, r#"{"rid":"22222","text":"a"}"#),
        (
            r#"{"model":"m","session_id":"s","text":"a","rid":"1"}"#,
            r#"{"model":"mm","session_id":"ss","text":"a","rid":"222"}"#,
        ),
        (
            r#"{"rid":"1","route_key":"k","text":"a","session_id":"s"}"#,
            r#"{"rid":"333","route_key":"kkk","text":"a","session_id":"tt"}"#,
        ),
        (
            r#"{"text":"a","session_id":"s"}"#,
            r#"{"text":"a","session_id":"tttt"}"#,
        ),
        (r#"{"rid":null,"text":"a"}"#, r#"{"rid":null,"text":"a"}"#),
    ] {
        assert_eq!(print_of(one, 5), print_of(other, 64), "{one} {other}");
    }
}

/// Everything else does: each byte, and the endpoint.
#[test]
fn another_request_has_another_print() {
    let bodies = [
        r#"{"text":"a"}"#,
        r#"{"text":"b"}"#,
        r#"{"text": "a"}"#,
        r#"{"text":"a","n":2}"#,
        r#"{"text":"a","rid":"1"}"#,
        r#"{"input_ids":[1]}"#,
        r#"{"input_ids":[1,1]}"#,
    ];
    let mut prints: Vec<u64> = bodies.iter().map(|body| print_of(body, 64)).collect();
    let body = Outgoing::new(vec![Bytes::from_static(br#"{"text":"a"}"#)]);
    prints.push(Printer::new(7).print("/v1/completions", &body));
    prints.push(Printer::new(8).print("/v1/completions", &body));
    let long = "x".repeat(8192);
    prints.extend([0, 4095, 4096, 8191].map(|place| {
        let mut text = long.clone();
        text.replace_range(place..=place, "y");
        print_of(&format!("{{\"text\":\"{text}\"}}"), 1000)
    }));
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
}
