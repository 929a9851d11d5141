//! Whether the engines of a pool are idle, in their own words.
//!
//! Leases stand for what came through the router. A request that went past it (a second path, an old client, a
//! generation that outlived its abort) shows only in the numbers of its engine. One reading is not enough: an engine
//! that was told to abort, or that is about to begin, is idle for a moment; so idle is what two snapshots say of which
//! one is later than the other. Numbers that do not move are those of a paused engine, and prove nothing; unless it
//! says that it is ready, then it is inside a long step.

use crate::body::Outgoing;
use crate::loads::{self, Loads, Said};
use crate::upstream::{Caller, Upstream, Upstreams};
use futures_util::stream::{self, StreamExt};
use http::{HeaderValue, Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For one engine to show what it does.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pauses between two readings: the first, doubled up to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(160));
/// Engines asked at a time.
const AT_A_TIME: usize = 64;

/// What an engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Idle,
    Busy {
        running: u64,
        waiting: u64,
    },
    /// It cannot say, and why.
    Unknown(String),
}

/// Asks every engine of a pool; takes little more than a second, however they answer.
pub(crate) async fn of_pool(upstreams: &Upstreams, key: Option<&HeaderValue>) -> Vec<(String, Activity)> {
    let backends: Vec<_> = upstreams.shared().with(|pool, _| pool.backends().cloned().collect());
    stream::iter(backends)
        .map(|backend| async move {
            let upstream: Arc<Upstream> = upstreams.of(&backend);
            (backend.id.clone(), of_engine(&upstream, key).await)
        })
        .buffered(AT_A_TIME)
        .collect()
        .await
}

async fn of_engine(upstream: &Upstream, key: Option<&HeaderValue>) -> Activity {
    let until = Instant::now() + PATIENCE;
    let mut pause = PAUSES.0;
    let mut last: Option<Loads> = None;
    loop {
        let loads = match loads::ask(upstream, key, PATIENCE).await {
            Said::Loads(loads) => loads,
            Said::Refused => return Activity::Unknown("nobody listens there".to_owned()),
            Said::Nothing(why) => return Activity::Unknown(why),
        };
        let is_later = last.as_ref().is_some_and(|last| loads.is_later_than(last));
        if is_later && loads.total() > 0 {
            return busy(&loads);
        }
        if is_later && last.is_some_and(|last| last.total() == 0) {
            return Activity::Idle;
        }
        if Instant::now() >= until {
            return unmoved(upstream, key, &loads).await;
        }
        last = Some(loads);
        tokio::time::sleep(pause).await;
        pause = PAUSES.1.min(pause * 2);
    }
}

fn busy(loads: &Loads) -> Activity {
    Activity::Busy {
        running: loads.running,
        waiting: loads.waiting,
    }
}

/// What numbers mean that do not change.
async fn unmoved(upstream: &Upstream, key: Option<&HeaderValue>, loads: &Loads) -> Activity {
    let call = upstream.call(Method::GET, "/ready", Outgoing::empty(), Caller::with_key(key));
    let answer = tokio::time::timeout(PATIENCE, call).await;
    match (answer, loads.total()) {
        (Ok(Ok(StatusCode::OK)), 1..) => busy(loads),
        (Ok(Ok(StatusCode::SERVICE_UNAVAILABLE)), 0) => Activity::Idle,
        _ => Activity::Unknown("its numbers do not change, as those of a paused or hung engine".to_owned()),
    }
}
