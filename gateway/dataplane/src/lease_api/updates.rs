//! Driving a weight update: begin, drain, resume, publish; or fail, or cancel.

use super::error::{Refusal, Side, blocker_view};
use super::query::check_wait;
use super::reply::Answer;
use super::request::{BeginUpdate, Drain, Kind, Nothing, Publish, Reason};
use super::wait::{Changes, Ended};
use super::{Context, Stamped, view};
use crate::survey::{self, Activity};
use http::Response;
use router_core::error::Error;
use router_core::pool::Pool;
use router_core::time::Timestamp;
use router_core::update::{BeginUpdate as Begin, UpdateKind, UpdatePhase, UpdateStatus};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Pause before engines that run something are asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
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
            Kind::Pause => UpdateKind::Pause,
        },
        to_version: body.to_version,
    };
    step(context, |pool, now| pool.begin_update(&begin, now))
}

/// Waits until nothing is outstanding and the engines are idle, for `wait_ms` at most; the drain itself lasts from its
/// first call to its deadline.
pub(super) async fn drain(context: Context<'_>, id: &str, body: &Drain) -> Result<Response<Answer>, Refusal> {
    let wait = check_wait("wait_ms", body.wait_ms)?;
    let timeout = body.timeout_ms.map_or(DEFAULT_DRAIN, Duration::from_millis);
    let until = Instant::now() + wait;
    let mut deadline = None;
    let mut changes = Changes::of(std::iter::once(context.pool));
    loop {
        let looked_at = look_at_engines(context, id).await;
        let engines = looked_at.as_deref().unwrap_or_default();
        let busy: Vec<String> = engines.iter().filter_map(Engine::busy).collect();
        let drained = context.run(|pool, now| {
            let deadline = *deadline.get_or_insert_with(|| now.after(timeout));
            if looked_at.is_none() && is_drained(pool, id) {
                // The last lease ended since: the engines are asked first.
                return Ok(None);
            }
            let status = if busy.is_empty() {
                pool.drain(id, deadline, now)?
            } else {
                pool.hold_drain(id, &busy, deadline, now)?
            };
            let is_held = !busy.is_empty() && status.phase == UpdatePhase::Drained;
            let left = status.drain_deadline.map_or(wait, |deadline| deadline.since(now));
            let mut view = view::update(&status, now);
            view["blockers"] = pool.blockers().iter().map(blocker_view).collect();
            view["engines"] = engines.iter().map(Engine::view).collect();
            if is_held {
                // For whoever asks, the drain goes on.
                view["phase"] = UpdatePhase::Quiescing.as_str().into();
            }
            Ok(Some((is_held || status.phase == UpdatePhase::Quiescing, view, left)))
        });
        let drained = drained.map_err(|error| Refusal::of(&error, Side::Control))?;
        let Stamped {
            value: Some(value),
            stamp,
        } = drained
        else {
            continue;
        };
        let drained = Stamped { value, stamp };
        let (goes_on, _, left) = &drained.value;
        let now = Instant::now();
        if !*goes_on || now >= until {
            return Ok(context.ok(&drained.map(|(_, view, _)| view)));
        }
        // At the drain's own deadline the core is asked once more, and answers with what is in the way.
        let overdue = now.checked_add(*left + Duration::from_millis(1)).unwrap_or(until);
        let again = if busy.is_empty() {
            overdue
        } else {
            overdue.min(now + LOOK_AGAIN)
        };
        match changes.next(context.api, until.min(again)).await {
            Ended::Changed => {}
            Ended::TimeIsUp if again < until => {}
            Ended::TimeIsUp | Ended::Leaving => return Ok(context.ok(&drained.map(|(_, view, _)| view))),
        }
    }
}

/// An engine that is not known to be idle.
struct Engine {
    backend: String,
    activity: Activity,
}

impl Engine {
    /// For messages; `None` when it is not known to run anything.
    fn busy(&self) -> Option<String> {
        match self.activity {
            Activity::Busy { running, waiting } => {
                Some(format!("{} ({running} running, {waiting} waiting)", self.backend))
            }
            Activity::Idle | Activity::Unknown(_) => None,
        }
    }

    fn view(&self) -> Value {
        let (state, running, waiting, problem) = match &self.activity {
            Activity::Idle => ("idle", Some(0), Some(0), None),
            Activity::Busy { running, waiting } => ("busy", Some(*running), Some(*waiting), None),
            Activity::Unknown(why) => ("unknown", None, None, Some(why)),
        };
        json!({
            "backend": self.backend,
            "state": state,
            "running": running,
            "waiting": waiting,
            "problem": problem,
        })
    }
}

/// The engines that are not idle, once no lease is outstanding: what runs then came past the router (B59), or has
/// outlived its abort (B60). `None`: it is too early to ask them.
async fn look_at_engines(context: Context<'_>, id: &str) -> Option<Vec<Engine>> {
    if !context.pool.shared.with(|pool, _| is_drained(pool, id)) {
        return None;
    }
    let activities = survey::of_pool(&context.pool.upstreams, context.api.engine_key.as_ref()).await;
    let not_idle = activities
        .into_iter()
        .filter(|(_, activity)| *activity != Activity::Idle)
        .map(|(backend, activity)| Engine { backend, activity });
    Some(not_idle.collect())
}

fn is_drained(pool: &Pool, id: &str) -> bool {
    pool.update_status(id)
        .is_ok_and(|status| status.phase == UpdatePhase::Drained)
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
