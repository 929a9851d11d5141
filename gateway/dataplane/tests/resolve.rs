//! `on_ambiguous = "resolve"`: an execution with an unknown end stays counted until its engine no longer has it, ends as
//! `lost`, and is never sent again.

mod support;

use dataplane::Config;
use router_core::config::OnAmbiguous;
use router_core::lease::Outcome;
use router_core::pool::PoolConfig;
use std::time::Duration;
use support::client::{Client, post, post_with};
use support::engine::{Engine, Loads, Step, answer, chunk, stream_head};
use support::{World, eventually};

fn resolving() -> PoolConfig {
    PoolConfig {
        on_ambiguous: OnAmbiguous::Resolve,
        ..PoolConfig::default()
    }
}

async fn world(engines: &[&Engine], adjust: impl FnOnce(&mut Config)) -> World {
    let urls: Vec<String> = engines.iter().map(|engine| engine.url()).collect();
    World::of_pool(resolving(), &urls, adjust).await
}

fn unresolved(world: &World) -> usize {
    world.pool.with(|pool, _| pool.unresolved().len())
}

fn eligible(world: &World) -> u32 {
    world.pool.with(|pool, _| pool.census().eligible)
}

/// Waits until the engine was asked for its loads so many times more.
async fn looked_at(engine: &Engine, times: u64) {
    let until = engine.looks() + times;
    eventually("the engine is asked", || engine.looks() >= until).await;
}

/// An engine that resets the connection in the middle of its answer.
async fn breaking() -> Engine {
    let script = |_: &support::engine::Seen, _| {
        let first = Step::Send(chunk("data: 1\n\n"));
        vec![Step::Send(stream_head()), first, Step::Reset]
    };
    Engine::start(script).await
}

/// A connection that is reset in the middle of a generation: nothing is sent again, the engine is told to abort, and
/// the execution stays counted until the engine says twice that it has nothing (B7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_a_reset_is_resolved_and_never_replayed() {
    let (one, two) = (breaking().await, breaking().await);
    one.says(Loads::Running(1));
    two.says(Loads::Running(1));
    let world = world(&[&one, &two], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    let answer = client
        .ask(post("/generate", "{\"rid\":\"job-7-unique\",\"stream\":true}"))
        .await;
    assert!(!answer.complete);
    let (engine, other) = if one.seen().is_empty() {
        (&two, &one)
    } else {
        (&one, &two)
    };
    looked_at(engine, 4).await;
    assert_eq!(
        (unresolved(&world), world.outstanding()),
        (1, 1),
        "the engine has one that no lease accounts for"
    );
    assert!(
        engine.aborts().len() > 1,
        "the abort is repeated: the request may have arrived after it"
    );
    assert!(
        engine
            .aborts()
            .iter()
            .all(|abort| abort == "{\"rid\":\"job-7-unique\"}")
    );
    engine.says(Loads::Running(0));
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    assert_eq!((unresolved(&world), world.outcome(Outcome::Ambiguous)), (0, 0));
    assert_eq!(
        (engine.seen().len(), other.seen().len()),
        (1, 0),
        "one generation, once"
    );
    assert_eq!(other.looks(), 0, "only the engine that had it is asked");
    world.finish().await;
}

/// An engine that runs other things proves the end by going on after the abort, with no more than what is accounted for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_engine_resolves_too() {
    let script = |_: &support::engine::Seen, number| {
        if number == 0 {
            vec![Step::Hold]
        } else {
            vec![Step::Reset]
        }
    };
    let engine = Engine::start(script).await;
    engine.says(Loads::Running(1));
    let world = world(&[&engine], |_| {}).await;
    let mut healthy = Client::connect(&world.plane).await;
    healthy.send(post("/generate", "{}")).await;
    eventually("it runs", || engine.seen().len() == 1).await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 502);
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    assert_eq!(world.outstanding(), 1, "the other one runs on");
    assert_eq!(engine.seen().len(), 2);
    drop(healthy);
    world.finish().await;
}

