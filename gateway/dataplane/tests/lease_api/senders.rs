//! Senders: coming, being alive, presenting what they hold, and going.

use crate::kit::Router;
use serde_json::json;

/// Whoever is not attached, or is another process than the attached one, gets nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_attached_process_is_served() {
    let router = Router::start().await;
    router.populate(1).await;
    let again = router.attach("s", "o").await;
    assert_eq!(
        (&again["already"], &again["state"], &again["ttl_ms"]),
        (&json!(true), &json!("serving"), &json!(120_000))
    );
    for (sender, incarnation) in [("s", "2"), ("t", "1")] {
        let body = json!({"sender": sender, "incarnation": incarnation, "seq": 1});
        router.post("/leases", body).await.refused(404, "unknown_sender");
        let heartbeat = json!({"incarnation": incarnation});
        router
            .post(&format!("/senders/{sender}/heartbeat"), heartbeat)
            .await
            .refused(404, "unknown_sender");
    }
    router.finish().await;
}

/// A sender leaves only with empty hands; its name may have a slash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detaching() {
    let router = Router::start().await;
    router.populate(1).await;
    router.attach("rollout/3", "o").await;
    let lease = json!({"sender": "rollout/3", "incarnation": "1", "seq": 1});
    let lease = router.post("/leases", lease).await.ok();
    let path = "/senders/rollout%2F3?incarnation=1";
    router.delete(path).await.refused(409, "invalid_transition");
    let body = json!({"outcome": "completed", "sender": "rollout/3", "incarnation": "1", "settled": []});
    let settle = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
    router.post(&settle, body).await.ok();
    assert_eq!(router.delete(path).await.ok()["detached"], true);
    router.delete(path).await.refused(404, "unknown_sender");
    router.finish().await;
}

/// Records are deleted by the intervals that come with any call, whatever their order (areal 6.5 a, b).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_5_intervals_delete_records() {
    let router = Router::start().await;
    router.populate(1).await;
    let mut leases = Vec::new();
    for seq in 1..=4 {
        leases.push(router.acquire(seq, json!({})).await.ok());
    }
    for lease in &leases[1..] {
        router.settle(lease, "completed").await.ok();
    }
    let beat = async |settled: serde_json::Value| {
        let body = json!({"incarnation": "1", "settled": settled});
        router.post("/senders/s/heartbeat", body).await.ok()
    };
    let status = beat(json!([[3, 4]])).await;
    assert_eq!((&status["held"], &status["tombstones"]), (&json!(1), &json!(1)));
    let status = beat(json!([[2, 2]])).await;
    assert_eq!(
        (&status["tombstones"], &status["settled"]),
        (&json!(0), &json!([[2, 4]]))
    );
    // The first is still open: it is below every interval and stays.
    assert_eq!(router.acquire(1, json!({})).await.ok()["replayed"], true);
    let path = format!("/leases/{}/settle", leases[0]["lease_id"].as_str().expect("a lease"));
    router.post(&path, json!({"outcome": "completed"})).await.ok();
    let lease = router.acquire(5, json!({"settled": [[1, 4]]})).await.ok();
    let pool = router.get("").await.ok();
    assert_eq!(
        (&pool["counts"]["tombstones"], &pool["counts"]["leases"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(pool["senders"][0]["settled"], json!([[1, 4]]));
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}

/// After a restart of the router a sender presents its leases: what fits is adopted under a new id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_leases_are_adopted() {
    let router = Router::versioned().await;
    let backend = json!({"backends": [{"id": "b0", "address": "h:1", "capacity": 1.0, "weight_version": 7}]});
    router.post("/backends", backend).await.ok();
    let body = json!({
        "sender": "s", "owner": "o", "incarnation": "1",
        "adopt": [{"seq": 4, "lease_id": "0000000100000007", "backend": "b0", "session": "k", "weight_version": 7}],
        "pins": [{"session": "j", "backend": "b0"}, {"session": "i", "backend": "gone"}],
    });
    let attached = router.post("/senders", body).await.ok();
    assert_eq!(attached["adopted"][0]["seq"], 4, "{attached}");
    assert_eq!(attached["pins_adopted"], 1);
    assert_eq!(router.outstanding(), 1);
    let lease = &attached["adopted"][0];
    assert!(lease["lease_id"].is_string(), "{attached}");
    assert_eq!(router.settle(lease, "completed").await.ok()["already"], false);
    let bad = json!({
        "sender": "t", "owner": "o", "incarnation": "1",
        "adopt": [{"seq": 1, "lease_id": "short", "backend": "b0"}],
    });
    router.post("/senders", bad).await.refused(404, "unknown_lease");
    router.finish().await;
}
