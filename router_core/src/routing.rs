//! Which model runs a request: the one resolver of the gateway and of direct clients.
//!
//! A role may serve several models, and a request may name one by `model`, by a `route_key` that the operator has
//! mapped to a model, or not at all. Whoever resolves that on its own, in another language and with another idea of
//! what an unknown name means, sends a judge's prompt to a teacher. So there is one pure function on one frozen table:
//!
//! 1. An explicit `model` decides, whatever the `route_key` says. An unknown one is refused, it never falls through.
//! 2. Else the `route_key` decides; an unknown one is refused.
//! 3. Else the default model, which a sole model is by itself.
//! 4. Else the request is refused.
//!
//! A selector that is empty or no string is refused even where the other one would have decided: it is a mistake, and
//! the next request of the same client would meet it. A role with one model may be *lenient*: any `model` is ignored.
//!
//! A model's [`RouteMode`] belongs to the answer: a model behind a router is reached through that router or not at all.
//!
//! The session of a request is not a selector. It comes from the first of [`SESSION_HEADERS`] that is present, else
//! from the first of the role's [`SessionField`]s.
//!
//! ```
//! use router_core::routing::{RouteMode, RoutingSpec, RoutingTable, Selector};
//!
//! let table = RoutingTable::new(RoutingSpec {
//!     role: "teacher".to_owned(),
//!     models: vec![("math".to_owned(), RouteMode::Direct), ("code".to_owned(), RouteMode::Direct)],
//!     route_keys: vec![("openai/gsm8k".to_owned(), "math".to_owned())],
//!     ..RoutingSpec::default()
//! })?;
//! assert_eq!(table.resolve(Selector::Absent, Selector::Text("openai/gsm8k"))?.name, "math");
//! assert!(table.resolve(Selector::Text("maths"), Selector::Text("openai/gsm8k")).is_err());
//! assert!(table.resolve(Selector::Absent, Selector::Absent).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
#[cfg(test)]
mod tests;

use crate::address::Address;
pub use error::{InvalidTable, RoutingCode, RoutingError};
use std::collections::BTreeMap;

/// Longest name of a model and longest route key, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// Where the session of a request is looked for: the first header that is present counts.
pub const SESSION_HEADERS: [&str; 3] = ["x-trimtab-session", "x-session-id", "x-smg-routing-key"];

/// A member of a request's body that may name its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionField {
    /// `session_id`.
    SessionId,
    /// `user`, as OpenAI clients send it.
    User,
}

impl SessionField {
    /// The fields there are.
    pub const ALL: [Self; 2] = [Self::SessionId, Self::User];

    /// The member's key.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionId => "session_id",
            Self::User => "user",
        }
    }

    /// The field of a key.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == key)
    }
}

/// How a model is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteMode {
    /// One of its engines, which a direct client may call itself.
    Direct,
    /// A router with engines of its own (`sglang_router`). Its engines are nobody's targets.
    Router {
        /// `http://host:port`.
        url: String,
    },
}

/// A selector as a request gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector<'a> {
    /// The request does not have it.
    Absent,
    /// Its text.
    Text(&'a str),
    /// It is no string (`null` included), or one that cannot be read.
    NotText,
}

/// What a table is made of.
#[derive(Clone, Debug, Default)]
pub struct RoutingSpec {
    /// For messages.
    pub role: String,
    /// The models, in the order messages list them.
    pub models: Vec<(String, RouteMode)>,
    /// Route key and the model it means.
    pub route_keys: Vec<(String, String)>,
    /// The model of a request that names none. A sole model is the default by itself.
    pub default_model: Option<String>,
    /// Ignore `model` when there is one model.
    pub lenient_model: bool,
    /// Where the body may name the session, in this order.
    pub session_fields: Vec<SessionField>,
}

/// A frozen table of one role.
#[derive(Clone, Debug)]
pub struct RoutingTable {
    role: String,
    models: Vec<(String, RouteMode)>,
    route_keys: BTreeMap<String, usize>,
    default_model: Option<usize>,
    lenient: bool,
    session_fields: Vec<SessionField>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// Position of the model in the table.
    pub index: usize,
    /// The model's name.
    pub name: &'a str,
    /// How it is reached.
    pub mode: &'a RouteMode,
}

