//! Senders: coming (also from an earlier start of the router, with what they hold), being alive, and going.

use super::error::{Problem, Refusal, Side};
use super::query::Query;
use super::reply::{Answer, milliseconds};
use super::request::{AttachSender, Heartbeat};
use super::{Context, Stamped};
use http::Response;
use router_core::error::Error;
use router_core::lease::LeaseId;
use router_core::pool::Pool;
use router_core::sender::{Attach, Attached, HeldLease};
use serde_json::{Value, json};

pub(super) fn attach(context: Context<'_>, body: &AttachSender) -> Result<Response<Answer>, Refusal> {
    let held = body
        .adopt
        .iter()
        .map(|held| {
            let lease: LeaseId = held.lease_id.parse()?;
            Ok(HeldLease {
                seq: held.seq,
                lease,
                backend: &held.backend,
                session: held.session.as_deref(),
                version: held.weight_version,
            })
        })
        .collect::<Result<Vec<_>, Error>>()
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    let pins: Vec<(&str, &str)> = body
        .pins
        .iter()
        .map(|pin| (pin.session.as_str(), pin.backend.as_str()))
        .collect();
    let attach = Attach {
        held: &held,
        pins: &pins,
        ..Attach::new(&body.sender, &body.incarnation, &body.owner)
    };
    let attached = context
        .run(|pool, now| Ok((pool.attach_sender(&attach, now)?, pool.state().as_str())))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&attached.map(|(attached, state)| attached_view(&attached, state, &held))))
}

fn attached_view(attached: &Attached, state: &str, held: &[HeldLease<'_>]) -> Value {
    let adopted: Vec<Value> = held
        .iter()
        .zip(&attached.adopted)
        .map(|(held, adopted)| match adopted {
            Ok(lease) => json!({ "seq": held.seq, "lease_id": lease.to_string() }),
            Err(error) => json!({
                "seq": held.seq,
                "error": { "code": error.code(), "message": error.to_string() },
            }),
        })
        .collect();
    json!({
        "version": attached.published.map(|published| published.version),
        "epoch": attached.published.map(|published| published.epoch),
        "state": state,
        "ttl_ms": milliseconds(attached.ttl),
        "already": attached.already,
        "adopted": adopted,
        "pins_adopted": attached.pins_adopted,
    })
}

pub(super) fn heartbeat(context: Context<'_>, sender: &str, body: &Heartbeat) -> Result<Response<Answer>, Refusal> {
    let status: Stamped<Value> = context
        .run(|pool, now| {
            let status = pool.heartbeat(sender, &body.incarnation, &body.settled, now)?;
            Ok(json!({
                "held": status.held,
                "tombstones": status.tombstones,
                "settled": status.settled,
                "version": pool.published().map(|published| published.version),
                "epoch": pool.published().map(|published| published.epoch),
                "state": pool.state().as_str(),
                "ttl_ms": ttl_ms(pool),
            }))
        })
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&status))
}

fn ttl_ms(pool: &Pool) -> u64 {
    milliseconds(pool.config().sender_ttl)
}

/// Forgets a sender that holds nothing.
pub(super) fn detach(context: Context<'_>, sender: &str, query: &Query) -> Result<Response<Answer>, Refusal> {
    context.api.expect(query.text("expect_incarnation"))?;
    let incarnation = query.text("incarnation").ok_or_else(|| {
        Refusal::new(
            Problem::Unprocessable,
            "the query parameter incarnation is missing: which process of the sender goes?",
        )
    })?;
    let detached = context
        .run(|pool, now| pool.detach_sender(sender, incarnation, now))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&detached.map(|()| json!({ "detached": true }))))
}
