//! Who may call, and which start of the router is meant.

use crate::kit::Router;
use router_core::pool::PoolConfig;
use serde_json::json;

/// Every call, with a body that would do.
fn calls() -> Vec<(&'static str, &'static str)> {
    vec![
        ("GET", "/v1/router/openapi.json"),
        ("GET", "/v1/router/pools"),
        ("GET", ""),
        ("POST", "/backends"),
        ("DELETE", "/backends/b"),
        ("POST", "/owners"),
        ("POST", "/owners/o/ack"),
        ("POST", "/senders"),
        ("POST", "/senders/s/heartbeat"),
        ("DELETE", "/senders/s"),
        ("POST", "/leases"),
        ("POST", "/leases/0000000000000000/settle"),
        ("POST", "/leases:batch"),
        ("POST", "/sessions/k/close"),
        ("POST", "/fence"),
        ("POST", "/unfence"),
        ("POST", "/updates"),
        ("POST", "/updates/u/drain"),
        ("POST", "/updates/u/resume"),
        ("POST", "/updates/u/publish"),
        ("POST", "/updates/u/fail"),
        ("POST", "/updates/u/cancel"),
        ("POST", "/fail"),
        ("POST", "/close"),
        ("GET", "/v1/router/nothing"),
    ]
}

/// With a key configured, every path of the API asks for it before anything else; `/live` and `/ready` do not (R05).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r05_every_call_asks_for_the_key() {
    let router = Router::start_with(PoolConfig::default(), |config| {
        config.admin_key = Some("sesame".to_owned());
    })
    .await;
    let before = router.pool.with(|pool, _| pool.statistics());
    for (method, path) in calls() {
        let authorised = router.request(method, path, None);
        let line = "authorization: Bearer sesame\r\n";
        let anonymous = router.send_raw(&authorised.replace(line, "")).await;
        assert_eq!(anonymous.answer.header("www-authenticate"), Some("Bearer"));
        anonymous.refused(401, "unauthenticated");
        let wrong = line.replace("sesame", "sesam");
        let error = router
            .send_raw(&authorised.replace(line, &wrong))
            .await
            .refused(403, "forbidden");
        assert!(!error.to_string().contains("sesam"), "a key is in {error}");
        let reply = router.send_raw(&authorised).await;
        assert!(
            !matches!(reply.status, 401 | 403 | 405),
            "{method} {path}: {}",
            reply.body
        );
        if path == "/fail" {
            reply.refused(422, "invalid_request");
        }
    }
    for path in ["/live", "/ready"] {
        let reply = router
            .send_raw(&format!("GET {path} HTTP/1.1\r\nhost: g\r\n\r\n"))
            .await;
        assert!(matches!(reply.status, 200 | 503), "{path}");
    }
    let after = router.pool.with(|pool, _| pool.statistics());
    assert_eq!(before.backends, after.backends);
    router.finish().await;
}

/// Without a key nobody is served as soon as others than this machine could connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r06_no_key_is_for_loopback_only() {
    let open = Router::start_with(PoolConfig::default(), |config| config.host = "0.0.0.0".to_owned()).await;
    let port = open.plane.local_addr().port();
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connected");
    let request = open.request("GET", "", None);
    let reply = {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let request = request.replacen("host: g\r\n", "host: g\r\nconnection: close\r\n", 1);
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("an answer");
        reply
    };
    assert!(reply.starts_with("HTTP/1.1 403 "), "{reply}");
    assert!(reply.contains("admin_key"), "{reply}");
    open.finish().await;
}

/// A call that is meant for another start of the router changes nothing, whatever it is (areal 6.1 g).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_g_a_restarted_router_is_noticed() {
    let router = Router::start().await;
    router.populate(1).await;
    let own = router.get("").await.ok()["incarnation"].clone();
    let other = json!("00000000000000000000000000000000");
    let bodies = [
        ("/backends", json!({"backends": []})),
        ("/owners", json!({"owner": "p"})),
        ("/owners/o/ack", json!({"version": 1})),
        ("/senders", json!({"sender": "t", "owner": "p", "incarnation": "1"})),
        ("/senders/s/heartbeat", json!({"incarnation": "1"})),
        ("/leases", json!({"sender": "s", "incarnation": "1", "seq": 1})),
        ("/leases/0000000000000000/settle", json!({"outcome": "completed"})),
        ("/leases:batch", json!({"requests": []})),
        ("/sessions/k/close", json!({})),
        ("/fence", json!({"owner": "o", "reason": "r"})),
        ("/unfence", json!({"owner": "o", "reason": "r"})),
        ("/updates", json!({"update_id": "u"})),
        ("/updates/u/drain", json!({})),
        ("/updates/u/resume", json!({})),
        ("/updates/u/publish", json!({"version": 1})),
        ("/updates/u/fail", json!({"reason": "r"})),
        ("/updates/u/cancel", json!({})),
        ("/fail", json!({"reason": "r"})),
        ("/close", json!({})),
    ];
    let before = router.get("").await.ok()["revision"].clone();
    for (path, body) in bodies {
        let mut body = body;
        body["expect_incarnation"] = other.clone();
        let error = router.post(path, body).await.refused(409, "router_restarted");
        assert_eq!(
            (&error["retryable"], &error["detail"]["incarnation"]),
            (&json!(false), &own),
            "{path}"
        );
    }
    router
        .get("?expect_incarnation=x")
        .await
        .refused(409, "router_restarted");
    for path in [
        "/backends/b0?expect_incarnation=x",
        "/senders/s?incarnation=1&expect_incarnation=x",
    ] {
        router.delete(path).await.refused(409, "router_restarted");
    }
    assert_eq!(router.get("").await.ok()["revision"], before);
    let body = json!({"owner": "o", "reason": "r", "expect_incarnation": own});
    router.post("/fence", body).await.ok();
    router.finish().await;
}

/// Two starts of a router are two incarnations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incarnations_differ() {
    let (first, second) = (Router::start().await, Router::start().await);
    let of = async |router: &Router| router.get("").await.ok()["incarnation"].clone();
    assert_ne!(of(&first).await, of(&second).await);
    assert_eq!(of(&first).await, of(&first).await);
    first.finish().await;
    second.finish().await;
}
