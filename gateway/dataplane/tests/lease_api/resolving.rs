//! Executions of direct senders with an unknown end, and drains that wait for the engines themselves.

use crate::kit::{Router, acquire_body, reply};
use crate::support::engine::{Engine, Loads};
use crate::support::eventually;
use router_core::config::{OnAmbiguous, OnDrainTimeout};
use router_core::lease::Outcome;
use router_core::pool::PoolConfig;
use serde_json::{Value, json};
use std::time::Duration;

const RID: &str = "0123456789abcdef0123456789abcdef";

fn resolving() -> PoolConfig {
    PoolConfig {
        on_ambiguous: OnAmbiguous::Resolve,
        ..PoolConfig::default()
    }
}

/// A router with one engine called `e`, and the sender `s`; nobody sends the engine a generation here.
async fn with_engine(pool: PoolConfig, loads: Loads) -> (Router, Engine) {
    let engine = Engine::start(|_, _| Vec::new()).await;
    engine.says(loads);
    let router = Router::start_with(pool, |_| {}).await;
    let backend = json!({"id": "e", "address": engine.url(), "capacity": 1.0});
    router.post("/backends", json!({"backends": [backend]})).await.ok();
    router.attach("s", "o").await;
    (router, engine)
}

fn outcome(router: &Router, outcome: Outcome) -> u64 {
    router.pool.with(|pool, _| pool.statistics().outcomes.get(outcome))
}

fn unresolved(router: &Router) -> usize {
    router.pool.with(|pool, _| pool.unresolved().len())
}

async fn looked_at(engine: &Engine, times: u64) {
    let until = engine.looks() + times;
    eventually("the engine is asked", || engine.looks() >= until).await;
}

/// A sender says that it does not know how its request ended: the router aborts it by the id that the sender had named,
/// and the lease is lost once the engine has nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_request_is_aborted() {
    let (router, engine) = with_engine(resolving(), Loads::Running(1)).await;
    let lease = router.acquire(1, json!({"rid": RID})).await.ok();
    router.settle(&lease, "ambiguous").await.ok();
    looked_at(&engine, 4).await;
    assert_eq!((router.outstanding(), unresolved(&router)), (1, 1));
    assert_eq!(engine.aborts()[0], format!("{{\"rid\":\"{RID}\"}}"));
    engine.says(Loads::Running(0));
    eventually("lost", || outcome(&router, Outcome::Lost) == 1).await;
    // Whoever asks again learns it; nothing else can be said any more.
    let again = router.settle(&lease, "ambiguous").await.ok();
    assert_eq!((&again["outcome"], &again["already"]), (&json!("lost"), &json!(true)));
    router
        .settle(&lease, "completed")
        .await
        .refused(409, "outcome_conflict");
    assert_eq!(engine.seen().len(), 0, "the router sends no generation");
    router.finish().await;
}

/// The true end may still be told while the engine is asked; then there is nothing to find out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_true_end_is_better() {
    let (router, engine) = with_engine(resolving(), Loads::Running(1)).await;
    let lease = router
        .acquire(1, json!({"rid": [RID, "another-id-of-the-batch"]}))
        .await
        .ok();
    router.settle(&lease, "ambiguous").await.ok();
    looked_at(&engine, 2).await;
    assert!(engine.aborts().len() >= 2, "each id of a batch is aborted");
    router.settle(&lease, "completed").await.ok();
    assert_eq!((router.outstanding(), outcome(&router, Outcome::Completed)), (0, 1));
    engine.says(Loads::Running(0));
    looked_at(&engine, 0).await;
    assert_eq!(outcome(&router, Outcome::Lost), 0);
    router.finish().await;
}

