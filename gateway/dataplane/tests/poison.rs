//! Requests that kill engines are refused before they kill them all; others are not.

mod support;

use router_core::lease::Outcome;
use router_core::pool::{AcquireRequest, PoolConfig};
use std::time::Duration;
use support::World;
use support::client::{Client, post, post_with};
use support::engine::{Engine, Seen, Step, answer, chunk, stream_head};

/// An engine that dies of a text.
async fn mortal() -> Engine {
    Engine::start(|seen, _| {
        if is_poison(seen) {
            vec![Step::Die]
        } else {
            vec![Step::Send(answer("200 OK", "{\"text\":\"y\"}"))]
        }
    })
    .await
}

fn is_poison(seen: &Seen) -> bool {
    seen.json()["text"] == "poison"
}

/// A client that repeats at once what broke, under a new id and without a session, kills two engines and is refused
/// before the third: nothing is sent there. Everybody else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_third_engine_is_not_killed() {
    let engines = [mortal().await, mortal().await, mortal().await];
    let world = World::start(&[&engines[0], &engines[1], &engines[2]]).await;
    let mut client = Client::connect(&world.plane).await;
    let turn = || post_with("/generate", "x-session-id: innocent\r\n", "{\"text\":\"hello\"}");
    assert_eq!(client.ask(turn()).await.status, 200);
    let poison = |attempt: u32| {
        post(
            "/generate",
            &format!("{{\"rid\":\"try-{attempt}\",\"text\":\"poison\"}}"),
        )
    };
    for attempt in 0..2 {
        let reply = client.ask(poison(attempt)).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (502, Some("upstream_broken"))
        );
    }
    let seen = |engines: &[Engine]| -> usize { engines.iter().map(|engine| engine.seen().len()).sum() };
    let before = seen(&engines);
    for attempt in 2..5 {
        let reply = client.ask(poison(attempt)).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (422, Some("poison_suspected"))
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        let error = reply.error();
        let evidence = &error["detail"]["poison"];
        assert_eq!(evidence["kind"], "request");
        assert_eq!(evidence["deaths"].as_array().map(Vec::len), Some(2));
        assert_eq!(evidence["deaths"][0]["evidence"], "it refuses connections");
    }
    assert_eq!(seen(&engines), before);
    assert_eq!(client.ask(turn()).await.status, 200);
    assert_eq!(client.ask(post("/generate", "{\"text\":\"other\"}")).await.status, 200);
    let statistics = world.pool.with(|pool, _| pool.statistics().poison);
    assert_eq!((statistics.deaths, statistics.refusals, statistics.refused), (2, 3, 1));
    world.finish().await;
}

/// A session is refused as well, whatever it sends after its turns were in flight at two deaths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_recognised() {
    let engines = [mortal().await, mortal().await, mortal().await];
    let world = World::start(&[&engines[0], &engines[1], &engines[2]]).await;
    let mut client = Client::connect(&world.plane).await;
    for attempt in 0..2 {
        let body = format!("{{\"text\":\"poison\",\"n\":{attempt}}}");
        let reply = client.ask(post_with("/generate", "x-session-id: s\r\n", &body)).await;
        assert_eq!(reply.status, 502);
    }
    let harmless = "{\"text\":\"hello\"}";
    let reply = client
        .ask(post_with("/generate", "x-session-id: s\r\n", harmless))
        .await;
    assert_eq!((reply.status, reply.header("x-trimtab-session")), (422, Some("s")));
    assert_eq!(reply.error()["detail"]["poison"]["session"], "s");
    let reply = client
        .ask(post_with("/generate", "x-session-id: t\r\n", harmless))
        .await;
    assert_eq!(reply.status, 200);
    world.finish().await;
}

/// A stream that had begun is half a suspect: it goes on after two deaths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_had_begun_goes_on() {
    let kill = || async {
        Engine::start(|_, _| {
            let begun = [stream_head(), chunk("data: {\"text\":\"y\"}\n\n")].concat();
            vec![Step::Send(begun), Step::Die]
        })
        .await
    };
    let engines = [kill().await, kill().await, mortal().await];
    let world = World::start(&[&engines[0], &engines[1], &engines[2]]).await;
    let mut client = Client::connect(&world.plane).await;
    for _ in 0..2 {
        let reply = client
            .ask(post("/generate", "{\"text\":\"hello\",\"stream\":true}"))
            .await;
        assert!(reply.text().contains("upstream_broken"), "{}", reply.text());
        client = Client::connect(&world.plane).await;
    }
    let reply = client
        .ask(post("/generate", "{\"text\":\"hello\",\"stream\":true}"))
        .await;
    assert_eq!(reply.status, 200);
    world.finish().await;
}

