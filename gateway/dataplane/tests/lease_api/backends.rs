//! Registering and removing backends.

use crate::kit::Router;
use crate::support::eventually;
use serde_json::json;

/// However an address is written it is one backend; the same list again changes nothing (R01).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_one_address_is_one_backend() {
    let router = Router::start().await;
    let add = async |address: &str| {
        let body = json!({"backends": [{"address": address, "capacity": 2.0}]});
        router.post("/backends", body).await.ok()["backends"].clone()
    };
    let first = add("http://Host:1/").await;
    assert_eq!(first[0]["authority"], "host:1");
    assert_eq!(first[0]["url"], "http://host:1");
    for same in ["host:1", "HOST:1", "http://host:1", "HTTP://host:1/"] {
        assert_eq!(add(same).await, first, "{same}");
    }
    assert_eq!(add("[::1]:1").await, add("http://::1:1").await);
    assert_eq!(router.get("").await.ok()["backends"].as_array().map(Vec::len), Some(2));
    router.finish().await;
}

/// A lease on an engine behind TLS says so: who takes the URL of a lease must not speak plain text to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_keeps_the_scheme_of_its_engine() {
    let router = Router::start().await;
    let body = json!({"backends": [{"address": "https://127.0.0.1:1", "capacity": 1.0}]});
    router.post("/backends", body).await.ok();
    router.attach("s", "o").await;
    let lease = router.acquire(1, json!({})).await.ok();
    assert_eq!(
        (&lease["url"], &lease["authority"]),
        (&json!("https://127.0.0.1:1"), &json!("127.0.0.1:1"))
    );
    router.finish().await;
}

/// A list is registered whole or not at all; another capacity needs `replace` (R02, R08).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r02_a_list_is_atomic() {
    let router = Router::start().await;
    for (bad, code) in [
        (json!({"address": "h:0", "capacity": 1}), "invalid_address"),
        (json!({"address": "ftp://h:1", "capacity": 1}), "invalid_address"),
        (json!({"address": "h:1", "capacity": 0}), "invalid_capacity"),
        (json!({"address": "h:1", "capacity": 1, "id": ""}), "invalid_request"),
    ] {
        let body = json!({"backends": [{"address": "good:1", "capacity": 1}, bad]});
        router.post("/backends", body).await.refused(422, code);
        assert_eq!(router.get("").await.ok()["backends"], json!([]));
    }
    let with = |capacity: f64, replace: bool| json!({"backends": [{"id": "b", "address": "h:1", "capacity": capacity}], "replace": replace});
    router.post("/backends", with(1.0, false)).await.ok();
    router
        .post("/backends", with(2.0, false))
        .await
        .refused(409, "idempotency_conflict");
    assert_eq!(router.get("").await.ok()["backends"][0]["capacity"], 1.0);
    let replaced = router.post("/backends", with(2.0, true)).await.ok();
    assert_eq!(replaced["backends"][0]["capacity"], 2.0);
    router.finish().await;
}

/// A backend is removed once nothing runs on it; until then it drains, and the call says how much is left (R04).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_removal_waits_for_what_runs() {
    let router = Router::start().await;
    router.populate(1).await;
    let lease = router.acquire(1, json!({"session": "k"})).await.ok();
    let error = router.delete("/backends/b0").await.refused(409, "backend_busy");
    assert_eq!(
        (&error["detail"]["outstanding"], &error["retryable"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(router.get("").await.ok()["backends"][0]["draining"], true);
    router.acquire(2, json!({})).await.refused(425, "no_eligible_backend");

    let mut waiting = crate::support::client::Client::connect(&router.plane).await;
    let open = router.plane.statistics().open_requests;
    waiting
        .send(router.request("DELETE", "/backends/b0?drain_ms=20000", None))
        .await;
    eventually("the removal waits", || router.plane.statistics().open_requests > open).await;
    router.settle(&lease, "completed").await.ok();
    let removed = crate::kit::reply(waiting).await.ok();
    assert_eq!(
        (&removed["removed"], &removed["already"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(router.get("").await.ok()["backends"], json!([]));
    router.finish().await;
}

/// A removal whose answer was lost is answered the same again; it never touches the next incarnation (I6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_repeated_removal_spares_the_next_incarnation() {
    let router = Router::start().await;
    router.populate(1).await;
    let old = router.get("").await.ok()["backends"][0]["generation"].clone();
    let path = format!("/backends/b0?generation={old}");
    assert_eq!(router.delete(&path).await.ok()["already"], false);
    assert_eq!(router.delete(&path).await.ok()["already"], true);
    assert_eq!(router.delete("/backends/b0").await.ok()["already"], true);
    router.delete("/backends/b9").await.refused(404, "unknown_backend");
    router
        .delete("/backends/b0?generation=77")
        .await
        .refused(404, "unknown_backend");

    router.populate(1).await;
    assert_eq!(router.delete(&path).await.ok()["already"], true);
    let backends = router.get("").await.ok()["backends"].clone();
    assert_eq!(backends.as_array().map(Vec::len), Some(1));
    assert_ne!(backends[0]["generation"], old);
    router.finish().await;
}
