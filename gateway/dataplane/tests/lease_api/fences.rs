//! Fences against acquires.

use crate::kit::{Router, acquire_body, reply};
use serde_json::{Value, json};

/// After a fence was answered nothing is granted to its owner; others go on, and what runs may finish (I5, 6.3 h).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i5_a_fence_holds() {
    let router = Router::start().await;
    router.populate(2).await;
    router.attach("e", "eval").await;
    let running = router.acquire(1, json!({"session": "k"})).await.ok();
    let fence = router
        .post("/fence", json!({"owner": "o", "reason": "pause"}))
        .await
        .ok();
    assert_eq!(
        (&fence["outstanding"], &fence["fences"]),
        (&json!(1), &json!(["pause"]))
    );
    assert_eq!(fence["per_backend"][running["backend"].as_str().expect("an id")], 1);
    let error = router.acquire(2, json!({})).await.refused(425, "fenced");
    assert_eq!(
        (&error["detail"]["owner"], &error["detail"]["fences"]),
        (&json!("o"), &json!(["pause"]))
    );
    assert_eq!(error["retryable"], true);

    let eval = json!({"sender": "e", "incarnation": "1", "seq": 1});
    let other = router.post("/leases", eval).await.ok();
    router.settle(&other, "completed").await.ok();
    router.settle(&running, "completed").await.ok();
    router
        .post("/fence", json!({"owner": "o", "reason": "update"}))
        .await
        .ok();
    let open = router
        .post("/unfence", json!({"owner": "o", "reason": "pause"}))
        .await
        .ok();
    assert_eq!(open["fences"], json!(["update"]));
    router.acquire(2, json!({})).await.refused(425, "fenced");
    router
        .post("/unfence", json!({"owner": "o", "reason": "update"}))
        .await
        .ok();
    router.acquire(2, json!({})).await.ok();
    router.finish().await;
}

/// Acquires race with a fence: whatever was granted is counted in its answer, and nothing comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_linearises_against_acquires() {
    let router = Router::start().await;
    router.populate(4).await;
    let mut clients = Vec::new();
    for seq in 1..=40 {
        clients.push(router.begin("/leases", acquire_body(seq, json!({}))).await);
    }
    let fenced = router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let mut granted = 0;
    for client in clients {
        match reply(client).await {
            answer if answer.status == 200 => granted += 1,
            answer => {
                answer.refused(425, "fenced");
            }
        }
    }
    assert_eq!(fenced["outstanding"], json!(granted));
    assert_eq!(router.outstanding(), granted);
    router.finish().await;
}

/// Two controllers, one pool: an owner that has not acknowledged the version waits, the other is served (6.3 b).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_3_b_only_who_acknowledged_is_served() {
    let router = Router::versioned().await;
    router.post("/owners", json!({"owner": "eval"})).await.ok();
    router.populate(1).await;
    router.post("/updates/u-1/publish", json!({"version": 1})).await.ok();
    let acknowledged: Value = router.post("/owners/o/ack", json!({"version": 1})).await.ok();
    assert_eq!(
        (&acknowledged["acknowledged"], &acknowledged["owner"]),
        (&json!(1), &json!("o"))
    );
    router.acquire(1, json!({})).await.ok();
    let late = json!({"sender": "e", "owner": "eval", "incarnation": "1"});
    router.post("/senders", late).await.ok();
    let eval = json!({"sender": "e", "incarnation": "1", "seq": 1});
    let error = router
        .post("/leases", eval.clone())
        .await
        .refused(425, "version_not_acked");
    assert_eq!(
        (&error["detail"]["owner"], &error["detail"]["published"]),
        (&json!("eval"), &json!(1))
    );
    router.post("/owners/eval/ack", json!({"version": 1})).await.ok();
    assert_eq!(router.post("/leases", eval).await.ok()["weight_version"], 1);
    router.finish().await;
}
