//! A repeated call has one effect (the interleavings of areal 6.1).

use crate::kit::{Router, acquire_body, reply};
use serde_json::json;

/// The same key again is the same lease, also when the owner was fenced since (areal 6.1 a).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_a_same_key_same_lease() {
    let router = Router::start().await;
    router.populate(3).await;
    let first = router.acquire(1, json!({"session": "k"})).await.ok();
    assert_eq!(first["replayed"], false);
    for _ in 0..3 {
        let again = router.acquire(1, json!({"session": "k"})).await.ok();
        assert_eq!(
            (&again["lease_id"], &again["backend"]),
            (&first["lease_id"], &first["backend"])
        );
        assert_eq!(again["replayed"], true);
    }
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    assert_eq!(
        router.acquire(1, json!({"session": "k"})).await.ok()["lease_id"],
        first["lease_id"]
    );
    router.acquire(2, json!({"session": "k"})).await.refused(425, "fenced");
    assert_eq!(router.outstanding(), 1);
    router.settle(&first, "completed").await.ok();
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// Hedged: many identical acquires at once are one lease (areal 6.1 b).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_b_concurrent_duplicates() {
    let router = Router::start().await;
    router.populate(3).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(
            router
                .begin("/leases", acquire_body(1, json!({"session": "k", "wait_ms": 1000})))
                .await,
        );
    }
    let mut leases = std::collections::HashSet::new();
    for client in clients {
        leases.insert(
            reply(client).await.ok()["lease_id"]
                .as_str()
                .expect("a lease")
                .to_owned(),
        );
    }
    assert_eq!((leases.len(), router.outstanding()), (1, 1));
    router.finish().await;
}

/// A repetition that arrives while the first is parked joins it: both wake with one lease (areal 6.1 c).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_c_a_duplicate_of_a_parked_acquire() {
    let router = Router::start().await;
    router.populate(2).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let body = acquire_body(1, json!({"session": "k", "wait_ms": 20000}));
    let first = router.begin("/leases", body.clone()).await;
    router.parked(1).await;
    let second = router.begin("/leases", body.clone()).await;
    crate::support::eventually("both calls are open", || router.plane.statistics().open_requests == 2).await;
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    let (first, second) = (reply(first).await.ok(), reply(second).await.ok());
    assert_eq!(first["lease_id"], second["lease_id"]);
    assert_eq!(router.outstanding(), 1);
    router.finish().await;
}

/// A delayed duplicate of a settled request never brings a lease back, also when its record is long gone (6.1 d).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_d_no_ghost_leases() {
    let router = Router::start().await;
    router.populate(1).await;
    let lease = router.acquire(1, json!({})).await.ok();
    router.settle(&lease, "completed").await.ok();
    let error = router.acquire(1, json!({})).await.refused(409, "request_settled");
    assert_eq!(
        (&error["detail"]["outcome"], &error["retryable"]),
        (&json!("completed"), &json!(false))
    );
    let heartbeat = json!({"incarnation": "1", "settled": [[1, 1]]});
    assert_eq!(
        router.post("/senders/s/heartbeat", heartbeat).await.ok()["tombstones"],
        0
    );
    router.acquire(1, json!({})).await.refused(409, "stale_request");
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// Settling twice is once; another outcome is a conflict and changes nothing (areal 6.1 e).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_e_settled_once() {
    let router = Router::start().await;
    router.populate(1).await;
    let first = router.acquire(1, json!({"session": "k"})).await.ok();
    assert_eq!(router.settle(&first, "completed").await.ok()["already"], false);
    let second = router.acquire(2, json!({"session": "k"})).await.ok();
    let again = router.settle(&first, "completed").await.ok();
    assert_eq!(
        (&again["already"], &again["outcome"]),
        (&json!(true), &json!("completed"))
    );
    let error = router.settle(&first, "failed").await.refused(409, "outcome_conflict");
    assert_eq!(
        (&error["detail"]["recorded"], &error["detail"]["reported"]),
        (&json!("completed"), &json!("failed"))
    );
    assert_eq!(router.outstanding(), 1, "the duplicate ended the next lease");
    router.settle(&second, "completed").await.ok();
    for unknown in ["ffffffffffffffff", "nonsense"] {
        router
            .settle(&json!({"lease_id": unknown}), "completed")
            .await
            .refused(404, "unknown_lease");
    }
    router.finish().await;
}

/// The same key with another body is refused, and the first lease stays as it is (areal 6.1 h).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_h_another_body() {
    let router = Router::start().await;
    router.populate(2).await;
    let first = router.acquire(1, json!({"session": "k"})).await.ok();
    router
        .acquire(1, json!({"session": "other"}))
        .await
        .refused(409, "idempotency_conflict");
    router.acquire(1, json!({})).await.refused(409, "idempotency_conflict");
    // Which backends to avoid is a hint, not part of what is asked for.
    let again = router
        .acquire(1, json!({"session": "k", "exclude": ["b0", "gone"]}))
        .await
        .ok();
    assert_eq!(again["lease_id"], first["lease_id"]);
    assert_eq!(router.outstanding(), 1);
    router.finish().await;
}

/// Fencing twice for one reason and unfencing once is open; a late duplicate of a fence fences nobody (6.1 i).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_i_fences_are_sets() {
    let router = Router::start().await;
    router.populate(1).await;
    let fence = json!({"owner": "o", "reason": "r", "op_id": "f1"});
    for _ in 0..2 {
        assert_eq!(router.post("/fence", fence.clone()).await.ok()["fences"], json!(["r"]));
    }
    let unfence = json!({"owner": "o", "reason": "r", "op_id": "u1"});
    assert_eq!(router.post("/unfence", unfence).await.ok()["fences"], json!([]));
    assert_eq!(router.post("/fence", fence).await.ok()["fences"], json!([]));
    let other = json!({"owner": "o", "reason": "else", "op_id": "f1"});
    router.post("/fence", other).await.refused(409, "idempotency_conflict");
    let lease = router.acquire(1, json!({})).await.ok();
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}

/// Publishing twice, the second time after new grants, changes nothing (areal 6.1 j).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_1_j_published_once() {
    let router = Router::versioned().await;
    router.populate(1).await;
    let publish = json!({"version": 5});
    assert_eq!(
        router.post("/updates/u-5/publish", publish.clone()).await.ok()["replayed"],
        false
    );
    router.post("/owners/o/ack", json!({"version": 5})).await.ok();
    let lease = router.acquire(1, json!({})).await.ok();
    assert_eq!(lease["weight_version"], 5);
    assert_eq!(
        router.post("/updates/u-5/publish", publish).await.ok()["replayed"],
        true
    );
    assert_eq!(router.outstanding(), 1);
    router
        .post("/updates/u-5/publish", json!({"version": 6}))
        .await
        .refused(409, "idempotency_conflict");
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}
