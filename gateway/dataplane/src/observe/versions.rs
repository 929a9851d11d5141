//! Which weights an engine says to have used.
//!
//! SGLang labels an answer as a whole (`"weight_version":"7"`) and, where it tells them apart, each range of its tokens
//! (`"weight_versions":[{"version":"7","start":0,"end":4}]`). A label is text, and a version if it is a number.

use super::{Marker, Verdict, literal, number, scan};
use memchr::memmem::{Finder, FinderBuilder};
use std::sync::LazyLock;

static LABEL: LazyLock<Finder<'static>> = LazyLock::new(|| FinderBuilder::new().build_forward(b"\"weight_version\""));
static RANGE: LazyLock<Finder<'static>> = LazyLock::new(|| FinderBuilder::new().build_forward(b"\"version\""));

/// What an engine calls its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Version(u64),
    /// A text that is no version. An engine that was never told its version has one.
    Text,
}

impl Label {
    /// Digits are a version, unless there are too many or none.
    fn of(digits: &[u8]) -> Self {
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.map_or(Self::Text, Self::Version)
    }

    pub(crate) fn version(self) -> Option<u64> {
        match self {
            Self::Version(version) => Some(version),
            Self::Text => None,
        }
    }
}

/// What an answer has to say of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) version: u64,
    /// The engine was heard to name its versions, so that another text is not just its way.
    pub(crate) is_named: bool,
}

/// Looks for a version that is not the expected one.
#[derive(Debug)]
pub(crate) struct Versions {
    expected: Expected,
    label: Marker,
    range: Marker,
    other: Option<Label>,
}

impl Versions {
    pub(crate) fn expecting(expected: Expected) -> Self {
        Self {
            expected,
            label: Marker::default(),
            range: Marker::default(),
            other: None,
        }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let Self {
            expected,
            label,
            range,
            other,
        } = self;
        let mut note = |label: Label| {
            let differs = match label {
                Label::Version(version) => version != expected.version,
                Label::Text => expected.is_named,
            };
            if differs {
                other.get_or_insert(label);
            }
        };
        label.feed(chunk, &LABEL, labelled, &mut note);
        range.feed(chunk, &RANGE, ranged, &mut note);
    }

    /// The first one seen.
    pub(crate) fn other(&self) -> Option<Label> {
        self.other
    }
}

/// The version in an answer to `/model_info`, if it has one that is a number.
pub(crate) fn version_in(body: &[u8]) -> Option<u64> {
    let mut version = None;
    scan(body, usize::MAX, &LABEL, labelled, &mut |found| {
        version = found.version();
    });
    version
}

/// `: "7"`, or `: 7` and something that is no digit, or another text.
fn labelled(after: &[u8]) -> Verdict<Label> {
    match value(after) {
        Verdict::Says((label, _)) => Verdict::Says(label),
        Verdict::Nothing => Verdict::Nothing,
        Verdict::Cut => Verdict::Cut,
    }
}

/// The same with `, "start"` behind it: the name alone could be anything's.
fn ranged(after: &[u8]) -> Verdict<Label> {
    let (label, rest) = match value(after) {
        Verdict::Says((label @ Label::Version(_), rest)) => (label, rest),
        // The label of the answer says it as well.
        Verdict::Says((Label::Text, _)) | Verdict::Nothing => return Verdict::Nothing,
        Verdict::Cut => return Verdict::Cut,
    };
    let mut rest = rest.trim_ascii_start();
    for token in [&b","[..], b"\"start\""] {
        match literal(rest, token) {
            Verdict::Says(()) => rest = rest[token.len()..].trim_ascii_start(),
            Verdict::Nothing => return Verdict::Nothing,
            Verdict::Cut => return Verdict::Cut,
        }
    }
    Verdict::Says(label)
}

