//! What a data plane serves and the limits it keeps. One type per group of knobs, each with its default.

use crate::genrm::Genrm;
use crate::shared::SharedPool;
use router_core::address::rules::AddressRules;
use router_core::routing::{RouteMode, RoutingSpec, RoutingTable, SessionField};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Everything [`crate::start`] needs.
#[derive(Clone)]
pub struct Config {
    /// Address or host name to listen on. Default `127.0.0.1`: binding elsewhere is a decision of the operator.
    pub host: String,
    /// Port to listen on; 0 (the default) takes a free one, see [`crate::DataPlane::local_addr`].
    pub port: u16,
    /// What is served. With exactly one role the `/<role>` prefix may be dropped by clients.
    pub roles: Vec<RoleConfig>,
    /// Unix socket of the control app, which answers every path the data plane does not serve.
    pub control_socket: Option<PathBuf>,
    /// What callers of engine endpoints, discovery, models and status must show, as `Authorization: Bearer` or
    /// `x-api-key`. Without one, the default, whoever can connect is a client.
    pub client_key: Option<String>,
    /// Whether `/metrics` asks for the client key as well. Default no: scrapers seldom have keys.
    pub metrics_need_key: bool,
    /// Unix socket for the lease API, beside the listener; made with mode 0600 and removed at the end. Default none.
    pub lease_socket: Option<PathBuf>,
    /// What callers of the lease API (`/v1/router`) must show as `Authorization: Bearer`. Without one, the default, the
    /// API is served only while the listener is bound to loopback. It opens what the client key opens, too.
    pub admin_key: Option<String>,
    /// The engines' own key (SGLang's `--api-key`). Sent as `Authorization: Bearer` on probes and with proxied requests
    /// that carry no credentials of their own. Default none.
    pub engine_key: Option<String>,
    /// Which engines may be registered over the network (`/v1/router`, `/workers`). Default: all but metadata services
    /// and link-local addresses. Those of [`Config::roles`] are not judged.
    pub address_rules: AddressRules,
    /// Certificate and key of the listener, which then speaks TLS only. Default none: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// PEM file with the certificates that engines behind `https://` are checked against. Default: the system's.
    pub engine_ca: Option<PathBuf>,
    /// How many eligible backends `/ready` asks of a pool, by its name; 1 where none is given, 0: the pool is not required.
    pub min_ready: HashMap<String, u32>,
    /// Whether finished executions of traced requests are kept for [`crate::DataPlane::take_traces`]. Default no.
    pub traces: bool,
    /// Threads of the data plane. Default 2.
    pub worker_threads: usize,
    /// Sizes and counts.
    pub limits: Limits,
    /// Times.
    pub timeouts: Timeouts,
}

impl Config {
    /// The defaults, serving `roles` on an ephemeral loopback port.
    #[must_use]
    pub fn new(roles: Vec<RoleConfig>) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 0,
            roles,
            control_socket: None,
            client_key: None,
            metrics_need_key: false,
            lease_socket: None,
            admin_key: None,
            engine_key: None,
            address_rules: AddressRules::default(),
            tls: None,
            engine_ca: None,
            min_ready: HashMap::new(),
            traces: false,
            worker_threads: 2,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    pub(crate) fn min_ready_of(&self, pool: &str) -> u32 {
        self.min_ready.get(pool).copied().unwrap_or(1)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("roles", &self.roles)
            .field("control_socket", &self.control_socket)
            .field("lease_socket", &self.lease_socket)
            // Never its text: this ends up in logs.
            .field("client_key", &self.client_key.as_ref().map(|_| "(set)"))
            .field("metrics_need_key", &self.metrics_need_key)
            .field("admin_key", &self.admin_key.as_ref().map(|_| "(set)"))
            .field("engine_key", &self.engine_key.as_ref().map(|_| "(set)"))
            .field("address_rules", &self.address_rules)
            .field("tls", &self.tls)
            .field("engine_ca", &self.engine_ca)
            .field("min_ready", &self.min_ready)
            .field("traces", &self.traces)
            .field("worker_threads", &self.worker_threads)
            .field("limits", &self.limits)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

/// What a listener with TLS shows.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// PEM file with the certificate and those between it and its root.
    pub cert: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
}

/// One role: a path prefix and the models behind it.
#[derive(Clone, Debug)]
pub struct RoleConfig {
    /// The first path segment, for example `rollout`.
    pub name: String,
    /// Model name and its pool, in the order they are listed in error messages.
    pub models: Vec<(String, Arc<SharedPool>)>,
    /// Models that are asked with messages on `/generate`, by their names.
    pub genrm: Vec<(String, Arc<Genrm>)>,
    /// The model of requests that name none. A sole model is the default by itself.
    pub default_model: Option<String>,
    /// Accept any model string when the role has exactly one model. Default off: an unknown model is an error.
    pub lenient_model: bool,
    /// Route key and the model it means. Default none.
    pub route_keys: Vec<(String, String)>,
    /// Models behind a router (its pool's one backend), and the router's URL. Default none: every model is direct.
    pub router_urls: Vec<(String, String)>,
    /// Members of the body that may name the session when no header does. Default none.
    pub session_fields: Vec<SessionField>,
}

impl RoleConfig {
    /// A role with one model, which is its default.
    #[must_use]
    pub fn single(name: impl Into<String>, model: impl Into<String>, pool: Arc<SharedPool>) -> Self {
        Self {
            name: name.into(),
            models: vec![(model.into(), pool)],
            genrm: Vec::new(),
            default_model: None,
            lenient_model: false,
            route_keys: Vec::new(),
            router_urls: Vec::new(),
            session_fields: Vec::new(),
        }
    }

