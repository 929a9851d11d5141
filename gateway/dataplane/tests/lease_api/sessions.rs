//! Sessions: sticky, per sender, and closed.

use crate::kit::Router;
use serde_json::json;

/// A session stays where it is, and is another one for another sender (T04, T10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t04_t10_sessions_belong_to_senders() {
    let router = Router::start().await;
    router.populate(4).await;
    router.attach("e", "eval").await;
    let first = router.acquire(1, json!({"session": "17:0-0"})).await.ok();
    assert_eq!((&first["sticky"], &first["reason"]), (&json!(false), &json!("new")));
    let second = router.acquire(2, json!({"session": "17:0-0"})).await.ok();
    assert_eq!(
        (&second["sticky"], &second["backend"]),
        (&json!(true), &first["backend"])
    );
    let body = json!({"sender": "e", "incarnation": "1", "seq": 1, "session": "17:0-0"});
    let other = router.post("/leases", body).await.ok();
    assert_eq!(other["sticky"], false);
    assert_ne!(other["backend"], first["backend"]);
    let unpinned = router.acquire(3, json!({})).await.ok();
    assert_eq!(unpinned["reason"], "no_session");
    assert_eq!(
        unpinned["url"],
        json!(format!("http://{}", unpinned["authority"].as_str().expect("text")))
    );
    let avoided = router.acquire(4, json!({"exclude": ["b0", "b1", "b2"]})).await.ok();
    assert_eq!(avoided["backend"], "b3");
    router.finish().await;
}

/// Closing frees the pin of that sender only; an unknown session is closed already, and a key may be any text (T09).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t09_closing() {
    let router = Router::start().await;
    router.populate(2).await;
    let lease = router.acquire(1, json!({"session": "a/ä b"})).await.ok();
    let path = "/sessions/a%2F%C3%A4%20b/close";
    let foreign = router.post(path, json!({})).await.ok();
    assert_eq!(
        (&foreign["closed"], &foreign["open_leases"]),
        (&json!(false), &json!(0))
    );
    let closed = router.post(path, json!({"sender": "s"})).await.ok();
    assert_eq!((&closed["closed"], &closed["open_leases"]), (&json!(true), &json!(1)));
    let again = router.post(path, json!({"sender": "s"})).await.ok();
    assert_eq!(again["closed"], false);
    router
        .post(path, json!({"sender": "nobody"}))
        .await
        .refused(404, "unknown_sender");
    router.settle(&lease, "completed").await.ok();
    assert_eq!(
        router.acquire(2, json!({"session": "a/ä b"})).await.ok()["reason"],
        "new"
    );
    router.finish().await;
}
