//! Aborting through the gateway (B9): the owner of an id is asked, nobody else, and the answer says what is known.

mod support;

use router_core::lease::Outcome;
use std::sync::Arc;
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer};
use support::{World, eventually};
use tokio::sync::Semaphore;

/// An engine whose generations end when the test opens the gate.
async fn gated(gate: &Arc<Semaphore>) -> Engine {
    let gate = Arc::clone(gate);
    Engine::start(move |_, _| vec![Step::Wait(Arc::clone(&gate)), Step::Send(answer("200 OK", "{}"))]).await
}

async fn abort(world: &World, body: &str) -> support::client::Answer {
    Client::connect(&world.plane)
        .await
        .ask(post("/r/abort_request", body))
        .await
}

/// Only the engine that runs the id is called; twice is as once; what ended is told from what never was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_an_abort_goes_to_the_owner_of_the_id() {
    let gate = Arc::new(Semaphore::new(0));
    let engines = [gated(&gate).await, gated(&gate).await];
    let world = World::start(&[&engines[0], &engines[1]]).await;
    let mut clients = [Client::connect(&world.plane).await, Client::connect(&world.plane).await];
    for (client, id) in clients.iter_mut().zip(["request-a", "request-b"]) {
        client.send(post("/generate", &format!("{{\"rid\":\"{id}\"}}"))).await;
    }
    eventually("both run", || engines.iter().all(|engine| engine.seen().len() == 1)).await;
    let owner = engines
        .iter()
        .position(|engine| engine.seen()[0].json()["rid"] == "request-a")
        .expect("one of them runs it");
    for count in 1..=2 {
        let told = abort(&world, "{\"rid\":\"request-a\"}").await;
        assert_eq!(told.status, 200, "{}", told.text());
        let told: serde_json::Value = serde_json::from_slice(&told.body).expect("JSON");
        assert_eq!(
            (&told["status"], &told["rid"]),
            (&"aborted".into(), &"request-a".into())
        );
        assert_eq!(told["backend"], engines[owner].url()["http://".len()..]);
        assert_eq!(engines[owner].aborts(), vec!["{\"rid\":\"request-a\"}"; count]);
        assert!(engines[1 - owner].aborts().is_empty());
    }
    let unknown = abort(&world, "{\"rid\":\"request-c\"}").await;
    assert_eq!(
        (unknown.status, unknown.error()["code"].as_str()),
        (404, Some("unknown_request"))
    );
    gate.add_permits(2);
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    let finished = abort(&world, "{\"rid\":\"request-a\"}").await;
    assert_eq!(finished.status, 200);
    assert_eq!(finished.text(), "{\"rid\":\"request-a\",\"status\":\"finished\"}");
    assert_eq!(engines[owner].aborts().len(), 2);
    assert_eq!(world.outcome(Outcome::Completed), 2);
    world.finish().await;
}

/// An id of ours, which the client reads in no request of its own, can be aborted as well; short and empty ones cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_ids_that_could_hit_others_are_refused() {
    let gate = Arc::new(Semaphore::new(0));
    let engine = gated(&gate).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{}")).await;
    eventually("it runs", || engine.seen().len() == 1).await;
    let id = engine.seen()[0].json()["rid"].as_str().expect("an id").to_owned();
    for body in [
        "{}",
        "{\"rid\":\"\"}",
        &format!("{{\"rid\":\"{}\"}}", &id[..7]),
        "{\"rid\":7}",
    ] {
        let refused = abort(&world, body).await;
        assert_eq!(
            (refused.status, refused.error()["code"].as_str()),
            (400, Some("invalid_request_id"))
        );
    }
    // Long enough to be nobody's beginning by chance, and not the id of a request.
    let prefix = abort(&world, &format!("{{\"rid\":\"{}\"}}", &id[..12])).await;
    assert_eq!(prefix.status, 404);
    assert!(engine.aborts().is_empty());
    assert_eq!(abort(&world, &format!("{{\"rid\":\"{id}\"}}")).await.status, 200);
    gate.add_permits(1);
    assert_eq!(client.answer().await.status, 200);
    world.finish().await;
}