/// An engine that breaks off and lives accuses nobody, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_no_death() {
    let engine = Engine::start(|_, number| match number {
        0..4 => vec![Step::Reset],
        _ => vec![Step::Send(answer("200 OK", "{}"))],
    })
    .await;
    let config = PoolConfig {
        down_after: 100,
        ..PoolConfig::default()
    };
    let world = World::of_pool(config, &[engine.url()], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    let statuses = [502, 502, 502, 502, 200];
    for status in statuses {
        assert_eq!(
            client.ask(post("/generate", "{\"text\":\"hello\"}")).await.status,
            status
        );
    }
    assert_eq!(world.pool.with(|pool, _| pool.statistics().poison.suspects), 0);
    world.finish().await;
}

/// With the guard off nothing is refused, and nothing is remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_can_be_off() {
    let engines = [mortal().await, mortal().await, mortal().await];
    let config = PoolConfig {
        poison_deaths: 0,
        ..PoolConfig::default()
    };
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let world = World::of_pool(config, &urls, |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    for _ in 0..3 {
        assert_eq!(client.ask(post("/generate", "{\"text\":\"poison\"}")).await.status, 502);
    }
    assert_eq!(world.outcome(Outcome::Ambiguous), 3);
    world.finish().await;
}

/// A client of the lease API that talks to the engines itself: its session is looked at before it gets a third lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_clients_are_refused_by_their_session() {
    let engines = [mortal().await, mortal().await, mortal().await];
    let world = World::start(&[&engines[0], &engines[1], &engines[2]]).await;
    let mut client = Client::connect(&world.plane).await;
    let base = "/v1/router/pools/r/m";
    for (path, body) in [
        ("owners", "{\"owner\":\"o\"}"),
        ("senders", "{\"sender\":\"s\",\"owner\":\"o\",\"incarnation\":\"1\"}"),
    ] {
        assert_eq!(client.ask(post(&format!("{base}/{path}"), body)).await.status, 200);
    }
    let acquire = |seq: u32, exclude: &str| {
        let body = format!(
            "{{\"sender\":\"s\",\"incarnation\":\"1\",\"seq\":{seq},\"session\":\"k\",\"exclude\":[{exclude}]}}"
        );
        post(&format!("{base}/leases"), &body)
    };
    let mut broken = String::new();
    for seq in 0..2 {
        let reply = client.ask(acquire(seq, &broken)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let lease: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        broken = lease["backend"].to_string();
        let url = lease["url"].as_str().expect("an engine");
        let mut direct = tokio::net::TcpStream::connect(&url[7..]).await.expect("connected");
        let request = post("/generate", "{\"text\":\"poison\"}");
        tokio::io::AsyncWriteExt::write_all(&mut direct, request.as_bytes())
            .await
            .expect("sent");
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut direct, &mut rest).await;
        let settle = format!("{base}/leases/{}/settle", lease["lease_id"].as_str().expect("an id"));
        assert_eq!(
            client.ask(post(&settle, "{\"outcome\":\"ambiguous\"}")).await.status,
            200
        );
    }
    let reply = client.ask(acquire(2, "")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-error")),
        (422, Some("poison_suspected"))
    );
    let error = reply.error();
    let evidence = &error["detail"]["poison"];
    assert_eq!((&evidence["session"], &evidence["sender"]), (&"k".into(), &"s".into()));
    // A session of nobody has the same key, and is another one.
    let plain = world.pool.acquire(&AcquireRequest::for_session("k")).expect("granted");
    plain.settle(router_core::lease::Settlement::new(Outcome::Completed));
    world.finish().await;
}

/// What broke off while its engine was not known to be dead waits for the news, and no longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_no_death() {
    let silent = || async {
        Engine::start(|_, number| match number {
            0 => vec![Step::Reset],
            _ => vec![Step::Send(answer("200 OK", "{}"))],
        })
        .await
    };
    let engines = [silent().await, silent().await];
    let world = World::start(&[&engines[0], &engines[1]]).await;
    let mut client = Client::connect(&world.plane).await;
    for _ in 0..2 {
        assert_eq!(client.ask(post("/generate", "{\"text\":\"a\"}")).await.status, 502);
    }
    let before = std::time::Instant::now();
    assert_eq!(client.ask(post("/generate", "{\"text\":\"a\"}")).await.status, 200);
    assert!(before.elapsed() < Duration::from_secs(2));
    world.finish().await;
}
