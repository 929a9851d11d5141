//! Requests that are refused, and requests that are not for an engine.

mod support;

use router_core::pool::PoolConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer};
use support::{World, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Bad input is answered with its code before any engine is asked, and the connection stays usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start(&[&engine]).await;
    let mut client = Client::connect(&world.plane).await;
    let long = format!("x-session-id: {}\r\n", "s".repeat(257));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: g\r\n\r\n");
    for (request, status, code) in [
        (post("/generate", "{\"a\":}"), 400, "invalid_json"),
        (post("/generate", "[1]"), 400, "invalid_json"),
        (post("/generate", "{\"a\":1"), 400, "invalid_json"),
        (post("/generate", ""), 400, "missing_body"),
        (post("/generate", "{\"model\":\"other\"}"), 400, "unknown_model"),
        (post("/generate", "{\"model\":\"\"}"), 400, "invalid_model"),
        (post("/generate", "{\"model\":null}"), 400, "invalid_model"),
        (post_with("/generate", &long, "{}"), 400, "invalid_session"),
        (
            post_with("/generate", "x-trimtab-session: \r\n", "{}"),
            400,
            "invalid_session",
        ),
        (post("/other/generate", "{}"), 404, "unknown_role"),
        (post("/generate/more", "{}"), 404, "not_found"),
        (get("/generate"), 405, "method_not_allowed"),
        (get("/r/v1/completions"), 405, "method_not_allowed"),
        (post("/live", "{}"), 405, "method_not_allowed"),
    ] {
        let reply = client.ask(request.clone()).await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (status, Some(code)),
            "{request}"
        );
        assert_eq!(reply.error()["code"], code);
        assert!(!reply.error()["message"].as_str().unwrap_or_default().is_empty());
        if reply.header("connection") == Some("close") {
            // Refused by its head, before its body was read.
            client = Client::connect(&world.plane).await;
        }
    }
    let reply = client.ask(post("/generate", "{\"a\":}")).await;
    assert_eq!(reply.error()["detail"]["offset"], 5);
    let reply = client.ask(post("/generate", "{\"model\":\"other\"}")).await;
    assert!(reply.text().contains("known: m"), "{}", reply.text());
    assert_eq!(client.ask(get("/generate")).await.header("allow"), Some("POST"));
    assert_eq!(client.ask(post("/generate", "{\"model\":\"m\"}")).await.status, 200);
    assert_eq!(engine.seen().len(), 1);
    assert_eq!(world.pool.with(|pool, _| pool.statistics().picks.total()), 1);
    world.finish().await;
}

/// A body over the limit is refused from its announced length, or as soon as it grows too long; the client gets the
/// answer although it is still sending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_the_limit() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start_with(&[&engine], |config| config.limits.max_body_bytes = 1000).await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(
        client
            .ask(post("/generate", &format!("{{\"a\":\"{}\"}}", "x".repeat(992))))
            .await
            .status,
        200
    );

    let large = post("/generate", &format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 20)));
    let chunks = format!("10000\r\n{{\"a\":\"{}\r\n", "x".repeat(0x10000 - 6)).repeat(64);
    let chunked = format!("POST /generate HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    for request in [large, chunked] {
        let mut client = Client::connect(&world.plane).await;
        // The rest of the body may find the connection closed; the answer must be readable all the same.
        let _ = client.try_send(request.as_bytes()).await;
        let reply = client.answer().await;
        assert_eq!(
            (reply.status, reply.header("x-trimtab-error")),
            (413, Some("body_too_large"))
        );
        assert_eq!(reply.error()["detail"]["max_body_bytes"], 1000);
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.is_closed().await);
    }
    // Without `100-continue` from us, the client does not even begin.
    let mut client = Client::connect(&world.plane).await;
    let head = "POST /generate HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n";
    assert_eq!(client.ask(head).await.status, 413);
    world.finish().await;
}

/// A lenient role with one model takes any model string.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lenient_models() {
    let engine = Engine::start(|_, _| vec![Step::Send(answer("200 OK", "{}"))]).await;
    let world = World::start_with(&[&engine], |config| config.roles[0].lenient_model = true).await;
    let mut client = Client::connect(&world.plane).await;
    for (body, status) in [
        ("{\"model\":\"gpt-4\"}", 200),
        ("{\"model\":\"\"}", 200),
        ("{\"model\":3}", 400),
    ] {
        assert_eq!(client.ask(post("/generate", body)).await.status, status, "{body}");
    }
    // A selector of the gateway is no field of the engine's.
    assert_eq!(engine.seen()[0].json().get("model"), None);
    world.finish().await;
}

/// `/live` always answers; `/ready` says which pool lacks an engine, and follows the probes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_probes() {
    let engine = Engine::start(|_, _| vec![]).await;
    let pool = dataplane::SharedPool::new("r/m", PoolConfig::default());
    let mut config = dataplane::Config::new(vec![dataplane::RoleConfig::single("r", "m", Arc::clone(&pool))]);
    config.timeouts.probe_interval = Duration::from_millis(10);
    let world = World {
        plane: dataplane::start(config).expect("started"),
        pool,
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: g\r\n\r\n");
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(get("/live")).await.text(), "{\"status\":\"live\"}");
    let reply = client.ask(get("/ready")).await;
    let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (reply.status, &body["ready"], &body["pools"]["r/m"]["registered"]),
        (503, &false.into(), &0.into())
    );
    assert!(
        body["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("\"r/m\" has no eligible backend"))
    );

    let spec = router_core::membership::BackendSpec::parse(&engine.url(), 1.0)
        .expect("a URL")
        .unproven();
    let census = || world.pool.with(|pool, _| pool.census());
    world.pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    eventually("a probe proves the engine", || census().eligible == 1).await;
    assert_eq!(client.ask(get("/ready")).await.status, 200);
    client.send("HEAD /ready HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert!(client.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    drop((engine, client));
    eventually("three failed probes take it out", || census().down == 1).await;
    let mut client = Client::connect(&world.plane).await;
    assert_eq!(client.ask(get("/ready")).await.status, 503);
    drop(client);
    world.finish().await;
}

