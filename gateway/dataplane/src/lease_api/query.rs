//! The query string: a few named numbers and texts, with unknown names refused.

use super::error::{Problem, Refusal};
use super::route::decode;
use super::wait::MAX_WAIT;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads a query string that may have the parameters `known`.
    pub(super) fn parse(text: &str, known: &[&'static str]) -> Result<Self, Refusal> {
        let mut parameters = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(known) = known.iter().copied().find(|known| *known == name) else {
                let message = match known {
                    [] => format!("unknown query parameter {name:?}: this call has none"),
                    known => format!("unknown query parameter {name:?}; known: {}", known.join(", ")),
                };
                return Err(Refusal::new(Problem::Unprocessable, message));
            };
            let value = decode(value).ok_or_else(|| {
                Refusal::new(
                    Problem::Malformed,
                    format!("query parameter {known} is not percent-encoded UTF-8"),
                )
            })?;
            if parameters.iter().any(|(name, _)| *name == known) {
                let message = format!("query parameter {known} is given twice");
                return Err(Refusal::new(Problem::Unprocessable, message));
            }
            parameters.push((known, value.into_owned()));
        }
        Ok(Self(parameters))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let message = format!("query parameter {name} is {text:?}; it must be a whole number in range");
            Refusal::new(Problem::Unprocessable, message)
        })
    }

    /// A time to wait, in milliseconds; none is zero.
    pub(super) fn wait(&self, name: &'static str) -> Result<Duration, Refusal> {
        check_wait(name, self.number(name)?)
    }
}

/// A time to wait that a long poll may take.
pub(super) fn check_wait(name: &str, milliseconds: Option<u64>) -> Result<Duration, Refusal> {
    let wait = Duration::from_millis(milliseconds.unwrap_or(0));
    if wait > MAX_WAIT {
        let message = format!(
            "{name} is {}; it must be at most {}",
            wait.as_millis(),
            MAX_WAIT.as_millis()
        );
        return Err(Refusal::new(Problem::Unprocessable, message));
    }
    Ok(wait)
}
