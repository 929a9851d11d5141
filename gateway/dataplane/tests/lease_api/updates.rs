//! The update transaction, in the order in which real controllers drive it.

use crate::kit::{Router, acquire_body, reply};
use crate::support::eventually;
use router_core::config::{OnDrainTimeout, Start};
use router_core::pool::PoolConfig;
use serde_json::json;
use std::time::{Duration, Instant};

/// A versioned pool at version 7 with the owners `o` and `eval`, both of which know it.
async fn at_version_7(router: &Router) {
    router.post("/owners", json!({"owner": "eval"})).await.ok();
    router.populate(2).await;
    router.attach("e", "eval").await;
    router.post("/updates/start/publish", json!({"version": 7})).await.ok();
    for owner in ["o", "eval"] {
        router
            .post(&format!("/owners/{owner}/ack"), json!({"version": 7}))
            .await
            .ok();
    }
}

/// One training step, each call made twice as retrying schedulers do: no lease between the first pause and the
/// publication, eval before train, and every lease labelled with the weights that run it (areal 2.3, L07).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l07_a_training_step() {
    let router = Router::versioned().await;
    at_version_7(&router).await;
    let twice = async |path: &str, body: serde_json::Value| {
        let first = router.post(path, body.clone()).await.ok();
        let second = router.post(path, body).await.ok();
        (first, second)
    };
    let running = router.acquire(1, json!({"session": "k"})).await.ok();
    assert_eq!(running["weight_version"], 7);

    // 4: the senders are fenced, then 5a: the update begins, before any engine is paused.
    twice("/fence", json!({"owner": "o", "reason": "sender_pause"})).await;
    let (begun, again) = twice("/updates", json!({"update_id": "u-8", "to_version": 8})).await;
    assert_eq!(
        (&begun["phase"], &begun["outstanding"], &begun["server_paused"]),
        (&json!("quiescing"), &json!(1), &json!(true))
    );
    assert_eq!(
        (&again["replayed"], &again["pool_gen"]),
        (&json!(true), &begun["pool_gen"])
    );
    router
        .post("/updates", json!({"update_id": "u-9"}))
        .await
        .refused(409, "update_in_progress");
    router
        .post("/updates", json!({"update_id": "u-8", "to_version": 9}))
        .await
        .refused(409, "idempotency_conflict");
    router
        .post("/updates/u-8/publish", json!({"version": 8}))
        .await
        .refused(409, "invalid_transition");

    // Both owners have turns that wait: a paused pool is no error for them.
    let train = router
        .begin("/leases", acquire_body(2, json!({"session": "k", "wait_ms": 20000})))
        .await;
    let eval = json!({"sender": "e", "incarnation": "1", "seq": 1, "session": "k", "wait_ms": 20000});
    let eval = router.begin("/leases", eval).await;
    router.parked(2).await;

    // 5a: the engines abort what runs, which drains the pool.
    let drain = router
        .begin("/updates/u-8/drain", json!({"timeout_ms": 20000, "wait_ms": 20000}))
        .await;
    eventually("the drain waits", || router.plane.statistics().open_requests == 3).await;
    router.settle(&running, "aborted").await.ok();
    let drained = reply(drain).await.ok();
    assert_eq!(
        (&drained["phase"], &drained["outstanding"]),
        (&json!("updating"), &json!(0))
    );
    assert_eq!(
        router.post("/updates/u-8/drain", json!({})).await.ok()["phase"],
        "updating"
    );

    // 5c: the engines continue; nothing may be granted before the version is published (areal 6.3 a).
    twice("/updates/u-8/resume", json!({})).await;
    assert_eq!(router.waiters(), 2);
    // 7: the version is published. 8: eval knows it, and is served while train is fenced (11).
    let (published, again) = twice("/updates/u-8/publish", json!({"version": 8})).await;
    assert_eq!(
        (&published["phase"], &published["version"]),
        (&json!("published"), &json!(8))
    );
    assert_eq!(again["replayed"], true);
    twice("/owners/o/ack", json!({"version": 8})).await;
    assert_eq!(router.waiters(), 2, "train is fenced and eval has not acknowledged");
    twice("/owners/eval/ack", json!({"version": 8})).await;
    let eval = reply(eval).await.ok();
    assert_eq!(eval["weight_version"], 8);
    assert_eq!(router.waiters(), 1);
    router.settle(&eval, "completed").await.ok();

    // 14: the senders go on.
    twice("/unfence", json!({"owner": "o", "reason": "sender_pause"})).await;
    let train = reply(train).await.ok();
    assert_eq!(
        (&train["weight_version"], &train["pool_gen"]),
        (&json!(8), &begun["pool_gen"])
    );
    router.settle(&train, "completed").await.ok();
    router
        .post("/updates/u-8/publish", json!({"version": 7}))
        .await
        .refused(409, "idempotency_conflict");
    let pool = router.get("").await.ok();
    assert_eq!(
        (&pool["update"], &pool["state"], &pool["version"]),
        (&json!(null), &json!("serving"), &json!(8))
    );
    router.finish().await;
}