/// A client that leaves while the engine does not confirm the abort.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_abort_is_resolved() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    engine.refuses_aborts();
    engine.says(Loads::Running(1));
    let world = world(&[&engine], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{}")).await;
    eventually("it runs", || engine.seen().len() == 1).await;
    drop(client);
    eventually("unresolved", || unresolved(&world) == 1).await;
    looked_at(&engine, 4).await;
    assert_eq!(world.outstanding(), 1, "the execution stays counted while it may run");
    engine.says(Loads::Running(0));
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    assert_eq!(engine.seen().len(), 1);
    world.finish().await;
}

/// An id by which nothing can be aborted safely: only the engine's counts tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_id_only_an_idle_engine_proves_the_end() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    engine.says(Loads::Running(1));
    let world = world(&[&engine], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{\"rid\":\"a1\"}")).await;
    eventually("it runs", || engine.seen().len() == 1).await;
    drop(client);
    looked_at(&engine, 4).await;
    assert_eq!((unresolved(&world), engine.aborts().len()), (1, 0));
    engine.says(Loads::Running(0));
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    world.finish().await;
}

/// A paused engine publishes nothing, and nothing follows from its old numbers, not even from zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_engine_proves_nothing() {
    let engine = breaking().await;
    engine.says(Loads::Frozen(0));
    let world = world(&[&engine], |_| {}).await;
    Client::connect(&world.plane).await.ask(post("/generate", "{}")).await;
    looked_at(&engine, 4).await;
    assert_eq!(unresolved(&world), 1);
    engine.says(Loads::Running(0));
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    world.finish().await;
}

/// An engine that dies while it is asked has lost everything it ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_is_resolved() {
    let engine = breaking().await;
    engine.says(Loads::Running(1));
    let world = world(&[&engine], |_| {}).await;
    Client::connect(&world.plane).await.ask(post("/generate", "{}")).await;
    looked_at(&engine, 3).await;
    assert_eq!(unresolved(&world), 1);
    drop(engine);
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    world.finish().await;
}

/// Another incarnation at the same address has none of the executions of the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_incarnation_resolves_the_old_one() {
    let engine = breaking().await;
    engine.says(Loads::Running(1));
    let world = world(&[&engine], |_| {}).await;
    Client::connect(&world.plane).await.ask(post("/generate", "{}")).await;
    looked_at(&engine, 3).await;
    let id = world
        .pool
        .with(|pool, _| pool.backends().next().expect("registered").id.clone());
    world
        .pool
        .with(|pool, now| pool.remove_backend(&id, now))
        .expect("known");
    looked_at(&engine, 3).await;
    assert_eq!(unresolved(&world), 1, "removed is not restarted");
    let spec = router_core::membership::BackendSpec::parse(&engine.url(), 1.0).expect("a URL");
    world.pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    world.finish().await;
}

/// An engine that cannot account for an execution gets nothing more, the pool goes on without it, and takes it back
/// when it has accounted for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_cannot_tell_is_held_back() {
    let bad = Engine::start(|_, number| {
        if number == 0 {
            vec![Step::Reset]
        } else {
            vec![Step::Send(answer("200 OK", "{}"))]
        }
    })
    .await;
    let good = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = world(&[&bad, &good], |config| {
        config.timeouts.resolve = Duration::from_millis(200);
    })
    .await;
    let ask = async |headers: &str| {
        Client::connect(&world.plane)
            .await
            .ask(post_with("/generate", headers, "{}"))
            .await
    };
    assert_eq!(ask("x-session-id: s\r\n").await.status, 502);
    eventually("held back", || eligible(&world) == 1).await;
    for _ in 0..4 {
        let answer = ask("x-session-id: s\r\n").await;
        assert_eq!((answer.status, !good.seen().is_empty()), (200, true));
    }
    assert_eq!((bad.seen().len(), unresolved(&world)), (1, 1));
    bad.says(Loads::Running(0));
    eventually("lost", || world.outcome(Outcome::Lost) == 1).await;
    assert_eq!(eligible(&world), 2);
    let events = world.pool.with(|pool, _| pool.take_events().0);
    let told = |what: &str| events.iter().any(|event| event.kind.to_string().contains(what));
    assert!(told("gets nothing more until") && told("serves again"));
    world.finish().await;
}
