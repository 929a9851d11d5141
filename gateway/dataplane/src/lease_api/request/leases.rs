//! The bodies of the calls made for every execution: their texts stay where they are in the input.

use super::Body;
use router_core::interval::Interval;
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Deref;

/// A text of the input; a copy when an escape in it had to be undone.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::lease_api) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lease_api) struct Acquire<'a> {
    #[serde(borrow)]
    pub(in crate::lease_api) sender: Text<'a>,
    pub(in crate::lease_api) incarnation: Text<'a>,
    pub(in crate::lease_api) seq: u64,
    pub(in crate::lease_api) session: Option<Text<'a>>,
    pub(in crate::lease_api) wait_ms: Option<u64>,
    /// Ids of backends.
    #[serde(default)]
    pub(in crate::lease_api) exclude: Vec<Text<'a>>,
    pub(in crate::lease_api) expect_version: Option<u64>,
    #[serde(default)]
    pub(in crate::lease_api) settled: Vec<Interval>,
    /// By which the engine will know the execution.
    pub(in crate::lease_api) rid: Option<RequestIds>,
    expect_incarnation: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lease_api) struct Settle<'a> {
    /// In a batch; else it is in the path.
    #[serde(borrow)]
    pub(in crate::lease_api) lease_id: Option<Text<'a>>,
    pub(in crate::lease_api) outcome: Text<'a>,
    pub(in crate::lease_api) http_status: Option<u16>,
    pub(in crate::lease_api) output_tokens: Option<u64>,
    pub(in crate::lease_api) context_tokens: Option<u32>,
    pub(in crate::lease_api) observed_weight_version: Option<ObservedVersion>,
    pub(in crate::lease_api) error: Option<Text<'a>>,
    pub(in crate::lease_api) sender: Option<Text<'a>>,
    pub(in crate::lease_api) incarnation: Option<Text<'a>>,
    #[serde(default)]
    pub(in crate::lease_api) settled: Vec<Interval>,
    expect_incarnation: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::lease_api) struct Batch<'a> {
    #[serde(borrow)]
    pub(in crate::lease_api) requests: Vec<Operation<'a>>,
    expect_incarnation: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::lease_api) enum Operation<'a> {
    #[serde(borrow)]
    Acquire(Acquire<'a>),
    Settle(Settle<'a>),
}

/// As the engine wrote it: SGLang's is a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(in crate::lease_api) enum ObservedVersion {
    Number(u64),
    Text(String),
}

impl ObservedVersion {
    /// The number, if it is one; an engine that was not told its version has some other text.
    pub(in crate::lease_api) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// The `rid` of one request, or of each in a batch.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(in crate::lease_api) enum RequestIds {
    One(String),
    Many(Vec<String>),
}

impl RequestIds {
    pub(in crate::lease_api) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
        .iter()
        .map(String::as_str)
    }
}

/// Each of these says which start of the router it is meant for.
macro_rules! bodies {
    ($($name:ident),*) => {$(
        impl<'a> Body<'a> for $name<'a> {
            fn expect_incarnation(&self) -> Option<&str> {
                self.expect_incarnation.as_deref()
            }
        }
    )*};
}

bodies!(Acquire, Settle, Batch);
