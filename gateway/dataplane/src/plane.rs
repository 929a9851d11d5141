//! What every task of one data plane shares: configuration, routing table, engine connections, counters.

use crate::access::Access;
use crate::config::{Config, RoleConfig};
use crate::failure_log::FailureLog;
use crate::genrm::Genrm;
use crate::in_flight::Directory;
use crate::lease_api::LeaseApi;
use crate::request_id::RequestIdSource;
use crate::server::{Phase, StartError};
use crate::shared::SharedPool;
use crate::stats::Counters;
use crate::tls::{self, EngineTls};
use crate::trace::TraceLog;
use crate::tracker::Tracker;
use crate::upstream::Upstreams;
use crate::version_log::VersionLog;
use crate::via::Via;
use http::HeaderValue;
use parking_lot::Mutex;
use router_core::histogram::Histogram;
use router_core::routing::RoutingTable;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub(crate) struct Plane {
    pub(crate) config: Config,
    pub(crate) roles: Vec<Role>,
    /// One entry per distinct pool, however many models point to it.
    pub(crate) pools: Vec<Arc<Upstreams>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) failures: FailureLog,
    pub(crate) mismatches: VersionLog,
    pub(crate) lag: Mutex<Histogram>,
    /// Present when somebody makes spans of them.
    pub(crate) traces: Option<TraceLog>,
    pub(crate) tasks: Arc<Tracker>,
    pub(crate) request_ids: RequestIdSource,
    pub(crate) via: Arc<Via>,
    pub(crate) in_flight: Arc<Directory>,
    pub(crate) access: Access,
    /// Present when the listener speaks TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) lease_api: LeaseApi,
    /// What the engines ask of us, as the value of `Authorization`.
    pub(crate) engine_key: Option<HeaderValue>,
    /// For destructors, which may run on any thread.
    pub(crate) runtime: Handle,
}

/// One role with its models resolved.
pub(crate) struct Role {
    pub(crate) name: String,
    /// In the order of the routing table.
    pub(crate) models: Vec<Model>,
    pub(crate) routing: RoutingTable,
}

/// A model and the engines that serve it.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) upstreams: Arc<Upstreams>,
    /// Present when it judges.
    pub(crate) genrm: Option<Arc<Genrm>>,
    /// Its one backend is a router with engines of its own.
    pub(crate) behind_router: bool,
}

impl Plane {
    pub(crate) fn new(
        config: Config,
        local: SocketAddr,
        phase: watch::Receiver<Phase>,
        runtime: Handle,
    ) -> Result<Arc<Self>, StartError> {
        let counters = Arc::new(Counters::default());
        let tls = config.tls.as_ref().map(tls::acceptor).transpose().map_err(invalid)?;
        let engine_tls = Arc::new(EngineTls::new(config.engine_ca.as_deref()).map_err(invalid)?);
        let via = Arc::new(Via::new());
        let mut pools = Vec::new();
        let mut roles: Vec<Role> = Vec::with_capacity(config.roles.len());
        for role in &config.roles {
            if roles.iter().any(|known| known.name == role.name) {
                return Err(invalid(format!("role {:?} is configured twice", role.name)));
            }
            roles.push(resolve(role, &mut pools, &counters, &config, &engine_tls, &via)?);
        }
        let engine_key = config.engine_key.as_deref().map(bearer).transpose()?;
        let (client_key, admin_key) = (config.client_key.as_deref(), config.admin_key.as_deref());
        let access = Access::new(client_key, admin_key, config.metrics_need_key, local).map_err(invalid)?;
        let lease_api = LeaseApi::new(config.address_rules.clone(), &roles, phase, engine_key.clone());
        let traces = config.traces.then(TraceLog::default);
        Ok(Arc::new(Self {
            config,
            roles,
            pools,
            counters,
            failures: FailureLog::default(),
            mismatches: VersionLog::default(),
            lag: Mutex::default(),
            traces,
            tasks: Arc::default(),
            request_ids: RequestIdSource::new(),
            via,
            in_flight: Directory::new(),
            access,
            tls,
            lease_api,
            engine_key,
            runtime,
        }))
    }

    /// Those of now, and of the future.
    pub(crate) fn close_idle_connections(&self) {
        self.pools.iter().for_each(|pool| pool.close_idle(true));
    }

    /// Their descriptors are needed.
    #[cold]
    pub(crate) fn free_idle_connections(&self) {
        self.pools.iter().for_each(|pool| pool.close_idle(false));
    }
}

fn resolve(
    role: &RoleConfig,
    pools: &mut Vec<Arc<Upstreams>>,
    counters: &Arc<Counters>,
    config: &Config,
    tls: &Arc<EngineTls>,
    via: &Arc<Via>,
) -> Result<Role, StartError> {
    let routing = role.routing().map_err(invalid)?;
    let mut find = |shared: &Arc<SharedPool>| -> Arc<Upstreams> {
        if let Some(known) = pools.iter().find(|known| Arc::ptr_eq(known.shared(), shared)) {
            return Arc::clone(known);
        }
        let added = Arc::new(Upstreams::new(
            Arc::clone(shared),
            Arc::clone(counters),
            &config.timeouts,
            Arc::clone(tls),
            Arc::clone(via),
        ));
        pools.push(Arc::clone(&added));
        added
    };
    Ok(Role {
        name: role.name.clone(),
        models: role
            .models
            .iter()
            .map(|(name, pool)| Model {
                name: name.clone(),
                upstreams: find(pool),
                genrm: role
                    .genrm
                    .iter()
                    .find(|(judge, _)| judge == name)
                    .map(|(_, genrm)| Arc::clone(genrm)),
                behind_router: role.router_urls.iter().any(|(model, _)| model == name),
            })
            .collect(),
        routing,
    })
}

/// The engines' key as a header that no log shows.
fn bearer(key: &str) -> Result<HeaderValue, StartError> {
    let usable = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let value = usable
        .then(|| HeaderValue::try_from(format!("Bearer {key}")).ok())
        .flatten();
    let mut value = value.ok_or_else(|| {
        // Never the key itself: this ends up in logs.
        invalid("engine_key is refused: it must have visible ASCII characters only, at least one".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn invalid(message: String) -> StartError {
    StartError::InvalidConfig { message }
}
