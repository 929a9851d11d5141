//! Engines that fail, at every point of a response, and the client's ways to tell (B7, B48).

mod support;

use router_core::lease::Outcome;
use router_core::pool::PoolConfig;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer, chunk, stream_head};
use support::{World, eventually};

/// The URL of a port on which nobody listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    format!("http://{}", listener.local_addr().expect("bound"))
}

/// A refused connection moves the request to another engine, and the session with it; exactly one generation runs (B7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_refused_before_a_byte_is_tried_elsewhere() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::over(&[nobody(), engine.url()], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    for count in 1..=4 {
        let reply = client.ask(post_with("/generate", "x-session-id: s\r\n", "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-backend")),
            (200, Some(&engine.url()[7..]))
        );
        assert_eq!(engine.seen().len(), count);
    }
    world.finish().await;
}

/// Nobody reachable: 503 after trying each once, retryable, nothing executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_engine_reachable() {
    let world = World::over(&[nobody(), nobody()], |_| {}).await;
    let mut client = Client::connect(&world.plane).await;
    let reply = client.ask(post("/generate", "{}")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-error")),
        (503, Some("backend_unreachable"))
    );
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.error()["retryable"], true);
    assert_eq!(
        (world.outcome(Outcome::NotSent), world.plane.statistics().retries_total),
        (2, 1)
    );
    world.finish().await;
}

/// An engine that breaks after it has the request: 502 that says "maybe executed", no replay, an abort by id (B7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b7_broken_after_bytes_is_never_replayed() {
    for step in [Step::Reset, Step::Fin] {
        let broken = Engine::start(move |_, _| vec![step.clone()]).await;
        let spare = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
        let world = World::start(&[&broken, &spare]).await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/v1/completions", "{\"rid\":\"job-1\"}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (502, Some("upstream_broken"))
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert_eq!(reply.header("x-trimtab-backend"), Some(&broken.url()[7..]));
        let error = reply.error();
        assert_eq!(
            (&error["retryable"], &error["detail"]["maybe_executed"]),
            (&false.into(), &true.into())
        );
        assert_eq!(
            (&error["type"], &error["param"]),
            (&"server_error".into(), &serde_json::Value::Null)
        );
        assert_eq!((broken.seen().len(), spare.seen().len()), (1, 0));
        eventually("the abort", || broken.aborts() == ["{\"rid\":\"job-1\"}"]).await;
        assert_eq!(world.outcome(Outcome::Ambiguous), 1);
        world.finish().await;
    }
}

/// A pooled connection that the engine closed while it was idle costs nothing: a fresh one is used, on the same lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_pooled_connection_is_replaced() {
    let engine = Engine::start(|_, number| {
        let mut steps = vec![Step::Send(answer("200 OK", "{}"))];
        if number % 2 == 0 {
            steps.push(if number % 4 == 0 { Step::Fin } else { Step::Reset });
        }
        steps
    })
    .await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    for _ in 0..40 {
        assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
        // The race itself (closed after our check, before our write) is for the engine to win; here it has closed.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.outcome(Outcome::Completed), 40);
    world.finish().await;
}

/// A pooled connection older than the keep-alive is not used, and is closed by housekeeping.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_connections_are_closed() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start_with(&[&engine], |config| {
        config.timeouts.engine_keepalive = Duration::from_millis(40);
    })
    .await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    eventually("closed", || world.plane.statistics().upstream_connections == 0).await;
    assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
    let seen = engine.seen();
    assert_ne!(seen[0].connection, seen[1].connection);
    world.finish().await;
}

/// An engine that refuses a large body early and closes: its answer reaches the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_answer_is_relayed() {
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(16 << 20));
    for last in [Step::Fin, Step::Hold] {
        let engine = Engine::start_reading(Some(1000), move |_, _| {
            vec![
                Step::Send(answer("413 Payload Too Large", "{\"error\":\"too long\"}")),
                last.clone(),
            ]
        })
        .await;
        let world = World::start(&[&engine]).await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/generate", &body)).await;
        assert_eq!((reply.status, reply.text()), (413, "{\"error\":\"too long\"}"));
        assert_eq!(world.outcome(Outcome::Rejected), 1);
        world.finish().await;
    }
}

