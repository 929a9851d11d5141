//! Liveness probes, and the housekeeping that goes with the passing of time.
//!
//! Evidence comes first: bytes of a running response prove life whatever a probe says, and any HTTP answer below 500
//! proves that an engine is there (a paused SGLang still answers `/model_info`; another server may not know it).

use crate::body::Outgoing;
use crate::plane::Plane;
use crate::stats::add;
use crate::upstream::{NoAnswer, Upstream, Upstreams};
use http::Method;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often idle connections, sessions and removed backends are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Runs until the data plane ends.
pub(crate) async fn run(plane: Arc<Plane>) {
    let mut probes = every(plane.config.timeouts.probe_interval);
    let mut housekeeping = every(HOUSEKEEPING.min(plane.config.timeouts.engine_keepalive));
    loop {
        tokio::select! {
            _ = probes.tick() => plane.pools.iter().for_each(|pool| probe_all(&plane, pool)),
            _ = housekeeping.tick() => plane.pools.iter().for_each(|pool| keep_house(pool)),
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn keep_house(upstreams: &Upstreams) {
    let live: HashSet<_> = upstreams.shared().with(|pool, now| {
        pool.tick(now);
        pool.backends().map(|backend| backend.reference).collect()
    });
    let heard = upstreams.sweep(&live);
    if !heard.is_empty() {
        upstreams
            .shared()
            .with(|pool, now| heard.into_iter().for_each(|backend| pool.note_alive(backend, now)));
    }
}

fn probe_all(plane: &Arc<Plane>, upstreams: &Arc<Upstreams>) {
    let backends: Vec<_> = upstreams.shared().with(|pool, _| pool.backends().cloned().collect());
    for backend in backends {
        let upstream = upstreams.of(&backend);
        // A slow engine has at most one probe at a time.
        if !upstream.probing.swap(true, AcqRel) {
            tokio::spawn(probe(Arc::clone(plane), Arc::clone(upstreams), Probing(upstream)));
        }
    }
}

/// Allows the next probe when this one ends in whatever way.
struct Probing(Arc<Upstream>);

impl Drop for Probing {
    fn drop(&mut self) {
        self.0.probing.store(false, Release);
    }
}

async fn probe(plane: Arc<Plane>, upstreams: Arc<Upstreams>, probing: Probing) {
    let upstream = &probing.0;
    let mark = upstream.heard_mark();
    add(&plane.counters.probes);
    let call = upstream.call(Method::GET, "/model_info", Outgoing::empty(), None);
    let alive = match tokio::time::timeout(plane.config.timeouts.probe_timeout, call).await {
        Ok(Ok(status)) => !status.is_server_error(),
        Ok(Err(NoAnswer::Silent)) => false,
        // Our own shortage says nothing about the engine: it keeps the health it has.
        Ok(Err(NoAnswer::NotAsked)) => return add(&plane.counters.probe_failures),
        // Too busy to answer, but it is generating.
        Err(_) => upstream.heard_since(mark),
    };
    if !alive {
        add(&plane.counters.probe_failures);
    }
    upstreams
        .shared()
        .with(|pool, now| pool.report_probe(upstream.reference, alive, now));
}