/// A label and what follows it; of a text that is no version, only its begin is read.
fn value(after: &[u8]) -> Verdict<(Label, &[u8])> {
    let colon = after.trim_ascii_start();
    let rest = match literal(colon, b":") {
        Verdict::Says(()) => colon[1..].trim_ascii_start(),
        Verdict::Nothing => return Verdict::Nothing,
        Verdict::Cut => return Verdict::Cut,
    };
    let Some((b'"', text)) = rest.split_first() else {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        return match number(colon) {
            Verdict::Says(version) => Verdict::Says((Label::Version(version), &rest[digits..])),
            Verdict::Nothing => Verdict::Nothing,
            Verdict::Cut => Verdict::Cut,
        };
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match text.get(digits) {
        None => Verdict::Cut,
        Some(b'"') => Verdict::Says((Label::of(&text[..digits]), &text[digits + 1..])),
        Some(_) => Verdict::Says((Label::Text, &text[digits..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(body: &str, size: usize, is_named: bool) -> Option<Label> {
        let mut versions = Versions::expecting(Expected { version: 7, is_named });
        for chunk in body.as_bytes().chunks(size) {
            versions.feed(chunk);
        }
        versions.other()
    }

    /// Another version is found in either form, at every chunk size, also when only a range of the tokens has it.
    #[test]
    fn other_versions_are_found() {
        for body in [
            r#"{"meta_info":{"weight_version":"8","finish_reason":null}}"#,
            r#"{"metadata": {"weight_version": 8, "x": 1}}"#,
            r#"{"weight_version":"7","weight_versions":[{"version":"7","start":0},{"version":"8","start":27,"end":80}]}"#,
            r#"{"weight_versions": [ { "version" : "8" , "start" : 0 } ]}"#,
            r#"data: {"weight_version":"default"}\n\ndata: {"weight_version":"8"}"#,
        ] {
            for size in 1..=body.len() {
                assert_eq!(
                    other(body, size, false),
                    Some(Label::Version(8)),
                    "{body} in chunks of {size}"
                );
            }
        }
    }

    /// The expected version, texts that are no versions, quoted text, and other things called version are none.
    #[test]
    fn nothing_else_is_found() {
        for body in [
            r#"{"weight_version":"7","weight_versions":[{"version":"7","start":0,"end":4}]}"#,
            r#"{"weight_version":"default","weight_versions":[{"version":"v8","start":0,"end":4}]}"#,
            r#"{"text":"\"weight_version\":\"8\""}"#,
            r#"{"version":"8","x":1,"weight_version":null,"weight_version":"","weight_version":"99999999999999999999"}"#,
            r#"{"weight_version":"8"#,
        ] {
            for size in 1..=body.len() {
                assert_eq!(other(body, size, false), None, "{body} in chunks of {size}");
            }
        }
    }

    /// Of an engine that names its versions a text that is none is found as well; a label that is not there is none.
    #[test]
    fn named_no_more() {
        for body in [
            r#"{"text":"a","meta_info":{"weight_version":"default","x":1}}"#,
            r#"{"weight_version":""}"#,
            r#"{"weight_version":"7b"}"#,
            r#"{"weight_version":"99999999999999999999"}"#,
            r#"{"weight_version":"7"}{"weight_version":"default"}"#,
        ] {
            for size in 1..=body.len() {
                assert_eq!(other(body, size, true), Some(Label::Text), "{body} in chunks of {size}");
            }
        }
        for body in [
            r#"{"weight_version":"7","weight_versions":[{"version":"7","start":0,"end":4}]}"#,
            r#"{"version":"default","weight_version":null}"#,
            r#"{"text":"\"weight_version\":\"default\""}"#,
        ] {
            for size in 1..=body.len() {
                assert_eq!(other(body, size, true), None, "{body} in chunks of {size}");
            }
        }
    }

    /// An engine's description says its version, if it has one.
    #[test]
    fn described_versions() {
        assert_eq!(version_in(br#"{"model_path":"m","weight_version":"12"}"#), Some(12));
        assert_eq!(version_in(br#"{"model_path":"m","weight_version":"default"}"#), None);
        assert_eq!(version_in(b"<html>"), None);
    }
}
