//! Owners: making them known, and what they acknowledge.

use super::error::{Refusal, Side};
use super::reply::Answer;
use super::request::{Acknowledge, AttachOwner};
use super::{Context, view};
use http::Response;

pub(super) fn attach(context: Context<'_>, body: &AttachOwner) -> Result<Response<Answer>, Refusal> {
    let status = context
        .run(|pool, now| pool.attach_owner(&body.owner, body.version, now))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status.map(|status| view::owner(&status))))
}

pub(super) fn acknowledge(context: Context<'_>, owner: &str, body: &Acknowledge) -> Result<Response<Answer>, Refusal> {
    let status = context
        .run(|pool, now| pool.ack(owner, body.version, now))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status.map(|status| view::owner(&status))))
}
