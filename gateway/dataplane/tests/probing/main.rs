//! Probes: what is asked, when, with which key, and what an answer changes.

mod engine;
#[path = "../support/mod.rs"]
mod support;

use dataplane::{Config, DataPlane, RoleConfig, SharedPool};
use engine::{ProbedEngine, Says};
use router_core::health::Health;
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, PoolConfig};
use router_core::update::{BeginUpdate, UpdateKind};
use std::sync::Arc;
use std::time::Duration;
use support::client::{Client, post, post_with};
use support::{World, eventually};

/// A data plane that probes its one engine every few milliseconds.
async fn world(engine: &ProbedEngine, adjust: impl FnOnce(&mut Config)) -> World {
    let pool = SharedPool::new("r/m", PoolConfig::default());
    let spec = BackendSpec::parse(&engine.url(), 1.0).expect("a URL").with_id("e");
    pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    let mut config = Config::new(vec![RoleConfig::single("r", "m", Arc::clone(&pool))]);
    config.timeouts.probe_interval = Duration::from_millis(5);
    adjust(&mut config);
    let plane = dataplane::start(config).expect("started");
    eventually("a first probe", || !engine.seen("/model_info").is_empty()).await;
    World { plane, pool }
}

fn health(world: &World) -> Health {
    world.pool.with(|pool, _| pool.statistics().backends[0].health)
}

/// One failed execution, which makes an engine that runs nothing more suspect and idle.
fn suspect(world: &World) {
    let lease = world.pool.acquire(&AcquireRequest::unpinned()).expect("eligible");
    lease.settle(Settlement::new(Outcome::Failed));
}

fn update(id: &str) -> BeginUpdate<'_> {
    BeginUpdate {
        id,
        kind: UpdateKind::Weights,
        to_version: None,
    }
}

/// The engines' key is shown by probes and with requests that have no credentials; a client's own are left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_key() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |config| {
        config.engine_key = Some("k1".to_owned());
        assert!(!format!("{config:?}").contains("k1"));
    })
    .await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    let own = post_with("/generate", "authorization: Bearer own\r\n", "{}");
    assert_eq!(client.ask(own).await.status, 200);
    suspect(&world);
    eventually("a probe generates", || engine.seen("/generate").len() == 3).await;
    let shown: Vec<_> = engine
        .seen("/generate")
        .into_iter()
        .map(|seen| seen.authorization)
        .collect();
    let [by_us, by_client, by_probe] = shown.try_into().expect("three");
    assert_eq!(by_us.as_deref(), Some("Bearer k1"));
    assert_eq!(by_client.as_deref(), Some("Bearer own"));
    assert_eq!(by_probe.as_deref(), Some("Bearer k1"));
    let probes = engine.seen("/model_info");
    assert!(
        probes
            .iter()
            .all(|probe| probe.authorization.as_deref() == Some("Bearer k1"))
    );
    drop(client);
    drop(engine);
    world.finish().await;
}

/// A key that cannot be a header is refused at the start, without being shown.
#[test]
fn unusable_engine_keys() {
    for key in ["", "with space", "with\nbreak", "s\u{e9}cret"] {
        let pool = SharedPool::new("r/m", PoolConfig::default());
        let mut config = Config::new(vec![RoleConfig::single("r", "m", pool)]);
        config.engine_key = Some(key.to_owned());
        let refused = dataplane::start(config)
            .map(|_: DataPlane| ())
            .expect_err("refused")
            .to_string();
        assert!(refused.contains("engine_key"), "{refused}");
        assert!(key.is_empty() || !refused.contains(key), "{refused}");
    }
}

/// Without a key none is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_engine_key() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    assert_eq!(engine.seen("/generate")[0].authorization, None);
    assert_eq!(engine.seen("/model_info")[0].authorization, None);
    drop(client);
    drop(engine);
    world.finish().await;
}

/// An engine that refuses its probes is alive, and what it answered is said where readiness is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_probes_are_named() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |_| {}).await;
    assert!(world.plane.engine_notes().is_empty());
    let mut client = Client::connect(&world.plane).await;
    for (status, said) in [
        (401, "answered 401: is engine_key"),
        (403, "answered 403"),
        (404, "answered 404"),
    ] {
        engine.describes_itself(Says::Answer(status, "{}"));
        eventually("it is named", || {
            let notes = world.plane.engine_notes();
            notes
                .iter()
                .any(|note| note.pool == "r/m" && note.backend == "e" && note.note.contains(said))
        })
        .await;
        let reply = client.ask("GET /ready HTTP/1.1\r\nhost: g\r\n\r\n").await;
        let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        let note = body["pools"]["r/m"]["notes"]["e"].as_str().expect("a note");
        assert!(reply.status == 200 && note.contains(said), "{note}");
    }
    engine.describes_itself(Says::Answer(503, ""));
    eventually("an error of the server is a failure", || health(&world) != Health::Up).await;
    engine.describes_itself(Says::Answer(200, "{}"));
    eventually("nothing is odd any more", || world.plane.engine_notes().is_empty()).await;
    drop(client);
    drop(engine);
    world.finish().await;
}