    /// Checks the role's own rules and freezes its routing table; the error says which role breaks which rule.
    pub fn routing(&self) -> Result<RoutingTable, String> {
        let name = &self.name;
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(format!(
                "role name {name:?} is refused: it is a path segment of lower-case letters, digits, '-' and '_'"
            ));
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            return Err(format!(
                "role name {name:?} is refused: the gateway serves that path itself"
            ));
        }
        if let Some((model, _)) = self.genrm.iter().find(|(model, _)| self.pool(model).is_none()) {
            return Err(format!(
                "role {name:?}: adapter of {model:?}, which is not one of its models"
            ));
        }
        if let Some((model, _)) = self.router_urls.iter().find(|(model, _)| self.pool(model).is_none()) {
            return Err(format!(
                "role {name:?}: router_url of {model:?}, which is not one of its models"
            ));
        }
        let mode = |model: &str| {
            let router = self.router_urls.iter().find(|(name, _)| name == model);
            router.map_or(RouteMode::Direct, |(_, url)| RouteMode::Router { url: url.clone() })
        };
        RoutingTable::new(RoutingSpec {
            role: name.clone(),
            models: self
                .models
                .iter()
                .map(|(model, _)| (model.clone(), mode(model)))
                .collect(),
            route_keys: self.route_keys.clone(),
            default_model: self.default_model.clone(),
            lenient_model: self.lenient_model,
            session_fields: self.session_fields.clone(),
        })
        .map_err(|error| error.to_string())
    }

    fn pool(&self, model: &str) -> Option<&Arc<SharedPool>> {
        self.models.iter().find(|(name, _)| name == model).map(|(_, pool)| pool)
    }
}

/// First path segments that mean something without a role.
const RESERVED_NAMES: [&str; 30] = [
    "abort_request",
    "add_worker",
    "chat",
    "continue",
    "drain",
    "engines",
    "flush",
    "flush_cache",
    "generate",
    "get_loads",
    "health",
    "list_workers",
    "live",
    "liveness",
    "metrics",
    "openapi.json",
    "pause",
    "poison",
    "readiness",
    "ready",
    "remove_worker",
    "scale",
    "sleep",
    "status",
    "ui",
    "undrain",
    "update_weights",
    "v1",
    "wake",
    "workers",
];

/// Sizes and counts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request body in bytes; more is answered 413. Default 512 MiB: prompts with images are large.
    pub max_body_bytes: u64,
    /// Client connections served at a time, so that descriptors are left for those to engines; more are answered 503.
    /// Default: no limit.
    pub max_clients: Option<u64>,
    /// Backends tried for one request while not one byte of it has been written. Default 3.
    pub max_attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 512 * 1024 * 1024,
            max_clients: None,
            max_attempts: 3,
        }
    }
}

/// Times. `None` waits as long as the client does: an RL turn may take minutes to its first byte.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For name resolution and the TCP handshake with an engine. Default 5 s.
    pub connect: Duration,
    /// From the request to the engine's response head. Default none.
    pub first_byte: Option<Duration>,
    /// Longest silence of the engine inside a response body. Default none.
    pub idle: Option<Duration>,
    /// For the whole request, from its routing to its last byte; of what no engine is asked, for the body of the request.
    /// Default none.
    pub total: Option<Duration>,
    /// Engine connections idle for longer are not used again. Default 4 s: below uvicorn's keep-alive of 5 s, so that
    /// a request is rarely sent into a connection that the engine is closing at that moment.
    pub engine_keepalive: Duration,
    /// How long an engine may take to confirm an abort before the lease counts as ambiguous. Default 2 s.
    pub abort_grace: Duration,
    /// How long an engine may leave it open how an execution ended, in a pool with `on_ambiguous = resolve`, before it
    /// gets nothing more until it has said. Time in which the servers are paused does not count. Default 30 s.
    pub resolve: Duration,
    /// Pause between two liveness probes of one backend. Default 1 s.
    pub probe_interval: Duration,
    /// A probe without an answer for this long has failed. Default 5 s: a busy engine answers late.
    pub probe_timeout: Duration,
}

impl Timeouts {
    /// When a request that begins now has had its time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.total.and_then(|total| Instant::now().checked_add(total))
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: None,
            idle: None,
            total: None,
            engine_keepalive: Duration::from_secs(4),
            abort_grace: Duration::from_secs(2),
            resolve: Duration::from_secs(30),
            probe_interval: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long generations are cut by nobody who was not told to (B15).
    #[test]
    fn b15_waiting_has_no_limit_by_default() {
        let Timeouts {
            first_byte,
            idle,
            total,
            ..
        } = Timeouts::default();
        assert_eq!((first_byte, idle, total), (None, None, None));
    }
}
