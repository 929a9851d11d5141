//! Driving a weight update: begin, drain, resume, publish; or fail, or cancel.

use super::error::{Refusal, Side, blocker_view};
use super::query::check_wait;
use super::reply::Answer;
use super::request::{BeginUpdate, Drain, Kind, Nothing, Publish, Reason};
use super::wait::{Changes, Ended};
use super::{Context, Stamped, view};
use http::Response;
use router_core::error::Error;
use router_core::pool::Pool;
use router_core::time::Timestamp;
use router_core::update::{BeginUpdate as Begin, UpdateKind, UpdatePhase, UpdateStatus};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// When a drain gives up that does not say.
const DEFAULT_DRAIN: Duration = Duration::from_secs(300);

fn step(
    context: Context<'_>,
    operation: impl FnOnce(&mut Pool, Timestamp) -> Result<UpdateStatus, Error>,
) -> Result<Response<Answer>, Refusal> {
    let status: Stamped<Value> = context
        .run(|pool, now| operation(pool, now).map(|status| view::update(&status, now)))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status))
}

pub(super) fn begin(context: Context<'_>, body: &BeginUpdate) -> Result<Response<Answer>, Refusal> {
    let begin = Begin {
        id: &body.update_id,
        kind: match body.kind {
            Kind::Weights => UpdateKind::Weights,
            Kind::Offload => UpdateKind::Offload,
        },
        to_version: body.to_version,
    };
    step(context, |pool, now| pool.begin_update(&begin, now))
}

/// Waits until nothing is outstanding, for `wait_ms` at most; the drain itself lasts from its first call to its deadline.
pub(super) async fn drain(context: Context<'_>, id: &str, body: &Drain) -> Result<Response<Answer>, Refusal> {
    let wait = check_wait("wait_ms", body.wait_ms)?;
    let timeout = body.timeout_ms.map_or(DEFAULT_DRAIN, Duration::from_millis);
    let until = Instant::now() + wait;
    let mut deadline = None;
    let mut changes = Changes::of(std::iter::once(context.pool));
    loop {
        let drained = context.run(|pool, now| {
            let deadline = *deadline.get_or_insert_with(|| now.after(timeout));
            let status = pool.drain(id, deadline, now)?;
            let left = status.drain_deadline.map_or(wait, |deadline| deadline.since(now));
            let mut view = view::update(&status, now);
            view["blockers"] = pool.blockers().iter().map(blocker_view).collect();
            Ok((status.phase, view, left))
        });
        let drained = drained.map_err(|error| Refusal::of(&error, Side::Control))?;
        let (phase, _, left) = &drained.value;
        let now = Instant::now();
        if *phase != UpdatePhase::Quiescing || now >= until {
            return Ok(context.ok(&drained.map(|(_, view, _)| view)));
        }
        // At the drain's own deadline the core is asked once more, and answers with what is in the way.
        let overdue = now.checked_add(*left + Duration::from_millis(1)).unwrap_or(until);
        match changes.next(context.api, until.min(overdue)).await {
            Ended::Changed => {}
            Ended::TimeIsUp if overdue < until => {}
            Ended::TimeIsUp | Ended::Leaving => return Ok(context.ok(&drained.map(|(_, view, _)| view))),
        }
    }
}

pub(super) fn resume(context: Context<'_>, id: &str, _: &Nothing) -> Result<Response<Answer>, Refusal> {
    step(context, |pool, now| pool.end_server_pause(id, now))
}

pub(super) fn publish(context: Context<'_>, id: &str, body: &Publish) -> Result<Response<Answer>, Refusal> {
    step(context, |pool, now| pool.publish(id, body.version, body.epoch, now))
}

pub(super) fn fail(context: Context<'_>, id: &str, body: &Reason) -> Result<Response<Answer>, Refusal> {
    step(context, |pool, now| pool.fail_update(id, &body.reason, now))
}

pub(super) fn cancel(context: Context<'_>, id: &str, _: &Nothing) -> Result<Response<Answer>, Refusal> {
    step(context, |pool, now| pool.cancel_update(id, now))
}
