//! Ending sessions.

use super::Context;
use super::error::{Refusal, Side};
use super::reply::Answer;
use super::request::CloseSession;
use http::Response;
use serde_json::json;

/// Ends a session of a sender, or of requests that name none. An unknown one is closed already.
pub(super) fn close(context: Context<'_>, key: &str, body: &CloseSession) -> Result<Response<Answer>, Refusal> {
    let closed = context
        .run(|pool, now| match &body.sender {
            Some(sender) => pool.close_sender_session(sender, key, now),
            None => Ok(pool.close_session(key, now)),
        })
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&closed.map(|session| json!({ "closed": session.known, "open_leases": session.open_leases }))))
}
