//! What goes through: bytes, headers, framing, order.

mod support;

use router_core::lease::Outcome;
use std::sync::Arc;
use support::World;
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer, chunk, stream_head};
use tokio::sync::Semaphore;

/// The engine gets the client's bytes plus one id, the client the engine's bytes plus our labels; the connections to
/// both are kept (B16).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_a_generate_request_goes_through_untouched() {
    let engine =
        Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{\"text\":\"é\",\"completion_tokens\":3}"))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let body = "{ \"text\":\"x\", \"big\":12345678901234567890, \"e\":1e-7,\"unknown\":[NaN] }";
    for path in ["/generate?a=b%20c", "/r/generate?a=b%20c"] {
        let headers = "x-trimtab-session: s1\r\nauthorization: Bearer k\r\nconnection: x-hop\r\nx-hop: 1\r\n";
        let reply = client.ask(post_with(path, headers, body)).await;
        assert_eq!((reply.status, reply.complete), (200, true));
        assert_eq!(reply.text(), "{\"text\":\"é\",\"completion_tokens\":3}");
        assert_eq!(reply.header("x-trimtab-session"), Some("s1"));
        assert_eq!(reply.header("x-trimtab-backend"), Some(&engine.url()[7..]));
        assert_eq!(reply.header("x-trimtab-lease").map(str::len), Some(16));
    }
    let seen = engine.seen();
    assert_eq!((seen.len(), seen[0].connection), (2, seen[1].connection));
    for request in seen {
        assert!(
            request.head.starts_with("POST /generate?a=b%20c HTTP/1.1\r\n"),
            "{}",
            request.head
        );
        assert_eq!(request.header("host"), Some(&engine.url()[7..]));
        assert_eq!(request.header("authorization"), Some("Bearer k"));
        assert!(request.header("x-hop").is_none() && request.header("x-trimtab-session").is_none());
        let sent = String::from_utf8(request.body).expect("UTF-8");
        let (id, rest) = sent
            .strip_prefix("{\"rid\":\"")
            .and_then(|sent| sent.split_once("\","))
            .expect("our id");
        assert_eq!((id.len(), rest), (32, &body[1..]));
    }
    assert_eq!(world.outcome(Outcome::Completed), 2);
    assert_eq!(world.pool.with(|pool, _| pool.statistics().output_tokens), 6);
    world.finish().await;
}

