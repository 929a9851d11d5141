//! Probes, and the housekeeping that goes with the passing of time.
//!
//! Evidence comes first: bytes of a running response prove life whatever a probe says, and any HTTP answer below 500
//! proves that an engine is there (a paused SGLang still answers `/model_info`; another server may not know it).
//!
//! Whether, when and what to ask is decided by the core. Nearly always it is `/model_info`, which is instant, costs no
//! generation, and tells the engine's weights. Only an engine under suspicion that runs nothing, or is silent about what
//! it runs, is asked to generate one token: its process may answer while its scheduler hangs. (Never SGLang's `/health`:
//! it takes a second, and blocks for twenty while the engine is paused.)

use crate::abort::Abort;
use crate::body::Outgoing;
use crate::observe::{Observer, version_in};
use crate::plane::Plane;
use crate::request_id::AbortIds;
use crate::shared::SharedPool;
use crate::stats::add;
use crate::upstream::{Caller, NoAnswer, Upstream, Upstreams};
use bytes::Bytes;
use http::Method;
use router_core::health::{Probe, ProbeKind};
use router_core::version::Published;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// How often idle connections, sessions and removed backends are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// A housekeeping that is later than this tells of a process that was suspended.
const SUSPENDED: Duration = Duration::from_secs(2);