/// Everything else goes to the control app, streamed both ways, its path untouched; without it there is an answer too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_app() {
    let engine = Engine::start(|_, _| vec![]).await;
    let folder = std::env::temp_dir().join(
        format!("trimtab-test-{}-{:?}", std::process::id(), Instant::now()).replace([' ', '{', '}', ':', ','], ""),
    );
    std::fs::create_dir_all(&folder).expect("a folder");
    let socket = folder.join("c");
    let world = World::start_with(&[&engine], |config| config.control_socket = Some(socket.clone())).await;
    let mut client = Client::connect(&world.plane).await;
    let reply = client.ask("GET /r/health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!(
        (reply.status, reply.header("x-trimtab-error")),
        (503, Some("control_unavailable"))
    );

    let listener = UnixListener::bind(&socket).expect("bound");
    let app = tokio::spawn(async move {
        let mut requests = Vec::new();
        for reply in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nkeep-alive: x\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.expect("a request");
            requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
            stream.write_all(reply.as_bytes()).await.expect("written");
        }
        requests
    });
    let reply = client
        .ask("GET /a%2Fb/engines?x=%20 HTTP/1.1\r\nhost: g\r\nx-trimtab-session: s\r\n\r\n")
        .await;
    assert_eq!(
        (reply.status, reply.text(), reply.header("keep-alive")),
        (404, "{}", None)
    );
    let reply = client.ask(post("/r/admin", "{\"a\":1}")).await;
    assert_eq!((reply.status, reply.text(), reply.complete), (200, "abc", true));
    let reply = client.ask("DELETE /r/workers/1 HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!((reply.status, reply.text(), reply.complete), (200, "abc", false));
    let requests = app.await.expect("no panic");
    assert!(
        requests[0].starts_with("GET /a%2Fb/engines?x=%20 HTTP/1.1\r\n")
            && requests[0].contains("x-trimtab-session: s")
    );
    assert!(requests[1].starts_with("POST /r/admin HTTP/1.1\r\n"));
    std::fs::remove_dir_all(&folder).expect("removed");
    world.finish().await;
}

/// Shutdown lets what runs finish within its grace, takes nothing new, and cuts what is left: every lease is settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_then_cuts() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let script = Arc::clone(&gate);
    let engine = Engine::start(move |seen, _| {
        if seen.json()["hold"] == true {
            vec![Step::Hold]
        } else {
            vec![Step::Wait(Arc::clone(&script)), Step::Send(answer("200 OK", "{}"))]
        }
    })
    .await;
    let world = World::start(&[&engine]).await;
    let idle = Client::connect(&world.plane).await;
    let mut finishing = Client::connect(&world.plane).await;
    let mut cut = Client::connect(&world.plane).await;
    finishing.send(post("/generate", "{}")).await;
    cut.send(post("/generate", "{\"hold\":true}")).await;
    eventually("both run", || engine.seen().len() == 2).await;

    let World { plane, pool } = world;
    let plane = Arc::new(plane);
    let stopping = Arc::clone(&plane);
    let began = Instant::now();
    let stop = tokio::task::spawn_blocking(move || stopping.shutdown(Duration::from_millis(500)));
    eventually("the idle connection is closed", || plane.statistics().connections == 2).await;
    gate.add_permits(1);
    let reply = finishing.answer().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(
        tokio::net::TcpStream::connect(plane.local_addr()).await.is_err(),
        "the port is closed"
    );
    assert!(cut.is_closed().await);
    stop.await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let statistics = pool.with(|pool, _| pool.statistics());
    assert_eq!((statistics.leases, statistics.outstanding), (0, 0));
    assert_eq!(statistics.outcomes.get(router_core::lease::Outcome::Cancelled), 1);
    assert_eq!(plane.statistics().upstream_connections, 0);
    tokio::task::spawn_blocking(move || plane.shutdown(Duration::ZERO))
        .await
        .expect("a second call returns");
    drop(idle);
}

/// A taken port is an error that names it and the way out; a role that contradicts itself names the rule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_that_fail() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    let pool = dataplane::SharedPool::new("p", PoolConfig::default());
    let mut config = dataplane::Config::new(vec![dataplane::RoleConfig::single("r", "m", pool)]);
    config.port = port;
    let failed = |config: &dataplane::Config| {
        let config = config.clone();
        tokio::task::spawn_blocking(move || dataplane::start(config).expect_err("refused").to_string())
    };
    let message = failed(&config).await.expect("no panic");
    assert!(
        message.contains(&format!("127.0.0.1:{port}")) && message.contains("choose another port"),
        "{message}"
    );
    config.port = 0;
    config.roles[0].default_model = Some("x".to_owned());
    let message = failed(&config).await.expect("no panic");
    assert!(message.contains("default_model \"x\""), "{message}");
    config.roles[0].default_model = None;
    config.roles.push(config.roles[0].clone());
    assert!(failed(&config).await.expect("no panic").contains("configured twice"));
}