/// Where weights have versions, an engine serves while it says to run the published one; other texts say nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_tell_the_weights() {
    let engine = ProbedEngine::start().await;
    engine.describes_itself(Says::Answer(200, r#"{"weight_version":"3"}"#));
    let world = world(&engine, |_| {}).await;
    let census = || world.pool.with(|pool, _| pool.census());
    assert_eq!(census().eligible, 1, "no version is published");
    engine.describes_itself(Says::Answer(200, r#"{"weight_version":"default"}"#));
    let asked = engine.seen("/model_info").len();
    eventually("it has answered so", || engine.seen("/model_info").len() > asked + 1).await;
    world
        .pool
        .with(|pool, now| pool.publish("first", 7, None, now))
        .expect("published");
    let asked = engine.seen("/model_info").len();
    eventually("more probes", || engine.seen("/model_info").len() > asked + 2).await;
    assert_eq!(census().eligible, 1, "a text is no version");
    engine.describes_itself(Says::Answer(200, r#"{"weight_version":"6"}"#));
    eventually("it waits for its weights", || census().pending_version == 1).await;
    engine.describes_itself(Says::Answer(401, r#"{"weight_version":"7"}"#));
    let asked = engine.seen("/model_info").len();
    eventually("more probes", || engine.seen("/model_info").len() > asked + 2).await;
    assert_eq!(census().pending_version, 1, "a refusal tells no weights");
    engine.describes_itself(Says::Answer(200, r#"{"weight_version":"7"}"#));
    eventually("it has them", || census().eligible == 1).await;
    drop(engine);
    world.finish().await;
}

/// A paused pool's engines are not asked anything, while those of another pool are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_probes_while_paused() {
    let (engine, other) = (ProbedEngine::start().await, ProbedEngine::start().await);
    let world = world(&engine, |config| {
        let pool = SharedPool::new("s/m", PoolConfig::default());
        let spec = BackendSpec::parse(&other.url(), 1.0).expect("a URL");
        pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
        config.roles.push(RoleConfig::single("s", "m", pool));
    })
    .await;
    suspect(&world);
    world
        .pool
        .with(|pool, now| pool.begin_update(&update("u"), now))
        .expect("begun");
    // What was begun before may still arrive: it is over when another engine was asked twice.
    let rounds = async |count: usize| {
        let asked = other.seen("/model_info").len();
        eventually("the other engine is asked", || {
            other.seen("/model_info").len() > asked + count
        })
        .await;
    };
    rounds(2).await;
    let asked = || engine.seen("/model_info").len() + engine.seen("/generate").len();
    let before = asked();
    rounds(20).await;
    assert_eq!(asked(), before);
    world
        .pool
        .with(|pool, now| pool.end_server_pause("u", now))
        .expect("resumed");
    eventually("it is asked again", || asked() > before).await;
    drop((engine, other));
    world.finish().await;
}

/// An engine under suspicion that runs nothing is asked for one token, and trusted when it makes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspects_generate() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |_| {}).await;
    assert!(engine.seen("/generate").is_empty());
    suspect(&world);
    eventually("it is trusted again", || health(&world) == Health::Up).await;
    let seen = engine.seen("/generate");
    assert_eq!(seen.len(), 1);
    let body: serde_json::Value = serde_json::from_str(&seen[0].body).expect("JSON");
    assert_eq!(body["sampling_params"]["max_new_tokens"], 1);
    assert_eq!(body["input_ids"], serde_json::json!([1]));
    assert_eq!(body["rid"].as_str().map(str::len), Some(32));
    let asked = engine.seen("/model_info").len();
    eventually("more probes", || engine.seen("/model_info").len() > asked + 2).await;
    assert_eq!(engine.seen("/generate").len(), 1, "only while suspect");
    drop(engine);
    world.finish().await;
}

/// An engine that describes itself but does not generate goes down, and is not left with our generations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspects_that_do_not_generate() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |config| {
        config.timeouts.probe_timeout = Duration::from_millis(300);
    })
    .await;
    engine.generates(Says::Nothing);
    suspect(&world);
    eventually("it goes down", || {
        matches!(health(&world), Health::Down | Health::HalfOpen)
    })
    .await;
    for probe in engine.seen("/generate") {
        let body: serde_json::Value = serde_json::from_str(&probe.body).expect("JSON");
        let abort = serde_json::json!({ "rid": body["rid"] }).to_string();
        eventually("it is aborted", || {
            engine.seen("/abort_request").iter().any(|seen| seen.body == abort)
        })
        .await;
    }
    assert!(world.plane.statistics().probe_failures_total >= 1);
    drop(engine);
    world.finish().await;
}

/// An update that begins while a probe generates ends it at once: nothing of ours may run on a paused engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_ends_a_generating_probe() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |config| {
        config.timeouts.probe_timeout = Duration::from_secs(600);
    })
    .await;
    engine.generates(Says::Nothing);
    suspect(&world);
    eventually("it is asked to generate", || engine.seen("/generate").len() == 1).await;
    world
        .pool
        .with(|pool, now| pool.begin_update(&update("u"), now))
        .expect("begun");
    eventually("the probe is aborted", || engine.seen("/abort_request").len() == 1).await;
    assert_eq!(health(&world), Health::Suspect);
    drop(engine);
    world.finish().await;
}

/// A refused generation proves that somebody answers, and no more; it is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_generation() {
    let engine = ProbedEngine::start().await;
    let world = world(&engine, |_| {}).await;
    engine.generates(Says::Answer(400, "{}"));
    suspect(&world);
    eventually("it is named", || {
        world
            .plane
            .engine_notes()
            .iter()
            .any(|note| note.note == "POST /generate (a probe) was answered 400")
    })
    .await;
    assert_eq!(health(&world), Health::Suspect);
    drop(engine);
    world.finish().await;
}