impl RoutingTable {
    /// Checks and freezes a table; the error says which rule is broken.
    pub fn new(spec: RoutingSpec) -> Result<Self, InvalidTable> {
        let RoutingSpec { role, models, .. } = &spec;
        if models.is_empty() {
            return Err(InvalidTable(format!(
                "role {role:?} has no model; give it at least one"
            )));
        }
        for (position, (name, mode)) in models.iter().enumerate() {
            check_name(role, "model name", name)?;
            if models[..position].iter().any(|(known, _)| known == name) {
                return Err(InvalidTable(format!("role {role:?}: model {name:?} is given twice")));
            }
            if let RouteMode::Router { url } = mode
                && let Err(error) = Address::parse(url)
            {
                return Err(InvalidTable(format!(
                    "role {role:?}, router_url of model {name:?}: {error}"
                )));
            }
        }
        let find = |model: &str| models.iter().position(|(name, _)| name == model);
        let mut route_keys = BTreeMap::new();
        for (key, model) in &spec.route_keys {
            check_name(role, "route key", key)?;
            let Some(index) = find(model) else {
                return Err(InvalidTable(format!(
                    "role {role:?}: route key {key:?} means model {model:?}, which is not one of its models"
                )));
            };
            if route_keys.insert(key.clone(), index).is_some() {
                return Err(InvalidTable(format!("role {role:?}: route key {key:?} is given twice")));
            }
        }
        let default_model = match &spec.default_model {
            None => (models.len() == 1).then_some(0),
            Some(default) => Some(find(default).ok_or_else(|| {
                InvalidTable(format!(
                    "role {role:?}: default_model {default:?} is not one of its models"
                ))
            })?),
        };
        Ok(Self {
            lenient: spec.lenient_model && models.len() == 1,
            role: spec.role,
            models: spec.models,
            route_keys,
            default_model,
            session_fields: spec.session_fields,
        })
    }

    /// The model a request goes to.
    pub fn resolve(&self, model: Selector<'_>, route_key: Selector<'_>) -> Result<Route<'_>, RoutingError> {
        let model = text(model).ok_or_else(|| self.error(RoutingCode::InvalidModel, ""))?;
        let key = text(route_key)
            .filter(|key| *key != Some(""))
            .ok_or_else(|| self.error(RoutingCode::InvalidRouteKey, ""))?;
        match (model.filter(|_| !self.lenient), key) {
            (Some(""), _) => Err(self.error(RoutingCode::InvalidModel, "")),
            (Some(name), _) => self
                .models
                .iter()
                .position(|(known, _)| known == name)
                .ok_or_else(|| self.error(RoutingCode::UnknownModel, name)),
            (None, Some(key)) => self
                .route_keys
                .get(key)
                .copied()
                .ok_or_else(|| self.error(RoutingCode::UnknownRouteKey, key)),
            (None, None) => self
                .default_model
                .ok_or_else(|| self.error(RoutingCode::ModelRequired, "")),
        }
        .map(|index| self.route(index))
    }

    fn route(&self, index: usize) -> Route<'_> {
        let (name, mode) = &self.models[index];
        Route { index, name, mode }
    }

    /// The role, for messages.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Every model, in the table's order.
    pub fn models(&self) -> impl Iterator<Item = Route<'_>> {
        (0..self.models.len()).map(|index| self.route(index))
    }

    /// Where the body may name the session, in the order of their precedence.
    #[must_use]
    pub fn session_fields(&self) -> &[SessionField] {
        &self.session_fields
    }

    fn error(&self, code: RoutingCode, given: &str) -> RoutingError {
        RoutingError::new(code, self, given)
    }
}

/// The text of a selector, if it is there; `None` for one that is no string.
fn text(selector: Selector<'_>) -> Option<Option<&str>> {
    match selector {
        Selector::Absent => Some(None),
        Selector::Text(text) => Some(Some(text)),
        Selector::NotText => None,
    }
}

fn check_name(role: &str, what: &str, name: &str) -> Result<(), InvalidTable> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(InvalidTable(format!(
        "role {role:?}: {what} {shown:?} has {} bytes; it must have 1 to {MAX_NAME_BYTES}",
        name.len()
    )))
}
