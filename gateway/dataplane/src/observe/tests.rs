use super::*;
use proptest::prelude::*;

fn observe(body: &[u8], size: usize, streaming: bool) -> Observer {
    let mut observer = Observer::new(streaming);
    for chunk in body.chunks(size) {
        observer.feed(chunk);
    }
    observer
}

/// Abort is recognised in SGLang's and OpenAI's form, compact or spaced, at every chunk size.
#[test]
fn aborts_are_recognised() {
    for body in [
        r#"{"meta_info":{"finish_reason":{"type":"abort","message":"x"}}}"#,
        r#"{"meta_info": {"finish_reason": {"type": "abort", "message": "x"}}}"#,
        r#"data: {"choices":[{"finish_reason":null}]} data: {"choices":[{"finish_reason":"abort"}]}"#,
    ] {
        for size in 1..=body.len() {
            assert!(
                observe(body.as_bytes(), size, true).aborted(),
                "{body} in chunks of {size}"
            );
        }
    }
}

/// Other ends, and generated text that quotes the marker, are no abort.
#[test]
fn other_ends_are_no_abort() {
    for body in [
        r#"{"finish_reason":{"type":"length","length":4}}"#,
        r#"{"finish_reason":"stop"}"#,
        r#"{"finish_reason":null}"#,
        r#"{"text":"\"finish_reason\":\"abort\""}"#,
        r#"{"finish_reason":"abo"#,
    ] {
        for size in 1..=body.len() {
            assert!(
                !observe(body.as_bytes(), size, false).aborted(),
                "{body} in chunks of {size}"
            );
        }
    }
}

/// A stream repeats its count, a batch has one per element.
#[test]
fn tokens_are_counted() {
    let body = br#"{"completion_tokens":12, "completion_tokens_details":{}} {"completion_tokens" : 30}"#;
    for size in 1..=body.len() {
        assert_eq!(observe(body, size, true).output_tokens(), Some(30), "chunks of {size}");
        assert_eq!(observe(body, size, false).output_tokens(), Some(42), "chunks of {size}");
    }
    assert_eq!(observe(b"{}", 1, false).output_tokens(), None);
    assert_eq!(
        observe(br#"{"completion_tokens":null}"#, 5, false).output_tokens(),
        None
    );
}

/// The end of a stream is read from its last bytes.
#[test]
fn ends_of_streams() {
    for size in 1..30 {
        let done = observe(b"data: {\"a\":1}\n\ndata: [DONE]\n\n", size, true);
        assert!(done.saw_done() && done.at_event_boundary());
        let broken = observe(b"data: {\"a\":1}\n\ndata: {\"b\"", size, true);
        assert!(!broken.saw_done() && !broken.at_event_boundary());
    }
    assert!(Observer::new(true).at_event_boundary());
}

proptest! {
    /// However a body is cut, the observations are those of the uncut body.
    #[test]
    fn chunking_does_not_matter(
        pieces in prop::collection::vec(prop_oneof![
            Just("\"completion_tokens\":".to_owned()),
            Just("\"completion_tokens\" : 7,".to_owned()),
            Just("\"finish_reason\":{\"type\":".to_owned()),
            Just("\"abort\"".to_owned()),
            Just("\"finish_reason\":".to_owned()),
            "[0-9]{1,3}", "[a-z\"\\\\{}:, \n]{0,12}", "[x]{90,200}",
        ], 0..12),
        sizes in prop::collection::vec(1usize..120, 1..6),
        streaming in any::<bool>(),
    ) {
        let body = pieces.concat().into_bytes();
        let whole = observe(&body, usize::MAX, streaming);
        let mut observer = Observer::new(streaming);
        let (mut rest, mut sizes) = (&body[..], sizes.iter().cycle());
        while !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or(1).min(rest.len());
            observer.feed(&rest[..size]);
            rest = &rest[size..];
        }
        prop_assert_eq!(observer.aborted(), whole.aborted());
        prop_assert_eq!(observer.output_tokens(), whole.output_tokens());
        prop_assert_eq!(observer.saw_done(), whole.saw_done());
    }
}