/// Runs until the data plane ends.
pub(crate) async fn run(plane: Arc<Plane>) {
    let mut probes = every(plane.config.timeouts.probe_interval);
    let mut housekeeping = every(HOUSEKEEPING.min(plane.config.timeouts.engine_keepalive));
    let mut kept = Instant::now();
    loop {
        tokio::select! {
            _ = probes.tick() => plane.pools.iter().for_each(|pool| probe_all(&plane, pool)),
            _ = housekeeping.tick() => {
                let unheard = std::mem::replace(&mut kept, Instant::now()).elapsed().saturating_sub(SUSPENDED);
                plane.pools.iter().for_each(|pool| keep_house(pool, unheard));
            }
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// `unheard`: how long this process was suspended, and so heard nobody.
fn keep_house(upstreams: &Upstreams, unheard: Duration) {
    let live: HashSet<_> = upstreams.shared().with(|pool, now| {
        if !unheard.is_zero() {
            pool.excuse_silence(unheard, now);
        }
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
        if upstream.probing.swap(true, AcqRel) {
            continue;
        }
        let probing = Probing(upstream);
        let begun = upstreams.shared().with(|pool, now| {
            let probe = pool.begin_probe(backend.reference, now)?;
            Some((probe, pool.published()))
        });
        if let Some((probe, published)) = begun {
            let task = examine(Arc::clone(plane), Arc::clone(upstreams), probing, probe, published);
            tokio::spawn(task);
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

/// What a probe found.
struct Finding {
    alive: bool,
    /// Nobody listens at its address.
    refused: bool,
    /// What it proves: a refused generation proves no more than that somebody answers.
    kind: ProbeKind,
    weights: Told,
}

/// What an engine said of its weights.
enum Told {
    /// It was not asked, or did not answer.
    Nothing,
    /// It answered, and named no version.
    Unnamed,
    Version(u64),
}

/// `published`: what was when the probe began. Weights told before a publication say nothing after it.
async fn examine(
    plane: Arc<Plane>,
    upstreams: Arc<Upstreams>,
    probing: Probing,
    probe: Probe,
    published: Option<Published>,
) {
    let upstream = &probing.0;
    add(&plane.counters.probes);
    let finding = match probe.kind {
        ProbeKind::Liveness => describe(&plane, upstream).await,
        ProbeKind::Generate => generate(&plane, upstreams.shared(), upstream, &probe).await,
    };
    let Some(finding) = finding else {
        return add(&plane.counters.probe_failures);
    };
    if !finding.alive {
        add(&plane.counters.probe_failures);
    }
    let probe = Probe {
        kind: finding.kind,
        ..probe
    };
    upstreams.shared().with(|pool, now| {
        if finding.refused {
            pool.note_refused(probe.backend, now);
        }
        let is_current = pool.finish_probe(&probe, finding.alive, now);
        let named = match finding.weights {
            Told::Nothing => return,
            Told::Unnamed => None,
            Told::Version(version) => Some(version),
        };
        if is_current && published.is_some() && pool.published() == published {
            pool.note_named_version(probe.backend, named, now);
        }
    });
}

/// Asks the engine what it is; `None` when it was not asked: our own shortage says nothing about it.
async fn describe(plane: &Plane, upstream: &Upstream) -> Option<Finding> {
    let mark = upstream.heard_mark();
    let call = upstream.ask(
        Method::GET,
        "/model_info",
        Outgoing::empty(),
        Caller::with_key(plane.engine_key.as_ref()),
    );
    let mut refused = false;
    let (alive, weights) = match tokio::time::timeout(plane.config.timeouts.probe_timeout, call).await {
        Ok(Ok(reply)) => {
            upstream.note_answer(ProbeKind::Liveness, reply.status);
            let told = if reply.status.is_success() {
                version_in(&reply.body).map_or(Told::Unnamed, Told::Version)
            } else {
                Told::Nothing
            };
            (!reply.status.is_server_error(), told)
        }
        Ok(Err(NoAnswer::NotAsked)) => return None,
        Ok(Err(error @ (NoAnswer::Silent | NoAnswer::Refused))) => {
            refused = error == NoAnswer::Refused;
            (false, Told::Nothing)
        }
        // Too busy to answer, but it is generating.
        Err(_) => (upstream.heard_since(mark), Told::Nothing),
    };
    Some(Finding {
        alive,
        refused,
        kind: ProbeKind::Liveness,
        weights,
    })
}

/// Asks the engine for one token; `None` when it was not asked, or an update began meanwhile.
async fn generate(plane: &Arc<Plane>, pool: &SharedPool, upstream: &Arc<Upstream>, probe: &Probe) -> Option<Finding> {
    let mark = upstream.heard_mark();
    let id = plane.request_ids.next();
    // Token ids, because an engine may have no tokenizer; 1 is below the size of every vocabulary.
    let rest = Bytes::from_static(b"\"input_ids\":[1],\"sampling_params\":{\"max_new_tokens\":1,\"temperature\":0}}");
    let body = Outgoing::new(vec![Bytes::from_static(b"{"), id.member_with_comma(), rest]);
    let call = upstream.ask(
        Method::POST,
        "/generate",
        body,
        Caller::with_key(plane.engine_key.as_ref()),
    );
    let answer = tokio::select! {
        answer = tokio::time::timeout(plane.config.timeouts.probe_timeout, call) => Some(answer),
        () = overtaken(pool, probe) => None,
    };
    let finding = |alive, kind| Finding {
        alive,
        refused: false,
        kind,
        weights: Told::Nothing,
    };
    if let Some(Ok(Ok(reply))) = answer {
        upstream.note_answer(ProbeKind::Generate, reply.status);
        let mut observer = Observer::new(false);
        observer.feed(&reply.body);
        return Some(match reply.status.as_u16() {
            200..=299 => finding(!observer.aborted(), ProbeKind::Generate),
            // It does not generate this way, or not for us.
            300..=499 => finding(true, ProbeKind::Liveness),
            _ => finding(false, ProbeKind::Generate),
        });
    }
    // It may run still, and nothing of ours may when the engine's memory is released.
    let abort = Abort {
        upstream: Arc::clone(upstream),
        ids: AbortIds::ours(&id),
        execution: None,
        authorization: plane.engine_key.clone(),
        lease: None,
    };
    abort.start(plane);
    match answer {
        None | Some(Ok(Err(NoAnswer::NotAsked))) => None,
        Some(Err(_)) => Some(finding(upstream.heard_since(mark), ProbeKind::Generate)),
        Some(Ok(answer)) => Some(Finding {
            refused: matches!(answer, Err(NoAnswer::Refused)),
            ..finding(false, ProbeKind::Generate)
        }),
    }
}

/// Ready when the answer to the probe will mean nothing any more.
async fn overtaken(pool: &SharedPool, probe: &Probe) {
    let mut changes = pool.subscribe();
    while pool.with(|pool, _| pool.generation()) == probe.pool_generation {
        if changes.changed().await.is_err() {
            return;
        }
    }
}
