//! Requests that meet a fence, an update or an empty pool: refused at once, or parked for as long as they can wait.

mod support;

use dataplane::RequestPhase;
use router_core::lease::Outcome;
use router_core::membership::BackendSpec;
use router_core::update::{BeginUpdate, UpdateKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer};
use support::{DEADLINE, World, eventually};

const OWNER: &str = "default";

async fn engine() -> Engine {
    Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await
}

fn parked(world: &World) -> usize {
    world.pool.with(|pool, _| pool.statistics().control.waiters) as usize
}

fn fence(world: &World) {
    world
        .pool
        .with(|pool, now| pool.fence(OWNER, "test", None, now))
        .expect("fenced");
}

fn unfence(world: &World) {
    world
        .pool
        .with(|pool, now| pool.unfence(OWNER, "test", None, now))
        .expect("unfenced");
}

fn begin(id: &str, to_version: Option<u64>) -> BeginUpdate<'_> {
    BeginUpdate {
        id,
        kind: UpdateKind::Weights,
        to_version,
    }
}

/// A request without `x-trimtab-wait` is refused at once, with the reason and when to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_header_nothing_waits() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    fence(&world);
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!((reply.status, reply.header("x-trimtab-error")), (503, Some("fenced")));
    assert_eq!(
        (reply.header("retry-after"), reply.header("x-should-retry")),
        (Some("1"), None)
    );
    assert_eq!(reply.error()["retryable"], true);
    unfence(&world);

    world
        .pool
        .with(|pool, now| pool.begin_update(&begin("u", None), now))
        .expect("begun");
    let reply = client.ask(post("/v1/completions", "{}")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-error")),
        (503, Some("not_serving"))
    );
    assert_eq!(reply.error()["type"], "server_error");
    world
        .pool
        .with(|pool, now| pool.cancel_update("u", now))
        .expect("cancelled");
    assert!(engine.seen().is_empty());
    world.finish().await;
}

/// A pool that failed says so, and that coming back is of no use, whether one would wait or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_pool_keeps_nobody() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    world.pool.with(|pool, now| pool.fail("a test", now));
    for headers in ["", "x-trimtab-wait: 60\r\n"] {
        let reply = client.ask(post_with("/generate", headers, "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (503, Some("pool_failed"))
        );
        assert_eq!(
            (reply.header("retry-after"), reply.header("x-should-retry")),
            (None, Some("false"))
        );
    }
    world.finish().await;
}

/// Every reason to wait is the code of the 425 at the end of the wait; no engine sees such a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_wait_names_its_reason() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let mut expect = async |wait: &str, code: &str| {
        let since = Instant::now();
        let headers = format!("x-trimtab-wait: {wait}\r\n");
        let reply = client.ask(post_with("/generate", &headers, "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (425, Some(code)),
            "{wait}"
        );
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert!(since.elapsed().as_secs_f64() >= wait.parse().expect("a number"));
    };
    fence(&world);
    expect("0.05", "fenced").await;
    expect("0", "fenced").await;
    unfence(&world);
    world
        .pool
        .with(|pool, now| pool.begin_update(&begin("u", None), now))
        .expect("begun");
    expect("0.02", "not_serving").await;
    world
        .pool
        .with(|pool, now| pool.cancel_update("u", now))
        .expect("cancelled");
    world
        .pool
        .with(|pool, now| pool.end_server_pause("u", now))
        .expect("resumed");
    let id = world
        .pool
        .with(|pool, _| pool.backends().next().map(|backend| backend.id.clone()));
    let id = id.expect("one backend");
    world
        .pool
        .with(|pool, now| pool.remove_backend(&id, now))
        .expect("removed");
    expect("0.02", "no_eligible_backend").await;
    assert_eq!(parked(&world), 0);
    assert!(engine.seen().is_empty());
    world.finish().await;
}

/// What is no time to wait, or no version, is refused before anything else happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terms_that_cannot_be_read() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    for (header, code) in [
        ("x-trimtab-wait: soon\r\n", "invalid_wait"),
        ("x-trimtab-wait: -1\r\n", "invalid_wait"),
        ("x-trimtab-wait: nan\r\n", "invalid_wait"),
        ("x-trimtab-weight-version: default\r\n", "invalid_weight_version"),
    ] {
        // Refused by its head, so that the connection ends with the answer.
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post_with("/generate", header, "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (400, Some(code)),
            "{header}"
        );
    }
    assert!(engine.seen().is_empty());
    world.finish().await;
}

/// Parked requests are answered as soon as the fence is lifted, and run once each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lifted_fence_answers_at_once() {
    let engine = engine().await;
    let world = Arc::new(World::start(&[&engine]).await);
    fence(&world);
    let mut waiting = Vec::new();
    for number in 0..8 {
        let mut client = Client::connect(&world.plane).await;
        let headers = format!("x-trimtab-wait: 600\r\nx-trimtab-session: s{number}\r\n");
        client.send(post_with("/generate", &headers, "{}")).await;
        waiting.push(client);
    }
    eventually("all are parked", || parked(&world) == 8).await;
    assert!(engine.seen().is_empty());
    unfence(&world);
    for (number, client) in waiting.iter_mut().enumerate() {
        let reply = client.answer().await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-trimtab-session"), Some(format!("s{number}").as_str()));
        assert!(reply.header("x-trimtab-lease").is_some());
    }
    assert_eq!((engine.seen().len(), parked(&world)), (8, 0));
    drop(waiting);
    Arc::into_inner(world).expect("the last holder").finish().await;
}