/// Recovery unfences before it publishes; the pool stays closed until both have happened (areal 6.3 c).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_3_c_unfenced_before_published() {
    let router = Router::versioned().await;
    router.populate(1).await;
    router
        .post("/fence", json!({"owner": "o", "reason": "pause"}))
        .await
        .ok();
    router
        .post("/unfence", json!({"owner": "o", "reason": "pause"}))
        .await
        .ok();
    let error = router.acquire(1, json!({})).await.refused(425, "not_serving");
    assert_eq!(error["detail"]["state"], "init");
    router
        .post("/updates/recovered/publish", json!({"version": 40}))
        .await
        .ok();
    router.post("/owners/o/ack", json!({"version": 40})).await.ok();
    assert_eq!(router.acquire(1, json!({})).await.ok()["weight_version"], 40);
    router.finish().await;
}

/// An offload pauses and drains without a version; unfencing meanwhile grants nothing (areal 6.3 l).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_3_l_an_offload_ends_in_a_cancellation() {
    let router = Router::versioned().await;
    at_version_7(&router).await;
    router
        .post("/updates", json!({"update_id": "pause:1", "kind": "offload"}))
        .await
        .ok();
    let drained = router
        .post("/updates/pause:1/drain", json!({"wait_ms": 10000}))
        .await
        .ok();
    assert_eq!(
        (&drained["phase"], &drained["kind"]),
        (&json!("updating"), &json!("offload"))
    );
    let error = router.acquire(1, json!({})).await.refused(425, "not_serving");
    assert_eq!(
        (&error["detail"]["server_paused"], &error["detail"]["update"]),
        (&json!(true), &json!("pause:1"))
    );
    router.post("/updates/pause:1/resume", json!({})).await.ok();
    let cancelled = router.post("/updates/pause:1/cancel", json!({})).await.ok();
    assert_eq!(
        (&cancelled["phase"], &cancelled["version"]),
        (&json!("cancelled"), &json!(7))
    );
    assert_eq!(router.acquire(1, json!({})).await.ok()["weight_version"], 7);
    router.finish().await;
}

/// At its deadline a drain names what is in the way; by default the pool fails with it (B: drain deadline).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_deadline_names_the_blockers() {
    let router = Router::versioned().await;
    at_version_7(&router).await;
    let blocker = router.acquire(1, json!({"session": "slow"})).await.ok();
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let start = Instant::now();
    let body = json!({"timeout_ms": 100, "wait_ms": 20000});
    let error = router
        .post("/updates/u/drain", body)
        .await
        .refused(504, "drain_timeout");
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "the long poll outlived the drain"
    );
    let named = &error["detail"]["blockers"][0];
    assert_eq!(
        (&named["lease_id"], &named["session"], &named["sender"]),
        (&blocker["lease_id"], &json!("slow"), &json!("s"))
    );
    assert_eq!(
        (&error["detail"]["pool_failed"], &error["retryable"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(router.get("").await.ok()["failure"]["cause"], "drain_timeout");
    router.finish().await;
}

/// Where a late drain is only reported, the next call sets another deadline, and the update goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_drain_may_go_on() {
    let config = PoolConfig {
        start: Start::AwaitVersion,
        on_drain_timeout: OnDrainTimeout::Report,
        ..PoolConfig::default()
    };
    let router = Router::start_with(config, |_| {}).await;
    at_version_7(&router).await;
    let slow = router.acquire(1, json!({})).await.ok();
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let error = router
        .post("/updates/u/drain", json!({"timeout_ms": 20, "wait_ms": 10000}))
        .await;
    let error = error.refused(504, "drain_timeout");
    assert_eq!(
        (&error["detail"]["pool_failed"], &error["retryable"]),
        (&json!(false), &json!(true))
    );
    let waiting = router
        .post("/updates/u/drain", json!({"timeout_ms": 20000, "wait_ms": 20}))
        .await
        .ok();
    assert_eq!(
        (&waiting["phase"], &waiting["outstanding"]),
        (&json!("quiescing"), &json!(1))
    );
    assert_eq!(waiting["blockers"][0]["lease_id"], slow["lease_id"]);
    router.settle(&slow, "completed").await.ok();
    assert_eq!(
        router.post("/updates/u/drain", json!({})).await.ok()["phase"],
        "updating"
    );
    router.finish().await;
}

/// An update that failed takes the pool with it: its weights are nobody's (areal 6.3 d).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_3_d_a_failed_update_fails_the_pool() {
    let router = Router::versioned().await;
    at_version_7(&router).await;
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    router
        .post("/updates/other/fail", json!({"reason": "r"}))
        .await
        .refused(404, "unknown_update");
    let failed = router.post("/updates/u/fail", json!({"reason": "NCCL"})).await.ok();
    assert_eq!(failed["phase"], "failed");
    router
        .post("/updates/u/publish", json!({"version": 8}))
        .await
        .refused(409, "pool_failed");
    let pool = router.get("").await.ok();
    assert_eq!(
        (&pool["state"], &pool["failure"]["cause"]),
        (&json!("failed"), &json!("update_failed"))
    );
    router.finish().await;
}

/// Versions go down only in a new epoch (I4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_versions_never_decrease() {
    let router = Router::versioned().await;
    at_version_7(&router).await;
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    router.post("/updates/u/drain", json!({"wait_ms": 10000})).await.ok();
    let error = router.post("/updates/u/publish", json!({"version": 6})).await;
    assert_eq!(error.refused(409, "version_regression")["detail"]["published"], 7);
    let published = router
        .post("/updates/u/publish", json!({"version": 6, "epoch": 1}))
        .await
        .ok();
    assert_eq!((&published["version"], &published["epoch"]), (&json!(6), &json!(1)));
    router.finish().await;
}