/// A stream that breaks (end without terminator, reset, cut inside an event) tells the client by an error event, an
/// unclean end and no `[DONE]`; the execution is aborted, ambiguous, and not counted any more (B48).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b48_a_broken_stream_is_recognisable() {
    let closing = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let event = "data: {\"text\":\"a\"}\n\n";
    let scripts: Vec<(Vec<Step>, &str)> = vec![
        (vec![Step::Send(stream_head()), Step::Send(chunk(event)), Step::Fin], ""),
        (
            vec![
                Step::Send(stream_head()),
                Step::Send(chunk(event)),
                Step::Send(chunk("data: {\"te")),
                Step::Fin,
            ],
            "\n\n",
        ),
        (
            vec![
                Step::Send(stream_head()),
                Step::Send(chunk(event)),
                Step::Send(b"40\r\ndata: {\"half".to_vec()),
                Step::Fin,
            ],
            "\n\n",
        ),
        (vec![Step::Send(closing), Step::Send(event.into()), Step::Fin], ""),
    ];
    for (path, openai) in [("/generate", false), ("/v1/chat/completions", true)] {
        for (script, separator) in scripts.clone() {
            let engine = Engine::start(move |_, _| script.clone()).await;
            let world = World::start(&[&engine]).await;
            let mut client = Client::connect(&world.plane).await;
            let reply = client.ask(post(path, "{\"stream\":true}")).await;
            assert_eq!((reply.status, reply.complete), (200, false));
            let text = reply.text();
            assert!(text.starts_with(event) && !text.contains("[DONE]"), "{text}");
            let (before, error) = text.rsplit_once("data: ").expect("an error event");
            assert!(before.ends_with("\n\n") && before.ends_with(separator), "{text}");
            let error: serde_json::Value = serde_json::from_str(error.trim_end()).expect("JSON");
            assert_eq!(error["error"]["code"], "upstream_broken");
            assert_eq!(error["error"].get("type").is_some(), openai);
            assert!(client.is_closed().await);
            eventually("the abort", || engine.aborts().len() == 1).await;
            assert_eq!(world.outcome(Outcome::Ambiguous), 1);
            assert_eq!(world.plane.statistics().broken_streams_total, 1);
            world.finish().await;
        }
    }
}

/// A reset cuts the stream as recognisably (its last bytes may be lost in the engine's kernel), and a body that stops
/// short of its length is cut short (B48).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b48_resets_and_short_bodies() {
    let short = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"text\":\"half".to_vec();
    for (script, status) in [
        (
            vec![Step::Send(stream_head()), Step::Send(chunk("data: 1\n\n")), Step::Reset],
            200,
        ),
        (vec![Step::Send(short.clone()), Step::Fin], 200),
        (vec![Step::Send(short), Step::Reset], 200),
    ] {
        let engine = Engine::start(move |_, _| script.clone()).await;
        let world = World::start(&[&engine]).await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/generate", "{}")).await;
        assert!(
            reply.status == 502 || (reply.status == status && !reply.complete),
            "{reply:?}"
        );
        assert_eq!(world.outcome(Outcome::Ambiguous), 1);
        world.finish().await;
    }
}

/// Streams that end by closing are complete when their last event says so, and other bodies when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_end_by_closing() {
    for (head, body) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
            "data: 1\n\ndata: [DONE]\n\n",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n",
            "{\"text\":\"x\"}",
        ),
    ] {
        let engine = Engine::start(move |_, _| vec![Step::Send([head, body].concat().into_bytes()), Step::Fin]).await;
        let world = World::start(&[&engine]).await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/generate", "{}")).await;
        assert_eq!((reply.complete, reply.text()), (true, body));
        assert_eq!(world.outcome(Outcome::Completed), 1);
        world.finish().await;
    }
}