/// A request waits through a whole weight update and runs on the new weights, which its answer names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_through_an_update() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    world
        .pool
        .with(|pool, now| pool.publish("first", 7, None, now))
        .expect("published");
    let mut client = Client::connect(&world.plane).await;
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-weight-version")),
        (200, Some("7"))
    );

    world
        .pool
        .with(|pool, now| pool.begin_update(&begin("u8", Some(8)), now))
        .expect("begun");
    client
        .send(post_with("/generate", "x-trimtab-wait: 600\r\n", "{}"))
        .await;
    eventually("it is parked", || parked(&world) == 1).await;
    world
        .pool
        .with(|pool, now| pool.drain("u8", now.after(DEADLINE), now))
        .expect("drained");
    world
        .pool
        .with(|pool, now| pool.end_server_pause("u8", now))
        .expect("resumed");
    world
        .pool
        .with(|pool, now| pool.publish("u8", 8, None, now))
        .expect("published");
    let reply = client.answer().await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-weight-version")),
        (200, Some("8"))
    );
    world.finish().await;
}

/// A request can ask for a version: another published one is too early (and, when it is over, for good).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_versions() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let pinned = |version: u64| post_with("/generate", &format!("x-trimtab-weight-version: {version}\r\n"), "{}");
    assert_eq!(client.ask(pinned(0)).await.status, 425);
    world
        .pool
        .with(|pool, now| pool.publish("first", 7, None, now))
        .expect("published");
    for (version, should_retry) in [(6, Some("false")), (8, None)] {
        let reply = client.ask(pinned(version)).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (425, Some("version_mismatch"))
        );
        assert_eq!(reply.header("x-should-retry"), should_retry);
        let detail = &reply.error()["detail"];
        assert_eq!(
            (&detail["expected"], &detail["published"]),
            (&version.into(), &7.into())
        );
    }
    let reply = client.ask(pinned(7)).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-weight-version")),
        (200, Some("7"))
    );
    assert_eq!(engine.seen()[0].header("x-trimtab-weight-version"), None);
    world.finish().await;
}

/// A client that leaves while it is parked leaves the queue, whatever it waits for, and nothing runs for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_while_parked() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    fence(&world);
    for reset in [false, true] {
        let mut client = Client::connect(&world.plane).await;
        client
            .send(post_with("/generate", "x-trimtab-wait: 600\r\n", "{}"))
            .await;
        eventually("it is parked", || parked(&world) == 1).await;
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        eventually("it has left the queue", || parked(&world) == 0).await;
    }
    unfence(&world);
    assert_eq!(world.pool.with(|pool, _| pool.statistics().picks.total()), 0);
    assert!(engine.seen().is_empty());
    world.finish().await;
}

/// A wait is no longer than the whole request may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_timeout_ends_a_wait() {
    let engine = engine().await;
    let world = World::start_with(&[&engine], |config| {
        config.timeouts.total = Some(Duration::from_millis(100));
    })
    .await;
    fence(&world);
    let mut client = Client::connect(&world.plane).await;
    let reply = client
        .ask(post_with("/generate", "x-trimtab-wait: 600\r\n", "{}"))
        .await;
    assert_eq!((reply.status, reply.header("x-trimtab-error")), (425, Some("fenced")));
    world.finish().await;
}

/// A pool without engines is waited for like a fence: the first engine answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_pool_is_waited_for() {
    let world = World::over(&[], |_| {}).await;
    let engine = engine().await;
    let mut client = Client::connect(&world.plane).await;
    client
        .send(post_with("/generate", "x-trimtab-wait: 600\r\n", "{}"))
        .await;
    eventually("it is parked", || parked(&world) == 1).await;
    let spec = BackendSpec::parse(&engine.url(), 1.0).expect("a URL");
    world.pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(world.outcome(Outcome::Completed), 1);
    world.finish().await;
}

/// A data plane that shuts down answers those who wait, instead of keeping them for its grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_waits() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    fence(&world);
    let mut client = Client::connect(&world.plane).await;
    client
        .send(post_with("/generate", "x-trimtab-wait: 600\r\n", "{}"))
        .await;
    eventually("it is parked", || parked(&world) == 1).await;
    let plane = world.plane;
    let ending = tokio::task::spawn_blocking(move || plane.shutdown(DEADLINE));
    let reply = client.answer().await;
    assert_eq!((reply.status, reply.header("x-trimtab-error")), (425, Some("fenced")));
    ending.await.expect("shut down");
    assert_eq!(world.pool.with(|pool, _| pool.statistics().control.waiters), 0);
}

/// A request counts in each phase, in the clock of its pool: the wait for its lease, the engine's head, and the whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_phases_of_a_request_are_timed() {
    let engine = engine().await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    fence(&world);
    let refused = client
        .ask(post_with("/generate", "x-trimtab-wait: 0.01\r\n", "{}"))
        .await;
    assert_eq!(refused.status, 425);
    let phases = |pool: &dataplane::SharedPool| RequestPhase::ALL.map(|phase| pool.request_seconds(phase));
    assert_eq!(
        phases(&world.pool).map(|histogram| histogram.count()),
        [1, 0, 0],
        "it waited, and reached no engine"
    );
    unfence(&world);
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    let pool = Arc::clone(&world.pool);
    eventually("the lease ends", || {
        pool.with(|pool, _| pool.statistics().outstanding == 0)
    })
    .await;
    let [queue, first_byte, total] = phases(&world.pool);
    assert_eq!([queue.count(), first_byte.count(), total.count()], [2, 1, 1]);
    assert!(queue.sum() >= Duration::from_millis(10));
    assert!(total.sum() >= first_byte.sum() && first_byte.sum() > Duration::ZERO);
    let durations = pool.with(|pool, _| pool.statistics().durations);
    assert_eq!(durations.lease(Outcome::Completed).count(), 1);
}
