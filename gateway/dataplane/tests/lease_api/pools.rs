//! Looking at pools, waiting for a change, and ending them.

use crate::kit::{Router, acquire_body, reply};
use crate::support::client::Client;
use serde_json::json;
use std::time::{Duration, Instant};

/// A watcher is answered at once when it is behind, at the next change when it is not, and unchanged at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching() {
    let router = Router::start().await;
    router.populate(1).await;
    let revision = router.get("").await.ok()["revision"].as_u64().expect("a number");
    for path in ["", "/v1/router/pools"] {
        let behind = router
            .get(&format!("{path}?since_gen={}&wait_ms=20000", revision - 1))
            .await
            .ok();
        assert_eq!(behind["revision"], revision);
        let start = Instant::now();
        let unchanged = router
            .get(&format!("{path}?since_gen={revision}&wait_ms=50"))
            .await
            .ok();
        assert_eq!(unchanged["revision"], revision);
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
    let mut watchers = Vec::new();
    for path in ["", "/v1/router/pools"] {
        let mut client = Client::connect(&router.plane).await;
        client
            .send(router.request("GET", &format!("{path}?since_gen={revision}&wait_ms=20000"), None))
            .await;
        watchers.push(client);
    }
    crate::support::eventually("both watch", || router.plane.statistics().open_requests == 2).await;
    // Grants and settlements are no change to watch for.
    let lease = router.acquire(1, json!({})).await.ok();
    router.settle(&lease, "completed").await.ok();
    assert_eq!(router.get("").await.ok()["revision"], revision);
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    for watcher in watchers {
        assert!(reply(watcher).await.ok()["revision"].as_u64() > Some(revision));
    }
    router.finish().await;
}

/// The view of a pool shows what a controller asks for, and the last errors with their words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_of_a_pool() {
    let router = Router::versioned().await;
    router.populate(2).await;
    let fresh = router.get("").await.ok();
    assert_eq!(
        (&fresh["state"], &fresh["version"], &fresh["pool"]),
        (&json!("init"), &json!(null), &json!("r/m"))
    );
    router.post("/updates/u-3/publish", json!({"version": 3})).await.ok();
    router.post("/owners/o/ack", json!({"version": 3})).await.ok();
    let lease = router.acquire(1, json!({"session": "k"})).await.ok();
    let path = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
    let body = json!({"outcome": "failed", "http_status": 500, "error": "boom", "observed_weight_version": "2"});
    assert_eq!(router.post(&path, body.clone()).await.ok()["version_mismatch"], true);
    let again = router.post(&path, body).await.ok();
    assert_eq!(
        (&again["already"], &again["version_mismatch"]),
        (&json!(true), &json!(false))
    );

    let listed = router.get("/v1/router/pools").await.ok();
    let pool = router.get("/v1/router/pools/r%2Fm").await.ok();
    assert_eq!(listed["pools"][0]["counts"], pool["counts"]);
    assert_eq!(
        (&pool["state"], &pool["version"], &pool["server_paused"]),
        (&json!("serving"), &json!(3), &json!(false))
    );
    assert_eq!(pool["backends"].as_array().map(Vec::len), Some(2));
    let owner = &pool["owners"].as_array().expect("owners")[1];
    assert_eq!((&owner["owner"], &owner["acknowledged"]), (&json!("o"), &json!(3)));
    assert_eq!(
        (&pool["senders"][0]["sender"], &pool["senders"][0]["tombstones"]),
        (&json!("s"), &json!(1))
    );
    assert_eq!(pool["counts"]["version_mismatches"], 1);
    assert_eq!(pool["counts"]["outcomes"]["failed"], 1);
    assert_eq!(pool["recent_errors"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (
            &pool["recent_errors"][0]["error"],
            &pool["recent_errors"][0]["http_status"]
        ),
        (&json!("boom"), &json!(500))
    );
    router.finish().await;
}

/// What an engine calls its weights is compared when it is a number, and any text differs from the version of an engine
/// that used to name it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observed_versions() {
    let router = Router::versioned().await;
    router.populate(1).await;
    router.post("/updates/u-3/publish", json!({"version": 3})).await.ok();
    router.post("/owners/o/ack", json!({"version": 3})).await.ok();
    for (seq, observed, mismatch) in [
        (1, json!("3"), false),
        (2, json!(3), false),
        (3, json!("default"), false),
        (4, json!(4), true),
        (5, json!("3"), false),
        (6, json!("default"), true),
    ] {
        let lease = router.acquire(seq, json!({})).await.ok();
        let path = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
        let body = json!({"outcome": "completed", "observed_weight_version": observed});
        assert_eq!(
            router.post(&path, body).await.ok()["version_mismatch"],
            mismatch,
            "{observed}"
        );
        if seq == 4 {
            router.pool.with(|pool, now| {
                let backend = pool.statistics().backends[0].info.reference;
                pool.note_named_version(backend, Some(3), now);
            });
        }
    }
    router.finish().await;
}

/// A failed pool tells everybody why: who waits, who comes, and who drives it; what runs can be settled (I4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_failed_is_the_end() {
    let router = Router::start().await;
    router.populate(1).await;
    let running = router.acquire(1, json!({})).await.ok();
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let parked = router
        .begin("/leases", acquire_body(2, json!({"wait_ms": 20000})))
        .await;
    router.parked(1).await;
    let failed = router.post("/fail", json!({"reason": "a reset on rank 3"})).await.ok();
    assert_eq!(
        (&failed["state"], &failed["failure"]["cause"]),
        (&json!("failed"), &json!("reported"))
    );
    let error = reply(parked).await.refused(503, "pool_failed");
    assert_eq!(
        (&error["retryable"], &error["detail"]["cause"]),
        (&json!(false), &json!("reported"))
    );
    assert!(error["message"].as_str().expect("text").contains("a reset on rank 3"));
    router.acquire(3, json!({})).await.refused(503, "pool_failed");
    for (path, body) in [
        ("/unfence", json!({"owner": "o", "reason": "r"})),
        ("/updates", json!({"update_id": "u"})),
    ] {
        router.post(path, body).await.refused(409, "pool_failed");
    }
    router.post("/fail", json!({"reason": "another"})).await.ok();
    let pool = router.get("").await.ok();
    assert!(
        pool["failure"]["message"].as_str().expect("text").contains("rank 3"),
        "{pool}"
    );
    router.settle(&running, "completed").await.ok();
    router.finish().await;
}

/// A closed pool grants nothing, and closing it again is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_is_the_end() {
    let router = Router::start().await;
    router.populate(1).await;
    for _ in 0..2 {
        let closed = router.post("/close", json!({"reason": "the run is over"})).await.ok();
        assert_eq!((&closed["state"], &closed["failure"]), (&json!("closed"), &json!(null)));
    }
    router.acquire(1, json!({})).await.refused(409, "pool_closed");
    assert_eq!(router.get("").await.ok()["closed_because"], "the run is over");
    router.finish().await;
}
