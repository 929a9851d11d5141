//! The same API on a Unix socket.

use crate::kit::{Router, acquire_body};
use crate::support::eventually;
use router_core::pool::PoolConfig;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A path for one test: a socket's path is at most 107 bytes long.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("trimtab-{}-lease-{name}.sock", std::process::id()))
}

async fn start(name: &str, adjust: impl FnOnce(&mut dataplane::Config)) -> (Router, PathBuf) {
    let path = path(name);
    let router = Router::start_with(PoolConfig::default(), |config| {
        config.lease_socket = Some(path.clone());
        adjust(config);
    })
    .await;
    (router, path)
}

/// Sends one request, and reads until the router closes.
async fn ask(path: &PathBuf, request: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(path).await.expect("somebody listens");
    let request = request.replacen("host: g\r\n", "host: g\r\nconnection: close\r\n", 1);
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer[9..12].parse().expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// A lease that was taken on the socket is settled on the port, and the other way round: it is one router.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_reach_the_same_pool() {
    let (router, path) = start("same", |_| {}).await;
    router.populate(2).await;
    let request = router.request("POST", "/leases", Some(&acquire_body(1, json!({"session": "k"}))));
    let (status, lease) = ask(&path, &request).await;
    assert_eq!((status, router.outstanding()), (200, 1), "{lease}");
    router.settle(&lease, "completed").await.ok();
    let lease = router.acquire(2, json!({"session": "k"})).await.ok();
    let settle = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
    let request = router.request("POST", &settle, Some(&json!({"outcome": "completed"})));
    let (status, settled) = ask(&path, &request).await;
    assert_eq!((status, &settled["already"]), (200, &json!(false)));
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
    assert!(!path.exists(), "the file goes with the router");
}

/// Nothing but the lease API is served there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_paths_are_unknown() {
    let (router, path) = start("paths", |_| {}).await;
    for other in ["/generate", "/v1/chat/completions", "/live", "/", "/v1/routers"] {
        let request = format!("POST {other} HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{{}}");
        let (status, answer) = ask(&path, &request).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (404, &json!("not_found")),
            "{other}"
        );
    }
    router.finish().await;
}

/// The file's mode guards it when there is no key, wherever the gateway listens; a key that is configured is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_call() {
    let (router, path) = start("open", |config| config.host = "0.0.0.0".to_owned()).await;
    assert_eq!(ask(&path, &router.request("GET", "", None)).await.0, 200);
    router.finish().await;

    let (router, path) = start("keyed", |config| config.admin_key = Some("sesame".to_owned())).await;
    let authorised = router.request("GET", "", None);
    let anonymous = authorised.replace("authorization: Bearer sesame\r\n", "");
    assert_eq!(ask(&path, &authorised).await.0, 200);
    assert_eq!(ask(&path, &anonymous).await.0, 401);
    router.finish().await;
}

/// Half a body does not hold a connection for longer than a request may take, on the socket as on the port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_body() {
    let (router, path) = start("half", |config| {
        config.timeouts.total = Some(Duration::from_millis(100));
    })
    .await;
    router.populate(1).await;
    let request = router.request("POST", "/leases", Some(&acquire_body(1, json!({}))));
    let half = &request[..request.len() - 1];
    let (status, answer) = ask(&path, half).await;
    assert_eq!((status, &answer["error"]["code"]), (408, &json!("request_timeout")));
    router.send_raw(half).await.refused(408, "request_timeout");
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// Where the port has more clients than there is room for, those are told to give way; the socket goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_the_port() {
    let (router, path) = start("crowd", |config| config.limits.max_clients = Some(0)).await;
    let mut refused = TcpStream::connect(router.plane.local_addr()).await.expect("accepted");
    let request = router.request("GET", "", None);
    refused.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.contains("too_many_connections"), "{answer}");
    for _ in 0..3 {
        assert_eq!(ask(&path, &request).await.0, 200);
    }
    router.finish().await;
}

/// A client that leaves while its acquire is parked leaves the queue; one that stays gets its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_acquires() {
    let (router, path) = start("parked", |_| {}).await;
    router.populate(1).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let wanted = acquire_body(1, json!({"wait_ms": 20000}));
    let request = router.request("POST", "/leases", Some(&wanted));
    let mut gone = UnixStream::connect(&path).await.expect("somebody listens");
    gone.write_all(request.as_bytes()).await.expect("written");
    router.parked(1).await;
    drop(gone);
    router.parked(0).await;

    let waiting = tokio::spawn({
        let path = path.clone();
        async move { ask(&path, &request).await }
    });
    router.parked(1).await;
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    let (status, lease) = waiting.await.expect("no panic");
    assert_eq!((status, router.outstanding()), (200, 1), "{lease}");
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}

/// A router that stops answers a long poll of the socket at once, with a reason, and accepts nobody any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown() {
    let (router, path) = start("shutdown", |_| {}).await;
    router.populate(1).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let request = router.request("POST", "/leases", Some(&acquire_body(1, json!({"wait_ms": 30000}))));
    let waiting = tokio::spawn({
        let path = path.clone();
        async move { ask(&path, &request).await }
    });
    router.parked(1).await;
    let Router { plane, .. } = router;
    tokio::task::spawn_blocking(move || plane.shutdown(std::time::Duration::from_secs(5)))
        .await
        .expect("no panic");
    let (status, answer) = waiting.await.expect("no panic");
    assert_eq!((status, &answer["error"]["code"]), (425, &json!("fenced")), "{answer}");
    assert!(!path.exists());
}

/// A path that is served by another router makes the start fail, and the message says so; the other one serves on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_path() {
    let (router, path) = start("taken", |_| {}).await;
    let mut config = dataplane::Config::new(vec![dataplane::RoleConfig::single(
        "r",
        "m",
        dataplane::SharedPool::new("r/m", PoolConfig::default()),
    )]);
    config.lease_socket = Some(path.clone());
    let refused = tokio::task::spawn_blocking(|| dataplane::start(config).err().map(|error| error.to_string()));
    let message = refused.await.expect("no panic").expect("refused");
    assert!(
        message.contains(&path.display().to_string()) && message.contains("already"),
        "{message}"
    );
    assert_eq!(ask(&path, &router.request("GET", "", None)).await.0, 200);
    eventually("no request is open", || router.plane.statistics().open_requests == 0).await;
    router.finish().await;
}
