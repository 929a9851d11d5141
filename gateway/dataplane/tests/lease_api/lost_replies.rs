//! The client sends a call, loses the connection, and sends it again: every call has one effect.

use crate::kit::Router;
use crate::support::eventually;
use serde_json::{Value, json};

/// Sends `body`, leaves without reading the answer, waits until the call is over, and sends it again.
async fn twice(router: &Router, path: &str, body: Value) -> Value {
    let answered = |router: &Router| -> u64 {
        let statistics = router.plane.statistics();
        statistics.requests_total.iter().map(|(_, count)| count).sum()
    };
    let before = answered(router);
    let client = router.begin(path, body.clone()).await;
    eventually("the call took effect", || answered(router) > before).await;
    client.reset();
    router.post(path, body).await.ok()
}

/// A whole life of a pool in which every first answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_first_answer_is_lost() {
    let router = Router::versioned().await;
    let backends = json!({"backends": [{"id": "b0", "address": "h:1", "capacity": 1, "weight_version": 1}]});
    twice(&router, "/backends", backends).await;
    twice(&router, "/owners", json!({"owner": "o"})).await;
    let sender = json!({"sender": "s", "owner": "o", "incarnation": "1"});
    assert_eq!(twice(&router, "/senders", sender).await["already"], true);
    assert_eq!(
        twice(&router, "/updates/u-1/publish", json!({"version": 1})).await["replayed"],
        true
    );
    twice(&router, "/owners/o/ack", json!({"version": 1})).await;

    let acquire = json!({"sender": "s", "incarnation": "1", "seq": 1, "session": "k", "wait_ms": 5000});
    let lease = twice(&router, "/leases", acquire).await;
    assert_eq!((&lease["replayed"], router.outstanding()), (&json!(true), 1));
    let settle = format!("/leases/{}/settle", lease["lease_id"].as_str().expect("a lease"));
    let settled = twice(&router, &settle, json!({"outcome": "completed", "output_tokens": 5})).await;
    assert_eq!((&settled["already"], router.outstanding()), (&json!(true), 0));
    twice(
        &router,
        "/senders/s/heartbeat",
        json!({"incarnation": "1", "settled": [[1, 1]]}),
    )
    .await;

    let fence = json!({"owner": "o", "reason": "pause", "op_id": "f"});
    assert_eq!(twice(&router, "/fence", fence).await["fences"], json!(["pause"]));
    let begun = twice(&router, "/updates", json!({"update_id": "u-2", "to_version": 2})).await;
    assert_eq!((&begun["replayed"], &begun["pool_gen"]), (&json!(true), &json!(1)));
    assert_eq!(
        twice(&router, "/updates/u-2/drain", json!({"wait_ms": 5000})).await["phase"],
        "updating"
    );
    twice(&router, "/updates/u-2/resume", json!({})).await;
    assert_eq!(
        twice(&router, "/updates/u-2/publish", json!({"version": 2})).await["version"],
        2
    );
    twice(&router, "/owners/o/ack", json!({"version": 2})).await;
    let unfence = json!({"owner": "o", "reason": "pause", "op_id": "g"});
    assert_eq!(twice(&router, "/unfence", unfence).await["fences"], json!([]));

    let batch = json!({"requests": [
        {"acquire": {"sender": "s", "incarnation": "1", "seq": 2, "session": "k"}},
        {"acquire": {"sender": "s", "incarnation": "1", "seq": 3}},
    ]});
    let leases = twice(&router, "/leases:batch", batch).await;
    assert_eq!(router.outstanding(), 2);
    let settle: Vec<Value> = leases["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|result| json!({"settle": {"lease_id": result["body"]["lease_id"], "outcome": "completed"}}))
        .collect();
    twice(&router, "/leases:batch", json!({ "requests": settle })).await;
    assert_eq!(router.outstanding(), 0);
    twice(&router, "/sessions/k/close", json!({"sender": "s"})).await;
    twice(&router, "/close", json!({"reason": "over"})).await;

    let pool = router.get("").await.ok();
    assert_eq!(
        (
            &pool["counts"]["outcomes"]["completed"],
            &pool["counts"]["output_tokens"]
        ),
        (&json!(3), &json!(5))
    );
    assert_eq!(
        (&pool["state"], &pool["pool_gen"], &pool["counts"]["leases"]),
        (&json!("closed"), &json!(1), &json!(0))
    );
    router.finish().await;
}