/// Ids by which requests of others would be aborted are refused, and nothing is leased.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dangerous_ids_are_refused() {
    let (router, _engine) = with_engine(resolving(), Loads::Unsaid).await;
    for rid in [json!(""), json!("a1"), json!([RID, "0f"])] {
        let error = router
            .acquire(1, json!({ "rid": rid }))
            .await
            .refused(422, "invalid_request");
        assert!(error["message"].as_str().expect("a message").contains("rid"), "{error}");
    }
    assert_eq!(router.outstanding(), 0);
    router.finish().await;
}

/// A sender that vanishes leaves leases: with an id they are aborted, without one the engine's silence tells. An
/// acquire that had to wait is no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s67_a_lost_sender_is_resolved() {
    let pool = PoolConfig {
        sender_ttl: Duration::from_millis(300),
        ..resolving()
    };
    let (router, engine) = with_engine(pool, Loads::Running(2)).await;
    router.post("/fence", json!({"owner": "o", "reason": "r"})).await.ok();
    let waiting = acquire_body(1, json!({"rid": RID, "wait_ms": 20000}));
    let waiting = router.begin("/leases", waiting).await;
    router.parked(1).await;
    router.post("/unfence", json!({"owner": "o", "reason": "r"})).await.ok();
    reply(waiting).await.ok();
    router.acquire(2, json!({})).await.ok();
    eventually("the sender is lost", || unresolved(&router) == 2).await;
    looked_at(&engine, 3).await;
    assert_eq!(
        (router.outstanding(), router.pool.with(|pool, _| pool.state().as_str())),
        (2, "serving")
    );
    assert!(engine.aborts().iter().all(|abort| abort.contains(RID)));
    engine.says(Loads::Running(0));
    eventually("lost", || outcome(&router, Outcome::Lost) == 2).await;
    router.finish().await;
}

/// The drain of an update waits for the resolution and names what it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_the_resolution() {
    let (router, engine) = with_engine(resolving(), Loads::Running(1)).await;
    let lease = router.acquire(1, json!({"rid": RID})).await.ok();
    router.settle(&lease, "ambiguous").await.ok();
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let waiting = router.post("/updates/u/drain", json!({"wait_ms": 200})).await.ok();
    let blocker = &waiting["blockers"][0];
    assert_eq!(
        (&waiting["phase"], &blocker["ambiguous"]),
        (&json!("quiescing"), &json!(true))
    );
    assert_eq!(blocker["lease_id"], lease["lease_id"]);
    let drain = router.begin("/updates/u/drain", json!({"wait_ms": 20000})).await;
    engine.says(Loads::Running(0));
    let drained = reply(drain).await.ok();
    assert_eq!(
        (&drained["phase"], &drained["engines"]),
        (&json!("updating"), &json!([]))
    );
    assert_eq!(outcome(&router, Outcome::Lost), 1);
    router.finish().await;
}

/// Traffic that went past the router: no lease, and the engine runs something. The update waits for it (B59).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b59_a_drain_waits_for_engines() {
    let (router, engine) = with_engine(PoolConfig::default(), Loads::Running(1)).await;
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let waiting = router.post("/updates/u/drain", json!({"wait_ms": 300})).await.ok();
    assert_eq!(
        (&waiting["phase"], &waiting["outstanding"]),
        (&json!("quiescing"), &json!(0))
    );
    let busy = json!([{"backend": "e", "state": "busy", "running": 1, "waiting": 0, "problem": null}]);
    assert_eq!(waiting["engines"], busy);
    let drain = router.begin("/updates/u/drain", json!({"wait_ms": 20000})).await;
    looked_at(&engine, 2).await;
    engine.says(Loads::Running(0));
    assert_eq!(reply(drain).await.ok()["phase"], "updating");
    // Once it has succeeded it is done for good.
    engine.says(Loads::Running(1));
    assert_eq!(
        router.post("/updates/u/drain", json!({})).await.ok()["phase"],
        "updating"
    );
    router.finish().await;
}

