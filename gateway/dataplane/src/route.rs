//! From a path to what serves it.

use crate::lease_api;
use crate::plane::Role;

/// An endpoint of an engine that a request is leased for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Generate,
    ChatCompletions,
    Completions,
    Embeddings,
    Score,
    Rerank,
    Responses,
}

impl Endpoint {
    /// Every path under a role that [`Self::parse`] knows.
    #[cfg(test)]
    pub(crate) const PATHS: [&str; 8] = [
        "generate",
        "v1/chat/completions",
        "chat/completions",
        "v1/completions",
        "v1/embeddings",
        "v1/score",
        "v1/rerank",
        "v1/responses",
    ];

    /// In the order of declaration.
    pub(crate) const ALL: [Self; 7] = [
        Self::Generate,
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Score,
        Self::Rerank,
        Self::Responses,
    ];

    fn parse(path: &str) -> Option<Self> {
        match path {
            "generate" => Some(Self::Generate),
            "v1/chat/completions" | "chat/completions" => Some(Self::ChatCompletions),
            "v1/completions" => Some(Self::Completions),
            "v1/embeddings" => Some(Self::Embeddings),
            "v1/score" => Some(Self::Score),
            "v1/rerank" => Some(Self::Rerank),
            "v1/responses" => Some(Self::Responses),
            _ => None,
        }
    }

    /// The engine's path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Generate => "/generate",
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Score => "/v1/score",
            Self::Rerank => "/v1/rerank",
            Self::Responses => "/v1/responses",
        }
    }

    /// Errors take the form OpenAI clients know.
    pub(crate) const fn is_openai(self) -> bool {
        !matches!(self, Self::Generate)
    }

    /// `model` is our selector and no field of the engine's.
    pub(crate) const fn cuts_model(self) -> bool {
        matches!(self, Self::Generate)
    }

    /// The engine knows the request by `rid`, and can abort it by that. The others end when their connection does.
    pub(crate) const fn takes_request_id(self) -> bool {
        matches!(
            self,
            Self::Generate | Self::ChatCompletions | Self::Completions | Self::Embeddings
        )
    }
}

/// What serves a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A lease on one of the role's backends (index into the roles).
    Engine {
        role: usize,
        endpoint: Endpoint,
    },
    /// The abort of a request of a role (index into the roles).
    Abort {
        role: usize,
    },
    Live,
    Ready,
    /// The description of everything the gateway serves.
    OpenApi,
    /// The lease API.
    Leases,
    /// An engine endpoint of a role that is not served here.
    UnknownRole,
    /// Anything else: the control app.
    Control,
}

impl Route {
    /// The methods it takes, where the data plane itself decides.
    pub(crate) const fn methods(self) -> Option<&'static str> {
        match self {
            Self::Engine { .. } | Self::Abort { .. } => Some("POST"),
            Self::Live | Self::Ready | Self::OpenApi => Some("GET, HEAD"),
            Self::Leases | Self::UnknownRole | Self::Control => None,
        }
    }
}

/// Finds what serves `path`. Without its prefix an endpoint belongs to the role that is served alone.
pub(crate) fn route(path: &str, roles: &[Role]) -> Route {
    let Some(rest) = path.strip_prefix('/') else {
        return Route::Control;
    };
    match rest {
        "live" => return Route::Live,
        "ready" => return Route::Ready,
        "openapi.json" => return Route::OpenApi,
        _ => {}
    }
    if let [_] = roles
        && let Some(route) = of_role(0, rest)
    {
        return route;
    }
    let Some((first, rest)) = rest.split_once('/') else {
        return Route::Control;
    };
    // Whether it is an endpoint does not depend on the role.
    if of_role(0, rest).is_none() {
        return if first == "v1" && lease_api::is_ours(rest) {
            Route::Leases
        } else {
            Route::Control
        };
    }
    match roles.iter().position(|role| role.name == first) {
        None if first.is_empty() => Route::Control,
        Some(role) => of_role(role, rest).unwrap_or(Route::Control),
        None => Route::UnknownRole,
    }
}

/// What `rest`, the path behind its role, stands for.
fn of_role(role: usize, rest: &str) -> Option<Route> {
    if rest == "abort_request" {
        return Some(Route::Abort { role });
    }
    Endpoint::parse(rest).map(|endpoint| Route::Engine { role, endpoint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_core::routing::{RouteMode, RoutingSpec, RoutingTable};

    fn roles(names: &[&str]) -> Vec<Role> {
        names
            .iter()
            .map(|name| Role {
                name: (*name).to_owned(),
                models: Vec::new(),
                routing: RoutingTable::new(RoutingSpec {
                    models: vec![("m".to_owned(), RouteMode::Direct)],
                    ..RoutingSpec::default()
                })
                .expect("a valid table"),
            })
            .collect()
    }

    /// Every engine endpoint works with its role's prefix, and without it when one role is served.
    #[test]
    fn engine_paths() {
        for (path, endpoint) in [
            ("/generate", Endpoint::Generate),
            ("/v1/chat/completions", Endpoint::ChatCompletions),
            ("/chat/completions", Endpoint::ChatCompletions),
            ("/v1/completions", Endpoint::Completions),
            ("/v1/embeddings", Endpoint::Embeddings),
            ("/v1/score", Endpoint::Score),
            ("/v1/rerank", Endpoint::Rerank),
            ("/v1/responses", Endpoint::Responses),
        ] {
            let (one, two) = (roles(&["a"]), roles(&["a", "b"]));
            assert_eq!(route(path, &one), Route::Engine { role: 0, endpoint });
            assert_eq!(route(&format!("/b{path}"), &two), Route::Engine { role: 1, endpoint });
            assert_eq!(route(&format!("/c{path}"), &two), Route::UnknownRole);
            assert!(!matches!(route(path, &two), Route::Engine { .. }));
        }
    }

    /// The endpoints stand in the order of their numbers.
    #[test]
    fn endpoints_in_order() {
        assert!(
            Endpoint::ALL
                .iter()
                .enumerate()
                .all(|(index, endpoint)| *endpoint as usize == index)
        );
    }

    /// Near misses are not engine paths.
    #[test]
    fn other_paths() {
        let one = roles(&["a"]);
        for path in [
            "",
            "*",
            "/",
            "//generate",
            "/generate/",
            "/a/generate/x",
            "/a",
            "/a/health",
            "/metrics",
            "/a/live",
        ] {
            assert_eq!(route(path, &one), Route::Control, "{path}");
        }
        assert_eq!(
            (
                route("/live", &one),
                route("/ready", &one),
                route("/openapi.json", &one)
            ),
            (Route::Live, Route::Ready, Route::OpenApi)
        );
        let two = roles(&["a", "b"]);
        assert_eq!(route("/abort_request", &one), Route::Abort { role: 0 });
        assert_eq!(route("/b/abort_request", &two), Route::Abort { role: 1 });
        assert_eq!(route("/c/abort_request", &two), Route::UnknownRole);
        assert_eq!(route("/abort_request", &two), Route::Control);
        for path in ["/v1/router", "/v1/router/pools", "/v1/router/generate"] {
            assert_eq!(route(path, &one), Route::Leases, "{path}");
        }
        assert_eq!(route("/v1/routers", &one), Route::Control);
    }
}
