//! Why a request or a table is refused. All of it is the caller's mistake: asking again changes nothing.

use super::RoutingTable;
use std::fmt;

/// Names that a message lists; a role may have thousands of keys.
const MAX_LISTED: usize = 16;
/// Characters of a given name that a message repeats.
const MAX_SHOWN: usize = 128;

/// A table that breaks a rule, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTable(pub(super) String);

impl fmt::Display for InvalidTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidTable {}

/// Which rule a request breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingCode {
    /// `model` is empty or no string.
    InvalidModel,
    /// `model` is none of the role's.
    UnknownModel,
    /// `route_key` is empty or no string.
    InvalidRouteKey,
    /// `route_key` is not mapped to a model.
    UnknownRouteKey,
    /// Several models, no default, and the request names none.
    ModelRequired,
}

impl RoutingCode {
    /// The machine-readable code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidModel => "invalid_model",
            Self::UnknownModel => "unknown_model",
            Self::InvalidRouteKey => "invalid_route_key",
            Self::UnknownRouteKey => "unknown_route_key",
            Self::ModelRequired => "model_required",
        }
    }
}

/// A request that goes nowhere: the code, and what would have been accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingError {
    code: RoutingCode,
    message: String,
}

impl RoutingError {
    #[cold]
    pub(super) fn new(code: RoutingCode, table: &RoutingTable, given: &str) -> Self {
        let role = table.role();
        let models = listed(table.models.iter().map(|(name, _)| name.as_str()));
        let keys = listed(table.route_keys.keys().map(String::as_str));
        let given: String = given.chars().take(MAX_SHOWN).collect();
        let message = match code {
            RoutingCode::InvalidModel => format!("\"model\" must be a non-empty string, one of: {models}"),
            RoutingCode::UnknownModel => format!("role {role:?} serves no model {given:?}; known: {models}"),
            RoutingCode::InvalidRouteKey => format!("\"route_key\" must be a non-empty string, one of: {keys}"),
            RoutingCode::UnknownRouteKey => {
                format!("role {role:?} has no route key {given:?}; known: {keys}; or name a model, one of: {models}")
            }
            RoutingCode::ModelRequired => {
                format!("role {role:?} serves several models and has no default; name one of: {models}")
            }
        };
        Self { code, message }
    }

    /// Which rule is broken.
    #[must_use]
    pub const fn code(&self) -> RoutingCode {
        self.code
    }
}

impl fmt::Display for RoutingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RoutingError {}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    if count == 0 {
        return "(none)".to_owned();
    }
    let mut shown = names.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if count > MAX_LISTED {
        shown.push_str(&format!(" and {} more", count - MAX_LISTED));
    }
    shown
}
