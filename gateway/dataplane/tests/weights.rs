//! What engines say about the weights of their answers, and about generations they cut short.

mod support;

use dataplane::VersionMismatch;
use router_core::health::Health;
use router_core::lease::Outcome;
use std::time::Duration;
use support::World;
use support::client::{Client, post};
use support::engine::{Engine, Step, answer, chunk, stream_head};

fn publish(world: &World, version: u64) {
    world
        .pool
        .with(|pool, now| pool.publish("first", version, None, now))
        .expect("published");
}

fn health(world: &World) -> Health {
    world.pool.with(|pool, _| pool.statistics().backends[0].health)
}

const RAW: &str = r#"{"text":"a","meta_info":{"weight_version":"7","completion_tokens":4,"weight_versions":[{"version":"7","start":0,"end":4}]}}"#;

/// An answer made with other weights than those of its lease is counted and kept for the log, in every form; it is
/// relayed untouched, and says which weights it was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_weights_are_counted() {
    let engine = Engine::start(|_, number| match number {
        0 => vec![Step::Send(answer("200 OK", RAW))],
        1 => vec![Step::Send(answer(
            "200 OK",
            r#"{"choices":[],"metadata":{"weight_version":"7"}}"#,
        ))],
        _ => vec![
            Step::Send(stream_head()),
            Step::Send(chunk("data: {\"meta_info\":{\"weight_ver")),
            Step::Send(chunk(
                "sion\":\"7\"}}\n\ndata: {\"meta_info\":{\"weight_version\":\"7\"}}\n\n",
            )),
            Step::Send(chunk("data: [DONE]\n\n")),
            Step::Send(chunk("")),
        ],
    })
    .await;
    let world = World::start(&[&engine]).await;
    publish(&world, 8);
    let mut client = Client::connect(&world.plane).await;
    for path in ["/generate", "/v1/chat/completions", "/generate"] {
        let reply = client.ask(post(path, "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-weight-version")),
            (200, Some("8"))
        );
        assert!(reply.complete);
    }
    assert_eq!(world.pool.version_mismatches(), 3);
    let backend = world.pool.with(|pool, _| pool.statistics().backends[0].info.id.clone());
    let taken = world.plane.take_version_mismatches();
    let lease = taken[0].lease.clone();
    assert_eq!(lease.len(), 16);
    let expected = VersionMismatch {
        pool: "r/m".to_owned(),
        backend,
        expected: 8,
        observed: Some(7),
        lease,
        count: 3,
    };
    assert_eq!(taken, [expected]);
    assert!(world.plane.take_version_mismatches().is_empty());
    assert_eq!(world.outcome(Outcome::Completed), 3);
    world.finish().await;
}

/// The right weights, and weights of a pool without versions, are no mismatch; such a pool's answers name none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_weights() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", RAW))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!((reply.text(), reply.header("x-trimtab-weight-version")), (RAW, None));
    publish(&world, 7);
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!(
        (reply.text(), reply.header("x-trimtab-weight-version")),
        (RAW, Some("7"))
    );
    assert_eq!(world.pool.version_mismatches(), 0);
    assert!(world.plane.take_version_mismatches().is_empty());
    world.finish().await;
}

/// An engine that named its version and now has a text for it was started anew: its answers count until the next probe
/// finds that. One that never named a version may call its weights what it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_names_its_version_no_more() {
    const ANEW: &str = r#"{"text":"a","meta_info":{"weight_version":"default"}}"#;
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", ANEW))]).await;
    let world = World::start(&[&engine]).await;
    publish(&world, 7);
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.text(), ANEW);
    assert_eq!(world.pool.version_mismatches(), 0);
    world.pool.with(|pool, now| {
        let backend = pool.statistics().backends[0].info.reference;
        pool.note_named_version(backend, Some(7), now);
    });
    assert_eq!(client.ask(post("/generate", "{}")).await.text(), ANEW);
    assert_eq!(world.pool.version_mismatches(), 1);
    let taken = world.plane.take_version_mismatches();
    assert_eq!((taken[0].expected, taken[0].observed), (7, None));
    world.finish().await;
}

/// An answer of ours to a request that had a lease names its weights too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_answers_name_their_weights() {
    let engine = Engine::start(|_, _| vec![Step::Reset]).await;
    let world = World::start(&[&engine]).await;
    publish(&world, 7);
    let mut client = Client::connect(&world.plane).await;
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-weight-version")),
        (502, Some("7"))
    );
    world.finish().await;
}

/// An engine that cuts generations short before their first token, again and again, serves nobody: it goes down although
/// each answer is a complete 200.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_aborts_bring_an_engine_down() {
    let body =
        r#"{"output_ids":[],"meta_info":{"finish_reason":{"type":"abort","message":"x"},"completion_tokens":0}}"#;
    let engine = Engine::start(move |_, _| vec![Step::Send(answer("200 OK", body))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let limit = world.pool.with(|pool, _| pool.config().zero_token_aborts);
    for count in 0..limit {
        assert_eq!(health(&world), Health::Up, "after {count}");
        assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    }
    assert_eq!(health(&world), Health::Down);
    assert_eq!(world.outcome(Outcome::Aborted), u64::from(limit));
    world.finish().await;
}

/// Bytes that came before an engine broke off are no sign of life after it: a row of broken streams brings it down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_streams_bring_an_engine_down() {
    let engine =
        Engine::start(|_, _| vec![Step::Send(stream_head()), Step::Send(chunk("data: 1\n\n")), Step::Reset]).await;
    let world = World::start_with(&[&engine], |config| {
        // Housekeeping, which reports what was heard, runs as often. Long enough for the kit to see the first probe's
        // connection idle.
        config.timeouts.engine_keepalive = Duration::from_millis(200);
    })
    .await;
    let limit = world.pool.with(|pool, _| pool.config().down_after);
    for count in 1..=limit {
        let mut client = Client::connect(&world.plane).await;
        assert!(!client.ask(post("/generate", "{}")).await.complete);
        // Gives housekeeping the time to spoil it.
        tokio::time::sleep(Duration::from_millis(450)).await;
        let expected = if count < limit { Health::Suspect } else { Health::Down };
        assert_eq!(health(&world), expected, "after {count}");
    }
    world.finish().await;
}