/// A client's id stays, `null` becomes ours; OpenAI paths reach the engine under its own paths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_paths() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    for (path, body) in [
        ("/chat/completions", r#"{"rid":"mine-1","model":"m"}"#),
        ("/r/v1/chat/completions", r#"{"rid":null,"a":1}"#),
        ("/v1/completions", "{}"),
    ] {
        assert_eq!(client.ask(post(path, body)).await.status, 200);
    }
    let seen = engine.seen();
    let line = |index: usize| seen[index].head.lines().next().unwrap_or_default().to_owned();
    assert_eq!(line(0), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(line(1), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(line(2), "POST /v1/completions HTTP/1.1");
    assert_eq!(seen[0].body, br#"{"rid":"mine-1","model":"m"}"#);
    for request in &seen[1..] {
        assert_eq!(request.json()["rid"].as_str().map(str::len), Some(32));
    }
    world.finish().await;
}

/// Headers arrive before the first event and every event as it is sent; a stream keeps the connection usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_as_they_are_sent() {
    let gate = Arc::new(Semaphore::new(0));
    let script = Arc::clone(&gate);
    let engine = Engine::start(move |_, _| {
        let wait = || Step::Wait(Arc::clone(&script));
        vec![
            Step::Send(stream_head()),
            wait(),
            Step::Send(chunk("data: {\"n\":1}\n\n")),
            wait(),
            Step::Send(chunk("data: {\"completion_tokens\":7}\n\ndata: [DONE]\n\n")),
            Step::Send(chunk("")),
        ]
    })
    .await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    for _ in 0..2 {
        client.send(post("/generate", "{\"stream\":true}")).await;
        let head = client.read_until("\r\n\r\n").await;
        assert!(
            head.contains("x-accel-buffering: no\r\n") && !head.contains("data:"),
            "{head}"
        );
        gate.add_permits(1);
        client.read_until("{\"n\":1}\n\n").await;
        gate.add_permits(1);
        let reply = client.answer().await;
        assert!(reply.complete && reply.text().ends_with("data: [DONE]\n\n"));
    }
    let seen = engine.seen();
    assert_eq!(seen[0].connection, seen[1].connection);
    assert_eq!(world.pool.with(|pool, _| pool.statistics().output_tokens), 14);
    world.finish().await;
}

/// Interim responses are not the answer; an empty answer, a reset content and an error come through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_answer() {
    let engine = Engine::start(|_, number| {
        let bytes = match number {
            0 => [
                b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec(),
                answer("200 OK", "{}"),
            ]
            .concat(),
            1 => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            2 => b"HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n".to_vec(),
            3 => answer("400 Bad Request", "{\"error\":\"foo\"}"),
            4 => answer("500 Internal Server Error", "boom"),
            5 => answer("307 Temporary Redirect", ""),
            _ => answer("200 OK", "{\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}"),
        };
        vec![Step::Send(bytes)]
    })
    .await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    for (status, body) in [
        (200, "{}"),
        (204, ""),
        (304, ""),
        (400, "{\"error\":\"foo\"}"),
        (500, "boom"),
        (307, ""),
    ] {
        client.send(post("/generate", "{}")).await;
        let reply = if body.is_empty() && status != 307 {
            let head = client.read_until("\r\n\r\n").await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            client = Client::connect(&world.plane).await;
            continue;
        } else {
            client.answer().await
        };
        assert_eq!((reply.status, reply.text()), (status, body));
        assert!(reply.header("x-trimtab-error").is_none());
    }
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    let outcomes = [Outcome::Completed, Outcome::Rejected, Outcome::Failed, Outcome::Aborted].map(|o| world.outcome(o));
    assert_eq!(outcomes, [2, 3, 1, 1]);
    world.finish().await;
}

/// Chunked bodies, `Expect: 100-continue`, `Connection: close`, HTTP/1.0 and pipelining work as HTTP says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_client() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let chunked =
        "POST /generate HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{\"\r\n5\r\na\":1}\r\n0\r\n\r\n";
    assert_eq!(client.ask(chunked).await.status, 200);
    assert_eq!(engine.seen()[0].json()["a"], 1);

    client
        .send("POST /generate HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 100);
    assert_eq!(client.ask("{}").await.status, 200);
    assert!(engine.seen()[1].header("expect").is_none());

    let two = post("/generate", "{\"n\":1}") + &post("/generate", "{\"n\":2}");
    assert_eq!(client.ask(two).await.status, 200);
    assert_eq!(client.answer().await.status, 200);

    let last = client.ask(post_with("/generate", "connection: close\r\n", "{}")).await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(client.is_closed().await);

    let mut old = Client::connect(&world.plane).await;
    let reply = old.ask("POST /generate HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!((reply.status, reply.text()), (200, "{}"));
    world.finish().await;
}

/// A slow client slows its engine down: what is buffered on the way is bounded, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn back_pressure_reaches_the_engine() {
    let engine = Engine::start(|_, _| vec![Step::Send(stream_head()), Step::Flood(chunk(&"x".repeat(65_000)))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{}")).await;
    client.read_until("\r\n\r\n").await;
    // The engine is stuck when its count has not moved for a while; kernel buffers alone are a few megabytes.
    let mut before = usize::MAX;
    while before != engine.flooded() {
        before = engine.flooded();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(
        before < 24 << 20,
        "{before} bytes were taken from the engine for a client that reads nothing"
    );
    // B8: a client that leaves while we are blocked on it.
    drop(client);
    support::eventually("the engine saw the end", || engine.closed() >= 1).await;
    support::eventually("the execution was aborted", || engine.aborts().len() == 1).await;
    support::eventually("settled", || world.outcome(Outcome::Cancelled) == 1).await;
    world.finish().await;
}
