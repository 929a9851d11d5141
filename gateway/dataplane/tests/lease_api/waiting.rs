//! Everything that waits: order, deadlines, and clients that leave.

use crate::kit::{Router, acquire_body, reply};
use crate::support::eventually;
use router_core::pool::PoolConfig;
use serde_json::json;
use std::time::{Duration, Instant};

/// Waiters are served in the order of their arrival, one for each place that becomes free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served() {
    let config = PoolConfig {
        max_outstanding: Some(1),
        ..PoolConfig::default()
    };
    let router = Router::start_with(config, |_| {}).await;
    router.populate(2).await;
    let mut held = router.acquire(1, json!({})).await.ok();
    router.acquire(2, json!({})).await.refused(429, "at_capacity");
    let mut waiting = Vec::new();
    for seq in 2..=40 {
        waiting.push(
            router
                .begin("/leases", acquire_body(seq, json!({"wait_ms": 20000})))
                .await,
        );
        router.parked(u32::try_from(waiting.len()).expect("few")).await;
    }
    for client in waiting {
        router.settle(&held, "completed").await.ok();
        // Only the oldest can have been served, as there is one place.
        held = reply(client).await.ok();
        assert_eq!(router.outstanding(), 1);
    }
    router.settle(&held, "completed").await.ok();
    router.finish().await;
}

/// Hundreds of parked acquires wake at once, each with its own lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wake_at_once() {
    let router = Router::start().await;
    router.populate(4).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let mut waiting = Vec::new();
    for seq in 1..=400 {
        let body = acquire_body(seq, json!({"session": format!("k{seq}"), "wait_ms": 20000}));
        waiting.push(router.begin("/leases", body).await);
    }
    router.parked(400).await;
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    let mut leases = std::collections::HashSet::new();
    for client in waiting {
        let lease = reply(client).await.ok();
        leases.insert(lease["lease_id"].as_str().expect("a lease").to_owned());
    }
    assert_eq!((leases.len(), router.outstanding()), (400, 400));
    let pool = router.get("").await.ok();
    let outstanding: Vec<_> = pool["backends"]
        .as_array()
        .expect("backends")
        .iter()
        .map(|b| b["outstanding"].clone())
        .collect();
    assert_eq!(outstanding, [100, 100, 100, 100]);
    router.finish().await;
}

/// At the end of its time an acquire is told what it waited for, and keeps nothing; the same key goes on later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines() {
    let router = Router::start().await;
    router.attach("s", "o").await;
    let start = Instant::now();
    router
        .acquire(1, json!({"wait_ms": 80}))
        .await
        .refused(425, "no_eligible_backend");
    assert!(start.elapsed() >= Duration::from_millis(80));
    assert_eq!(router.waiters(), 0);
    let waiting = router
        .begin("/leases", acquire_body(1, json!({"wait_ms": 20000})))
        .await;
    router.parked(1).await;
    let backend = json!({"backends": [{"id": "b", "address": "h:1", "capacity": 1}]});
    router.post("/backends", backend).await.ok();
    let lease = reply(waiting).await.ok();
    assert_eq!((&lease["backend"], &lease["replayed"]), (&json!("b"), &json!(false)));
    router.settle(&lease, "completed").await.ok();
    router.finish().await;
}

/// A client that leaves while it is parked leaves the queue, whichever way it goes (areal 6.5 g).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_5_g_leaving_the_queue() {
    let router = Router::start().await;
    router.populate(1).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    for seq in 1..=20 {
        let client = router
            .begin("/leases", acquire_body(seq, json!({"wait_ms": 20000})))
            .await;
        router.parked(1).await;
        if seq % 2 == 0 {
            client.reset();
        } else {
            drop(client);
        }
        router.parked(0).await;
    }
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// Clients leave at the very moment their grant is made: every lease is either delivered, or settled as not sent, or
/// found again by the same key; nothing stays counted that nobody can settle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_race_with_clients_that_leave() {
    let router = Router::start().await;
    router.populate(2).await;
    for round in 0..20_u64 {
        router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
        let mut clients = Vec::new();
        for index in 0..10 {
            let seq = round * 10 + index + 1;
            clients.push(
                router
                    .begin("/leases", acquire_body(seq, json!({"wait_ms": 20000})))
                    .await,
            );
        }
        router.parked(10).await;
        let leaving = tokio::spawn(async move {
            for client in clients {
                client.reset();
                tokio::task::yield_now().await;
            }
        });
        router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
        leaving.await.expect("no panic");
        eventually("everybody has left", || {
            router.waiters() == 0 && router.plane.statistics().open_requests == 0
        })
        .await;
        for index in 0..10 {
            let seq = round * 10 + index + 1;
            let reply = router.acquire(seq, json!({})).await;
            if reply.status == 200 {
                // Not `not_sent` here: that is a failure of the backend, and two of them would be down soon.
                router.settle(&reply.ok(), "cancelled").await.ok();
            } else {
                let error = reply.refused(409, "request_settled");
                assert_eq!(error["detail"]["outcome"], "not_sent");
            }
        }
        assert_eq!(router.outstanding(), 0);
    }
    router.finish().await;
}

/// A turn that waits for a session which is closed meanwhile is not begun, when its time has come (areal 6.5 c, d).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_5_d_closed_while_parked() {
    let router = Router::start().await;
    router.populate(1).await;
    let lease = router.acquire(1, json!({"session": "k"})).await.ok();
    router.settle(&lease, "completed").await.ok();
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let parked = router
        .begin("/leases", acquire_body(2, json!({"session": "k", "wait_ms": 20000})))
        .await;
    router.parked(1).await;
    router.post("/sessions/k/close", json!({"sender": "s"})).await.ok();
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    reply(parked).await.refused(409, "session_closed");
    router.finish().await;
}

/// A data plane that ends answers those who wait, instead of holding them for its whole grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_answers_those_who_wait() {
    let router = Router::start().await;
    router.populate(1).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let revision = router.get("").await.ok()["revision"].clone();
    let acquire = router
        .begin("/leases", acquire_body(1, json!({"wait_ms": 30000})))
        .await;
    router.parked(1).await;
    let mut watcher = crate::support::client::Client::connect(&router.plane).await;
    watcher
        .send(router.request("GET", &format!("?since_gen={revision}&wait_ms=30000"), None))
        .await;
    eventually("both wait", || router.plane.statistics().open_requests == 2).await;
    let Router { plane, pool, .. } = router;
    let start = Instant::now();
    let stopped = tokio::task::spawn_blocking(move || plane.shutdown(Duration::from_secs(20)));
    reply(acquire).await.refused(425, "fenced");
    assert_eq!(reply(watcher).await.ok()["revision"], revision);
    stopped.await.expect("shut down");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(pool.with(|pool, _| pool.statistics().control.waiters), 0);
}