/// At its deadline a drain with a busy engine fails, by name, as one with leases does (B59).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b59_at_the_deadline_the_engine_is_named() {
    for (policy, state) in [(OnDrainTimeout::Fail, "failed"), (OnDrainTimeout::Report, "drained")] {
        let pool = PoolConfig {
            on_drain_timeout: policy,
            ..PoolConfig::default()
        };
        let (router, _engine) = with_engine(pool, Loads::Running(3)).await;
        router.post("/updates", json!({"update_id": "u"})).await.ok();
        let late = json!({"timeout_ms": 400, "wait_ms": 20000});
        let error = router
            .post("/updates/u/drain", late)
            .await
            .refused(504, "drain_timeout");
        assert_eq!(error["detail"]["engines"], json!(["e (3 running, 0 waiting)"]));
        assert_eq!(error["detail"]["pool_failed"], policy == OnDrainTimeout::Fail);
        assert!(
            error["message"]
                .as_str()
                .expect("text")
                .contains("e (3 running, 0 waiting)"),
            "{error}"
        );
        let pool = router.get("").await.ok();
        assert_eq!(pool["state"], state);
        if policy == OnDrainTimeout::Fail {
            let failure = pool["failure"]["message"].as_str().expect("text");
            assert!(failure.contains("e (3 running, 0 waiting)"), "{failure}");
            // The same call again gets the same answer.
            let again = router
                .post("/updates/u/drain", json!({}))
                .await
                .refused(504, "drain_timeout");
            assert_eq!(again["detail"]["engines"], error["detail"]["engines"]);
        }
        router.finish().await;
    }
}

/// An abort is answered before it is carried out: the lease is settled, and the drain waits until the engine is idle in
/// two snapshots (B60).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b60_a_drain_is_not_over_when_the_abort_is_answered() {
    let (router, engine) = with_engine(PoolConfig::default(), Loads::Running(1)).await;
    let lease = router.acquire(1, json!({})).await.ok();
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let drain = router.begin("/updates/u/drain", json!({"wait_ms": 20000})).await;
    router.settle(&lease, "cancelled").await.ok();
    looked_at(&engine, 4).await;
    assert_eq!(router.get("").await.ok()["state"], "drained", "and nobody was told so");
    let before = engine.looks();
    engine.says(Loads::Running(0));
    assert_eq!(reply(drain).await.ok()["phase"], "updating");
    assert!(engine.looks() >= before + 2, "two snapshots, of which one is later");
    router.finish().await;
}

/// Engines that cannot say what they run are named and hold nothing up: one without the endpoint, one whose numbers
/// stand still, and one that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_cannot_say_hold_no_drain_up() {
    let (router, _engine) = with_engine(PoolConfig::default(), Loads::Unsaid).await;
    let (frozen, paused, gone) = (
        Engine::start(|_, _| Vec::new()).await,
        Engine::start(|_, _| Vec::new()).await,
        Engine::start(|_, _| Vec::new()).await,
    );
    frozen.says(Loads::Frozen(2));
    paused.says(Loads::Frozen(0));
    let backends: Vec<Value> = [("frozen", &frozen), ("paused", &paused), ("gone", &gone)]
        .into_iter()
        .map(|(id, engine)| json!({"id": id, "address": engine.url(), "capacity": 1.0}))
        .collect();
    router.post("/backends", json!({ "backends": backends })).await.ok();
    drop(gone);
    router.post("/updates", json!({"update_id": "u"})).await.ok();
    let drained = router.post("/updates/u/drain", json!({"wait_ms": 20000})).await.ok();
    assert_eq!(drained["phase"], "updating");
    let told: Vec<(&str, &str)> = drained["engines"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|engine| {
            (
                engine["backend"].as_str().expect("an id"),
                engine["problem"].as_str().expect("why"),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("e", "GET /v1/loads was answered 404"),
            (
                "frozen",
                "its numbers do not change, as those of a paused or hung engine"
            ),
            ("gone", "nobody listens there"),
        ]
    );
    assert!(
        drained["engines"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|engine| engine["state"] == "unknown")
    );
    router.finish().await;
}
