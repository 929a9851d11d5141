//! What HTTP can get wrong: paths, methods, bodies, members, sizes.

use crate::kit::{Reply, Router, acquire_body};
use crate::support::client::Client;
use serde_json::json;

/// Unknown members and wrong types are 422 and say where; what is no JSON is 400; nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_strict() {
    let router = Router::start().await;
    router.populate(1).await;
    let before = router.get("").await.ok()["revision"].clone();
    for (path, body, status, says) in [
        ("/leases", "{", 400, "EOF"),
        ("/leases", "{]", 400, "column"),
        ("/leases", "[]", 422, "invalid length"),
        ("/leases", "{}", 422, "`sender`"),
        (
            "/leases",
            r#"{"sender":"s","incarnation":"1","seq":1,"sesion":"k"}"#,
            422,
            "`sesion`",
        ),
        ("/leases", r#"{"sender":"s","incarnation":"1","seq":-1}"#, 422, "-1"),
        ("/leases", r#"{"sender":"s","incarnation":"1","seq":1.5}"#, 422, "1.5"),
        (
            "/leases",
            r#"{"sender":"s","incarnation":"1","seq":"1"}"#,
            422,
            "string",
        ),
        (
            "/leases",
            r#"{"sender":"s","incarnation":"1","seq":1,"wait_ms":30001}"#,
            422,
            "wait_ms",
        ),
        (
            "/leases",
            r#"{"sender":"s","incarnation":"1","seq":1,"settled":[[1]]}"#,
            422,
            "length",
        ),
        (
            "/leases",
            r#"{"sender":"s","sender":"t","incarnation":"1","seq":1}"#,
            422,
            "duplicate field `sender`",
        ),
        (
            "/leases",
            r#"{"sender":"s","incarnation":"1","seq":1,"session":""}"#,
            422,
            "session key",
        ),
        (
            "/backends",
            r#"{"backends":[{"address":"h:1","capacity":1,"weight":2}]}"#,
            422,
            "`weight`",
        ),
        ("/backends", r#"{"backends":[{"address":"h:1"}]}"#, 422, "`capacity`"),
        ("/updates", r#"{"update_id":"u","kind":"lora"}"#, 422, "`lora`"),
        ("/updates/u/drain", r#"{"wait_ms":99999}"#, 422, "wait_ms"),
        ("/fence", r#"{"owner":"nobody","reason":"r"}"#, 422, "nobody"),
        ("/fence", r#"{"owner":"o"}"#, 422, "`reason`"),
        (
            "/leases/0000000000000000/settle",
            r#"{"outcome":"fine"}"#,
            422,
            "completed, aborted",
        ),
        (
            "/leases/0000000000000000/settle",
            r#"{"outcome":"completed","settled":[[1,1]]}"#,
            422,
            "go together",
        ),
        (
            "/leases/0000000000000000/settle",
            r#"{"outcome":"completed","lease_id":"x"}"#,
            422,
            "in the path",
        ),
        ("/leases:batch", r#"{"requests":[{"release":{}}]}"#, 422, "`release`"),
        (
            "/leases:batch",
            r#"{"requests":[{"acquire":{"sender":"s"}}]}"#,
            422,
            "`incarnation`",
        ),
    ] {
        let request = router.request("POST", path, None);
        let request = request.replace("content-length: 0", &format!("content-length: {}", body.len())) + body;
        let error = router.send_raw(&request).await.refused(status, "invalid_request");
        assert!(
            error["message"].as_str().expect("text").contains(says),
            "{path} {body}: {error}"
        );
    }
    assert_eq!(router.get("").await.ok()["revision"], before);
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// Paths, methods and query parameters that do not exist say so, and the connection stays usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_addresses() {
    let router = Router::start().await;
    let mut client = Client::connect(&router.plane).await;
    for (method, path, status, code) in [
        ("GET", "/v1/router/nothing", 404, "not_found"),
        ("GET", "/v1/router", 404, "not_found"),
        ("POST", "/v1/router/pools/r/m/leases/x", 404, "not_found"),
        ("POST", "/v1/router/pools/r/other/leases", 404, "unknown_pool"),
        ("GET", "/v1/router/pools/x%2Fm", 404, "unknown_pool"),
        ("GET", "/v1/router/pools/r/m/leases", 405, "method_not_allowed"),
        ("POST", "/v1/router/pools", 405, "method_not_allowed"),
        ("PUT", "/v1/router/pools/r/m/backends/b", 405, "method_not_allowed"),
        ("GET", "/v1/router/pools?since=1", 422, "invalid_request"),
        ("GET", "/v1/router/pools?drain_ms=1", 422, "invalid_request"),
        ("POST", "/v1/router/pools/r/m/leases?wait_ms=1", 422, "invalid_request"),
        ("GET", "/v1/router/pools?since_gen=x", 422, "invalid_request"),
        ("GET", "/v1/router/pools?wait_ms=1&wait_ms=2", 422, "invalid_request"),
        ("GET", "/v1/router/pools?wait_ms=30001", 422, "invalid_request"),
        ("GET", "/v1/router/pools?expect_incarnation=%zz", 400, "invalid_request"),
        ("DELETE", "/v1/router/pools/r/m/senders/s", 422, "invalid_request"),
    ] {
        let reply = Reply::of(client.ask(router.request(method, path, None)).await);
        reply.refused(status, code);
    }
    let reply = Reply::of(client.ask(router.request("GET", "/leases", None)).await);
    assert_eq!(reply.answer.header("allow"), Some("POST"));
    let reply = Reply::of(
        client
            .ask(router.request("GET", "/v1/router/pools/r/other", None))
            .await,
    );
    assert!(
        reply.refused(404, "unknown_pool")["message"]
            .as_str()
            .expect("text")
            .contains("pools: r/m")
    );
    drop(client);
    router.finish().await;
}

/// A body beyond the limit is refused by its announced length, or as soon as it has grown beyond it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded() {
    let router = Router::start().await;
    let head = router.request("POST", "/leases", None);
    let announced = head.replace("content-length: 0", "content-length: 16777217");
    let error = router.send_raw(&announced).await.refused(413, "body_too_large");
    assert_eq!(error["detail"]["max_body_bytes"], 16_777_216);

    let mut client = Client::connect(&router.plane).await;
    client
        .send(head.replace("content-length: 0", "transfer-encoding: chunked"))
        .await;
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    // The answer may come, and the connection end, before all of it is written.
    for _ in 0..17 {
        if client.try_send(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    Reply::of(client.answer().await).refused(413, "body_too_large");
    drop(client);
    router.finish().await;
}

/// The description is served as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_is_served() {
    let router = Router::start().await;
    let reply = router.get("/v1/router/openapi.json").await;
    assert_eq!((reply.status, &reply.body["openapi"]), (200, &json!("3.1.0")));
    router.finish().await;
}

/// A connection serves one call after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_many_calls() {
    let router = Router::start().await;
    router.populate(2).await;
    let mut client = Client::connect(&router.plane).await;
    for seq in 1..=50 {
        let body = acquire_body(seq, json!({"session": format!("k{}", seq % 5)}));
        let lease = Reply::of(client.ask(router.request("POST", "/leases", Some(&body))).await).ok();
        let path = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
        let body = json!({"outcome": "completed", "output_tokens": 3});
        let settled = Reply::of(client.ask(router.request("POST", &path, Some(&body))).await).ok();
        assert_eq!(
            (&settled["outcome"], &settled["already"]),
            (&json!("completed"), &json!(false))
        );
    }
    drop(client);
    let pool = router.get("").await.ok();
    assert_eq!(pool["counts"]["outcomes"]["completed"], 50);
    assert_eq!(pool["counts"]["output_tokens"], 150);
    router.finish().await;
}
