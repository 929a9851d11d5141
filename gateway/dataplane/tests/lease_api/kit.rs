//! A data plane with one pool `r/m` and a client that speaks JSON to its lease API.

use crate::support::client::{Answer, Client};
use crate::support::eventually;
use dataplane::{Config, DataPlane, RoleConfig, SharedPool};
use router_core::config::Start;
use router_core::pool::PoolConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Router {
    pub(crate) plane: DataPlane,
    pub(crate) pool: Arc<SharedPool>,
    key: Option<String>,
}

/// An answer and its JSON.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) answer: Answer,
}

impl Reply {
    pub(crate) fn of(answer: Answer) -> Self {
        let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        Self {
            status: answer.status,
            body,
            answer,
        }
    }

    /// The body of a call that worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(
            self.body["incarnation"].as_str().map(str::len),
            Some(32),
            "{}",
            self.body
        );
        assert!(self.body["revision"].is_u64(), "{}", self.body);
        self.body
    }

    /// The error object of a call that was refused so.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, &self.body["error"]["code"]),
            (status, &json!(code)),
            "{}",
            self.body
        );
        assert_eq!(self.answer.header("x-trimtab-error"), Some(code));
        let error = self.body["error"].clone();
        let retryable = error["retryable"].as_bool().expect("a verdict");
        assert_eq!(self.answer.header("x-should-retry"), (!retryable).then_some("false"));
        assert_eq!(error["retry_after_ms"].is_u64(), retryable);
        assert!(!error["message"].as_str().unwrap_or_default().is_empty());
        assert!(self.body["incarnation"].is_string());
        error
    }
}

impl Router {
    pub(crate) async fn start() -> Self {
        Self::start_with(PoolConfig::default(), |_| {}).await
    }

    /// A pool that waits for its first version, like that of a controller.
    pub(crate) async fn versioned() -> Self {
        let config = PoolConfig {
            start: Start::AwaitVersion,
            ..PoolConfig::default()
        };
        Self::start_with(config, |_| {}).await
    }

    pub(crate) async fn start_with(pool: PoolConfig, adjust: impl FnOnce(&mut Config)) -> Self {
        let pool = SharedPool::new("r/m", pool);
        let mut config = Config::new(vec![RoleConfig::single("r", "m", Arc::clone(&pool))]);
        // The backends of these tests are names: nobody listens there.
        config.timeouts.probe_interval = Duration::from_secs(3600);
        adjust(&mut config);
        let key = config.admin_key.clone();
        let plane = tokio::task::spawn_blocking(|| dataplane::start(config).expect("started"))
            .await
            .expect("no panic");
        Self { plane, pool, key }
    }

    /// The text of a request; `path` is relative to the pool unless it is absolute.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> String {
        let path = if path.starts_with("/v1/") {
            path.to_owned()
        } else {
            format!("/v1/router/pools/r/m{path}")
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = self.key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n"));
        format!(
            "{method} {path} HTTP/1.1\r\nhost: g\r\n{}content-length: {}\r\n\r\n{body}",
            key.unwrap_or_default(),
            body.len()
        )
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        self.send_raw(&self.request(method, path, body)).await
    }

    pub(crate) async fn send_raw(&self, request: &str) -> Reply {
        let mut client = Client::connect(&self.plane).await;
        Reply::of(client.ask(request).await)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, Some(&body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path, None).await
    }

    /// Sends a call and does not wait for its answer.
    pub(crate) async fn begin(&self, path: &str, body: Value) -> Client {
        let mut client = Client::connect(&self.plane).await;
        client.send(self.request("POST", path, Some(&body))).await;
        client
    }

    /// Registers backends called `b0`, `b1`, …, and the sender `s` of the owner `o`.
    pub(crate) async fn populate(&self, backends: usize) {
        let backends: Vec<Value> = (0..backends)
            .map(|index| json!({"id": format!("b{index}"), "address": format!("10.0.0.{}:80", index + 1), "capacity": 1.0}))
            .collect();
        self.post("/backends", json!({ "backends": backends })).await.ok();
        self.attach("s", "o").await;
    }

    pub(crate) async fn attach(&self, sender: &str, owner: &str) -> Value {
        let body = json!({"sender": sender, "owner": owner, "incarnation": "1"});
        self.post("/senders", body).await.ok()
    }

    /// An acquire of the sender `s`.
    pub(crate) async fn acquire(&self, seq: u64, more: Value) -> Reply {
        self.post("/leases", acquire_body(seq, more)).await
    }

    pub(crate) async fn settle(&self, lease: &Value, outcome: &str) -> Reply {
        let id = lease["lease_id"].as_str().expect("a lease");
        self.post(&format!("/leases/{id}/settle"), json!({ "outcome": outcome }))
            .await
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.pool.with(|pool, _| pool.statistics().outstanding)
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.pool.with(|pool, _| pool.statistics().control.waiters)
    }

    /// Waits until so many acquires are parked.
    pub(crate) async fn parked(&self, count: u32) {
        eventually("the acquires are parked", || self.waiters() == count).await;
    }

    /// What must be true after every test: nobody waits, and the threads end.
    pub(crate) async fn finish(self) {
        eventually("no request is open", || self.plane.statistics().open_requests == 0).await;
        assert_eq!(self.waiters(), 0);
        let Self { plane, .. } = self;
        let statistics = tokio::task::spawn_blocking(move || {
            plane.shutdown(Duration::from_secs(2));
            plane.statistics()
        })
        .await
        .expect("shut down");
        assert_eq!(statistics.connections, 0);
    }
}

/// The body of an acquire of the sender `s`, with the members of `more`.
pub(crate) fn acquire_body(seq: u64, more: Value) -> Value {
    let mut body = json!({"sender": "s", "incarnation": "1", "seq": seq});
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body
}

/// The answer that a client is waiting for.
pub(crate) async fn reply(mut client: Client) -> Reply {
    Reply::of(client.answer().await)
}
