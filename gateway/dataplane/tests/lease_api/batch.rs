//! Several requests at once.

use crate::kit::{Router, acquire_body, reply};
use serde_json::{Value, json};

/// Each request of a batch has its own answer, in order, with the status of the single call; repeating it is safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_has_its_own_answer() {
    let router = Router::start().await;
    router.populate(2).await;
    let held = router.acquire(1, json!({"session": "k"})).await.ok();
    let batch = json!({"requests": [
        {"settle": {"lease_id": held["lease_id"], "outcome": "completed", "output_tokens": 9}},
        {"acquire": acquire_body(2, json!({"session": "k"}))},
        {"acquire": acquire_body(1, json!({"session": "k"}))},
        {"settle": {"lease_id": "ffffffffffffffff", "outcome": "completed"}},
        {"settle": {"outcome": "completed"}},
        {"acquire": acquire_body(3, json!({"expect_incarnation": "other"}))},
        {"acquire": acquire_body(4, json!({"wait_ms": 30001}))},
    ]});
    let statuses = |answer: &Value| -> Vec<u64> {
        let results = answer["results"].as_array().expect("results");
        results
            .iter()
            .map(|result| result["status"].as_u64().expect("a status"))
            .collect()
    };
    let first = router.post("/leases:batch", batch.clone()).await.ok();
    assert_eq!(statuses(&first), [200, 200, 409, 404, 422, 409, 422]);
    assert_eq!(first["results"][1]["body"]["sticky"], true);
    assert_eq!(first["results"][2]["body"]["error"]["code"], "request_settled");
    assert_eq!(first["results"][5]["body"]["error"]["code"], "router_restarted");
    let second = router.post("/leases:batch", batch).await.ok();
    assert_eq!(statuses(&second), statuses(&first));
    assert_eq!(second["results"][0]["body"]["already"], true);
    assert_eq!(
        second["results"][1]["body"]["lease_id"],
        first["results"][1]["body"]["lease_id"]
    );
    assert_eq!(router.outstanding(), 1);
    assert_eq!(
        router.post("/leases:batch", json!({"requests": []})).await.ok()["results"],
        json!([])
    );
    router.finish().await;
}

/// Those that have to wait do so together; when the client leaves, all of them leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_together() {
    let router = Router::start().await;
    router.populate(2).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let requests: Vec<Value> = (1..=20)
        .map(|seq| json!({"acquire": acquire_body(seq, json!({"wait_ms": 20000}))}))
        .collect();
    let batch = json!({ "requests": requests });
    let gone = router.begin("/leases:batch", batch.clone()).await;
    router.parked(20).await;
    drop(gone);
    router.parked(0).await;
    let waiting = router.begin("/leases:batch", batch).await;
    router.parked(20).await;
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    let answer = reply(waiting).await.ok();
    let results = answer["results"].as_array().expect("results");
    assert!(results.iter().all(|result| result["status"] == 200), "{answer}");
    assert_eq!((results.len(), router.outstanding()), (20, 20));
    router.finish().await;
}

/// A batch has a largest size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_bounded() {
    let router = Router::start().await;
    router.populate(1).await;
    let requests: Vec<Value> = (1..=1025)
        .map(|seq| json!({"acquire": acquire_body(seq, json!({}))}))
        .collect();
    router
        .post("/leases:batch", json!({ "requests": requests }))
        .await
        .refused(422, "invalid_request");
    assert_eq!(router.outstanding(), 0);
    let answer = router
        .post("/leases:batch", json!({ "requests": &requests[..1024] }))
        .await
        .ok();
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(1024));
    assert_eq!(router.outstanding(), 1024);
    router.finish().await;
}
