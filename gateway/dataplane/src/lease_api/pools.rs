//! Looking at pools, waiting for their changes, and ending them.

use super::error::{Refusal, Side};
use super::query::Query;
use super::reply::{Answer, Stamp, json};
use super::request::{ClosePool, Reason};
use super::wait::{Changes, Ended};
use super::{ApiPool, Context, LeaseApi, Stamped, view};
use http::{Response, StatusCode};
use router_core::pool::Pool;
use router_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

/// One pool; with `since_gen`, once its revision is above that, or when `wait_ms` is over.
pub(super) async fn show(context: Context<'_>, query: &Query) -> Result<Response<Answer>, Refusal> {
    let pools = std::slice::from_ref(context.pool);
    let (mut pools, revision) = watch(context.api, pools, query).await?;
    let value = pools.pop().unwrap_or(Value::Null);
    let pool_gen = value["pool_gen"].clone();
    let mut answer = value;
    answer["incarnation"] = context.api.incarnation.as_str().into();
    answer["revision"] = revision.into();
    answer["pool_gen"] = pool_gen;
    Ok(json(StatusCode::OK, &answer))
}

/// All pools; their common revision is the sum of the single ones, so it grows with each.
pub(super) async fn list(api: &LeaseApi, query: &Query) -> Result<Response<Answer>, Refusal> {
    let (pools, revision) = watch(api, &api.pools, query).await?;
    let answer = json!({ "pools": pools, "revision": revision, "incarnation": api.incarnation });
    Ok(json(StatusCode::OK, &answer))
}

async fn watch(api: &LeaseApi, pools: &[ApiPool], query: &Query) -> Result<(Vec<Value>, u64), Refusal> {
    api.expect(query.text("expect_incarnation"))?;
    let since: Option<u64> = query.number("since_gen")?;
    let deadline = Instant::now() + query.wait("wait_ms")?;
    let mut changes = Changes::of(pools.iter());
    while let Some(since) = since
        && pools.iter().map(revision).sum::<u64>() <= since
        && changes.next(api, deadline).await == Ended::Changed
    {}
    let views: Vec<Value> = pools.iter().map(snapshot).collect();
    let revision = views.iter().filter_map(|view| view["revision"].as_u64()).sum();
    Ok((views, revision))
}

fn revision(pool: &ApiPool) -> u64 {
    pool.shared.with(|pool, _| Stamp::of(pool).revision())
}

fn snapshot(pool: &ApiPool) -> Value {
    // Only the numbers are taken under the pool's lock; they are turned into text outside of it.
    let (statistics, now) = pool.shared.with(|pool, now| (pool.statistics(), now));
    let mismatches = pool.shared.version_mismatches();
    view::pool(
        (&pool.role, &pool.model),
        &statistics,
        &pool.memory.lock(),
        mismatches,
        now,
    )
}

/// Ends a pool whose owner knows that something went wrong.
pub(super) fn fail(context: Context<'_>, body: &Reason) -> Result<Response<Answer>, Refusal> {
    end(context, |pool, now| pool.fail(&body.reason, now))
}

/// Ends a pool in good order.
pub(super) fn close(context: Context<'_>, body: &ClosePool) -> Result<Response<Answer>, Refusal> {
    let answer = end(context, Pool::close)?;
    if let Some(reason) = &body.reason {
        context
            .pool
            .memory
            .lock()
            .closed_because
            .get_or_insert_with(|| reason.clone());
    }
    Ok(answer)
}

fn end(context: Context<'_>, operation: impl FnOnce(&mut Pool, Timestamp)) -> Result<Response<Answer>, Refusal> {
    let ended: Stamped<Value> = context
        .run(|pool, now| {
            operation(pool, now);
            let state = pool.state();
            Ok(json!({ "state": state.as_str(), "failure": view::failure(&state, now) }))
        })
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&ended))
}
