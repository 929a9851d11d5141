//! What is bounded says so, and what nobody looks after ends.

use crate::kit::{Router, acquire_body, reply};
use router_core::config::OnAmbiguous;
use router_core::pool::PoolConfig;
use serde_json::json;
use std::time::Duration;

/// Too many parked acquires, and too many settled requests that were never reported, are refused, and can come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_tables() {
    let config = PoolConfig {
        waiter_cap: 2,
        tombstone_cap: 3,
        ..PoolConfig::default()
    };
    let router = Router::start_with(config, |_| {}).await;
    router.populate(1).await;
    for seq in 1..=3 {
        let lease = router.acquire(seq, json!({})).await.ok();
        router.settle(&lease, "completed").await.ok();
    }
    let error = router.acquire(4, json!({})).await.refused(429, "too_many_tombstones");
    assert_eq!(
        (&error["detail"]["limit"], &error["retryable"]),
        (&json!(3), &json!(true))
    );
    let lease = router.acquire(4, json!({"settled": [[1, 3]]})).await.ok();
    router.settle(&lease, "completed").await.ok();

    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let mut waiting = Vec::new();
    for seq in 5..=6 {
        waiting.push(
            router
                .begin("/leases", acquire_body(seq, json!({"wait_ms": 20000})))
                .await,
        );
    }
    router.parked(2).await;
    let third = router.acquire(7, json!({"wait_ms": 20000})).await;
    third.refused(429, "too_many_waiters");
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    for client in waiting {
        let lease = reply(client).await.ok();
        router.settle(&lease, "completed").await.ok();
    }
    router.finish().await;
}

/// A request that expects a version which is published no more is not granted under another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expected_versions() {
    let router = Router::versioned().await;
    router.populate(1).await;
    router.post("/updates/u-2/publish", json!({"version": 2})).await.ok();
    router.post("/owners/o/ack", json!({"version": 2})).await.ok();
    let error = router.acquire(1, json!({"expect_version": 1})).await;
    let error = error.refused(409, "stale_request");
    assert_eq!(
        (&error["detail"]["expected"], &error["detail"]["published"]),
        (&json!(1), &json!(2))
    );
    let lease = router.acquire(2, json!({"expect_version": 2})).await.ok();
    assert_eq!(lease["weight_version"], 2);
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}

/// A sender that falls silent with a lease fails the pool, where that is the policy: nobody has to ask, and whoever waits
/// is told (areal 6.7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_7_a_silent_sender_is_lost() {
    let config = PoolConfig {
        sender_ttl: Duration::from_millis(200),
        on_ambiguous: OnAmbiguous::FailPool,
        ..PoolConfig::default()
    };
    let router = Router::start_with(config, |_| {}).await;
    router.populate(1).await;
    router.acquire(1, json!({})).await.ok();
    let revision = router.get("").await.ok()["revision"].clone();
    let pool = router.get(&format!("?since_gen={revision}&wait_ms=20000")).await.ok();
    assert_eq!(pool["failure"]["cause"], "sender_lost", "{pool}");
    assert_eq!(pool["state"], "failed");
    router.finish().await;
}
