//! A scripted engine, a raw client and a running data plane between them.
#![allow(dead_code, reason = "each test binary uses its own part of the kit")]

pub(crate) mod client;
pub(crate) mod engine;

use dataplane::{Config, DataPlane, RoleConfig, SharedPool};
use engine::Engine;
use router_core::lease::Outcome;
use router_core::membership::BackendSpec;
use router_core::pool::PoolConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for anything that must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A data plane serving one role `r` with one model `m` on the given engines.
pub(crate) struct World {
    pub(crate) plane: DataPlane,
    pub(crate) pool: Arc<SharedPool>,
}

impl World {
    pub(crate) async fn start(engines: &[&Engine]) -> Self {
        Self::start_with(engines, |_| {}).await
    }

    pub(crate) async fn start_with(engines: &[&Engine], adjust: impl FnOnce(&mut Config)) -> Self {
        let urls: Vec<String> = engines.iter().map(|engine| engine.url()).collect();
        Self::over(&urls, adjust).await
    }

    pub(crate) async fn over(urls: &[String], adjust: impl FnOnce(&mut Config)) -> Self {
        Self::of_pool(PoolConfig::default(), urls, adjust).await
    }

    pub(crate) async fn of_pool(pool: PoolConfig, urls: &[String], adjust: impl FnOnce(&mut Config)) -> Self {
        let pool = SharedPool::new("r/m", pool);
        for url in urls {
            let spec = BackendSpec::parse(url, 1.0).expect("a URL");
            pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
        }
        let mut config = Config::new(vec![RoleConfig::single("r", "m", Arc::clone(&pool))]);
        // Probes are tested on their own; elsewhere one at the start is enough.
        config.timeouts.probe_interval = Duration::from_secs(3600);
        adjust(&mut config);
        let plane = dataplane::start(config).expect("started");
        let first_probes_are_over = || {
            let now = plane.statistics();
            now.probes_total >= urls.len() as u64 && now.upstream_idle + now.probe_failures_total == now.probes_total
        };
        eventually("the first probes are over", first_probes_are_over).await;
        Self { plane, pool }
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.pool.with(|pool, _| pool.statistics().outstanding)
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.pool.with(|pool, _| pool.statistics().outcomes.get(outcome))
    }

    /// What must be true after every test: nothing is counted, nothing is open, and the threads end.
    pub(crate) async fn finish(self) {
        eventually("no lease is open", || {
            self.pool.with(|pool, _| pool.statistics().leases) == 0
        })
        .await;
        assert_eq!(self.outstanding(), 0);
        eventually("no request is open", || self.plane.statistics().open_requests == 0).await;
        let Self { plane, .. } = self;
        let statistics = tokio::task::spawn_blocking(move || {
            plane.shutdown(Duration::from_secs(2));
            plane.statistics()
        })
        .await
        .expect("shut down");
        assert_eq!(statistics.connections, 0);
        assert_eq!(statistics.open_streams, 0);
        assert_eq!(statistics.upstream_connections, 0);
        assert_eq!(statistics.upstream_idle, 0);
    }
}
