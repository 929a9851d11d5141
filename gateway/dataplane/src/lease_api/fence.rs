//! Fencing an owner: when the answer is on its way, nothing more is granted to it.

use super::error::{Refusal, Side};
use super::reply::Answer;
use super::request::Fence;
use super::{Context, view};
use http::Response;

pub(super) fn fence(context: Context<'_>, body: &Fence) -> Result<Response<Answer>, Refusal> {
    let status = context
        .run(|pool, now| pool.fence(&body.owner, &body.reason, body.op_id.as_deref(), now))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status.map(|status| view::owner(&status))))
}

pub(super) fn unfence(context: Context<'_>, body: &Fence) -> Result<Response<Answer>, Refusal> {
    let status = context
        .run(|pool, now| pool.unfence(&body.owner, &body.reason, body.op_id.as_deref(), now))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status.map(|status| view::owner(&status))))
}