/// Each time limit has its own code; after bytes were written the answer says "maybe executed" and the id is aborted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_limits() {
    let limit = Some(Duration::from_millis(120));
    for (code, headers_first) in [
        ("first_byte_timeout", false),
        ("total_timeout", false),
        ("idle_timeout", true),
        ("total_timeout", true),
    ] {
        let engine = Engine::start(move |_, _| {
            if headers_first {
                vec![Step::Send(stream_head()), Step::Send(chunk("data: 1\n\n")), Step::Hold]
            } else {
                vec![Step::Hold]
            }
        })
        .await;
        let world = World::start_with(&[&engine], |config| match code {
            "first_byte_timeout" => config.timeouts.first_byte = limit,
            "idle_timeout" => config.timeouts.idle = limit,
            _ => config.timeouts.total = limit,
        })
        .await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/generate", "{}")).await;
        if headers_first {
            assert!(
                !reply.complete && reply.text().contains(&format!("\"code\":\"{code}\"")),
                "{reply:?}"
            );
        } else {
            assert_eq!((reply.status, reply.header("x-trimtab-error")), (504, Some(code)));
            assert_eq!(reply.error()["detail"]["maybe_executed"], true);
        }
        eventually("the engine saw the end", || engine.closed() == 1).await;
        eventually("the abort", || engine.aborts().len() == 1).await;
        assert_eq!(world.outcome(Outcome::Ambiguous), 1);
        world.finish().await;
    }
}

/// "All busy" is 429 and says when to come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_capacity() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let config = PoolConfig {
        max_outstanding: Some(1),
        ..PoolConfig::default()
    };
    let pool = dataplane::SharedPool::new("limited", config);
    let spec = router_core::membership::BackendSpec::parse(&engine.url(), 1.0).expect("a URL");
    pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    let world = World::start_with(&[&engine], |config| {
        config.roles[0].models.push(("limited".to_owned(), pool.clone()));
    })
    .await;
    let mut first = Client::connect(&world.plane).await;
    first.send(post("/generate", "{\"model\":\"limited\"}")).await;
    eventually("running", || engine.seen().len() == 1).await;
    let mut second = Client::connect(&world.plane).await;
    let reply = second.ask(post("/generate", "{\"model\":\"limited\"}")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    let reply = second.ask(post("/generate", "{}")).await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-error")),
        (400, Some("model_required"))
    );
    drop(first);
    eventually("settled", || pool.with(|pool, _| pool.statistics().leases) == 0).await;
    world.finish().await;
}

/// The engine is asked once per request even when clients hurry: leases and generations are equal in number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_generation_per_request() {
    static ANSWERED: AtomicUsize = AtomicUsize::new(0);
    let script = |_: &support::engine::Seen, _| {
        ANSWERED.fetch_add(1, Relaxed);
        vec![Step::Send(answer("200 OK", "{}"))]
    };
    let (one, two) = (Engine::start(script).await, Engine::start(script).await);
    let world = World::start(&[&one, &two]).await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(&world.plane).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                assert_eq!(client.ask(post("/generate", "{}")).await.status, 200);
            }
        }));
    }
    for task in tasks {
        task.await.expect("no error");
    }
    assert_eq!((ANSWERED.load(Relaxed), world.outcome(Outcome::Completed)), (500, 500));
    world.finish().await;
}

/// What is not HTTP, or too much of it, is a broken engine and not a hanging or dying gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_speak_no_http() {
    let many = "x: y\r\n".repeat(50_000);
    for bytes in [
        "SSH-2.0-OpenSSH_9\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1 << 20)),
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
    ] {
        let engine = Engine::start(move |_, _| vec![Step::Send(bytes.clone().into_bytes()), Step::Hold]).await;
        let world = World::start(&[&engine]).await;
        let mut client = Client::connect(&world.plane).await;
        let reply = client.ask(post("/generate", "{}")).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (502, Some("upstream_broken")),
            "{reply:?}"
        );
        assert_eq!(world.outcome(Outcome::Ambiguous), 1);
        world.finish().await;
    }
}

/// Clients that send too many header bytes, or no HTTP, are refused without an engine being asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_speak_no_http() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start(&[&engine]).await;
    let large = post_with("/generate", &format!("x: {}\r\n", "y".repeat(100_000)), "{}");
    assert_eq!(Client::connect(&world.plane).await.ask(large).await.status, 200);
    for (request, status) in [
        (
            post_with("/generate", &format!("x: {}\r\n", "y".repeat(1 << 20)), "{}"),
            431,
        ),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), 400),
        (
            "POST /generate HTTP/1.1\r\nhost: g\r\ncontent-length: x\r\n\r\n".to_owned(),
            400,
        ),
    ] {
        let mut client = Client::connect(&world.plane).await;
        let _ = client.try_send(request.as_bytes()).await;
        assert_eq!(client.answer().await.status, status);
    }
    assert_eq!(engine.seen().len(), 1);
    world.finish().await;
}