/// SGLang aborts by prefix: an id that begins another one on the same engine is not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_an_id_that_begins_another_one_is_not_sent() {
    let gate = Arc::new(Semaphore::new(0));
    let engine = gated(&gate).await;
    let world = World::start(&[&engine]).await;
    let mut clients = [Client::connect(&world.plane).await, Client::connect(&world.plane).await];
    for (client, id) in clients.iter_mut().zip(["request-1", "request-10"]) {
        client.send(post("/generate", &format!("{{\"rid\":\"{id}\"}}"))).await;
    }
    eventually("both run", || engine.seen().len() == 2).await;
    let refused = abort(&world, "{\"rid\":\"request-1\"}").await;
    assert_eq!(
        (refused.status, refused.error()["code"].as_str()),
        (409, Some("shared_prefix"))
    );
    assert!(engine.aborts().is_empty());
    assert_eq!(abort(&world, "{\"rid\":\"request-10\"}").await.status, 200);
    assert_eq!(engine.aborts(), ["{\"rid\":\"request-10\"}"]);
    gate.add_permits(2);
    for client in &mut clients {
        client.answer().await;
    }
    world.finish().await;
}

/// A request that waits for the end of a fence runs nowhere yet, and is not called unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_a_waiting_request_is_told_from_an_unknown_one() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start(&[&engine]).await;
    let fence = |pool: &mut router_core::pool::Pool, now| pool.fence("default", "update", None, now).map(drop);
    world.pool.with(fence).expect("fenced");
    let mut client = Client::connect(&world.plane).await;
    let headers = "x-trimtab-wait: 30\r\n";
    client
        .send(post_with("/generate", headers, "{\"rid\":\"request-1\"}"))
        .await;
    eventually("it waits", || {
        world.pool.with(|pool, _| pool.statistics().control.waiters) == 1
    })
    .await;
    let waits = abort(&world, "{\"rid\":\"request-1\"}").await;
    assert_eq!(
        (waits.status, waits.error()["code"].as_str()),
        (409, Some("request_waiting"))
    );
    assert_eq!(waits.error()["retryable"], true);
    world
        .pool
        .with(|pool, now| pool.unfence("default", "update", None, now).map(drop))
        .expect("open");
    assert_eq!(client.answer().await.status, 200);
    assert!(engine.aborts().is_empty());
    world.finish().await;
}

/// Ending everything needs the admin key, asks every engine, and says what each answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_abort_all_needs_the_admin_key() {
    let engine = Engine::start(|_, _| vec![]).await;
    let urls = [engine.url(), "http://127.0.0.1:9".to_owned()];
    let world = World::over(&urls, |config| config.admin_key = Some("secret".to_owned())).await;
    let body = "{\"abort_all\":true}";
    for (headers, status) in [("", 401), ("authorization: Bearer other\r\n", 403)] {
        let mut client = Client::connect(&world.plane).await;
        let refused = client.ask(post_with("/abort_request", headers, body)).await;
        assert_eq!(refused.status, status);
        assert!(engine.aborts().is_empty());
    }
    let mut client = Client::connect(&world.plane).await;
    let headers = "authorization: Bearer secret\r\n";
    let partly = client.ask(post_with("/abort_request", headers, body)).await;
    assert_eq!(
        (partly.status, partly.error()["code"].as_str()),
        (502, Some("abort_unconfirmed"))
    );
    let engines = &partly.error()["detail"]["engines"];
    let told: Vec<_> = (0..2).map(|index| engines[index]["status"].as_str()).collect();
    assert_eq!(told, [Some("aborted"), Some("unreachable")]);
    assert_eq!(engine.aborts(), [body]);
    world
        .pool
        .with(|pool, now| pool.remove_backend("127.0.0.1:9", now))
        .expect("known");
    let all = client.ask(post_with("/abort_request", headers, body)).await;
    assert_eq!(all.status, 200);
    world.finish().await;
}

/// An engine that does not confirm leaves doubt, and the caller is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_that_no_engine_confirms_is_no_success() {
    let gate = Arc::new(Semaphore::new(0));
    let engine = gated(&gate).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{\"rid\":\"request-1\"}")).await;
    eventually("it runs", || engine.seen().len() == 1).await;
    engine.refuses_aborts();
    let refused = abort(&world, "{\"rid\":\"request-1\"}").await;
    assert_eq!(
        (refused.status, refused.error()["code"].as_str()),
        (502, Some("abort_unconfirmed"))
    );
    assert_eq!(refused.error()["retryable"], true);
    gate.add_permits(1);
    assert_eq!(client.answer().await.status, 200);
    world.finish().await;
}
