//! Acquiring and settling.

use super::error::{Problem, Refusal, Side};
use super::memory::Trouble;
use super::query::check_wait;
use super::reply::{Members, Object, Stamp, milliseconds};
use super::request::{Acquire, Settle};
use super::{Context, Stamped};
use crate::parked::ParkedCall;
use crate::poison;
use crate::request_id::AbortIds;
use crate::resolve::Clue;
use bytes::Bytes;
use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::BackendRef;
use router_core::pool::{AcquireRequest, Grant, PickReason, Pool};
use router_core::sender::RequestKey;
use router_core::time::Timestamp;
use router_core::waiters::Acquisition;
use std::sync::Arc;
use tokio::time::Instant;

/// What a grant says.
#[derive(Debug)]
pub(super) struct LeaseView {
    grant: Grant,
    waited_ms: u64,
}

/// An acquire that got its answer at once, or waits for it.
pub(super) enum Acquiring {
    Granted(Stamped<LeaseView>),
    /// Boxed, so that those who need not wait have no room for it.
    Waiting(Box<Waiting>),
}

/// An acquire that waits in its owner's queue. Dropping it leaves the queue.
pub(super) struct Waiting {
    call: ParkedCall,
    rid: AbortIds,
    since: Instant,
    until: Instant,
}

pub(super) async fn acquire(context: Context<'_>, body: &Acquire<'_>) -> Result<Bytes, Refusal> {
    settle_doubts(context, body).await;
    let granted = match begin(context, body)? {
        Acquiring::Granted(granted) => granted,
        // Boxed, so that those who need not wait have no room for it.
        Acquiring::Waiting(waiting) => Box::pin(waiting.finish(context)).await?,
    };
    Ok(context.write(&granted))
}

/// Finds out whether engines died under what a lease is asked for, when it depends on that whether there is one.
pub(super) async fn settle_doubts(context: Context<'_>, body: &Acquire<'_>) {
    let Some(session) = body.session.as_deref().filter(|_| context.pool.shared.is_watchful()) else {
        return;
    };
    let request = AcquireRequest::for_session(session).keyed(RequestKey {
        sender: &body.sender,
        incarnation: &body.incarnation,
        seq: body.seq,
    });
    let key = context.api.engine_key.as_ref();
    // Boxed, so that its state does not grow that of every acquire.
    Box::pin(poison::settle_doubts(&context.pool.upstreams, key, &request)).await;
}

/// Asks for a lease; the sender's sign of life and its settled numbers count first.
pub(super) fn begin(context: Context<'_>, body: &Acquire<'_>) -> Result<Acquiring, Refusal> {
    let wait = check_wait("wait_ms", body.wait_ms)?;
    let rid = request_ids(body)?;
    let acquired = context.run(|pool, now| {
        pool.report_settled(&body.sender, &body.incarnation, &body.settled, now)?;
        let exclude: Vec<BackendRef> = body
            .exclude
            .iter()
            .filter_map(|id| pool.find_backend(id).map(|backend| backend.reference))
            .collect();
        let request = AcquireRequest {
            session: body.session.as_deref(),
            exclude: &exclude,
            key: Some(RequestKey {
                sender: &body.sender,
                incarnation: &body.incarnation,
                seq: body.seq,
            }),
            expect_version: body.expect_version,
            fingerprint: None,
        };
        if wait.is_zero() {
            pool.acquire(&request, now).map(Acquisition::Granted)
        } else {
            pool.acquire_or_park(&request, now.after(wait), now)
        }
    });
    let acquired = acquired.map_err(|error| Refusal::of(&error, Side::Acquire))?;
    Ok(match acquired.value {
        Acquisition::Granted(grant) => {
            note_ids(context, &grant, rid);
            Acquiring::Granted(Stamped {
                value: LeaseView { grant, waited_ms: 0 },
                stamp: acquired.stamp,
            })
        }
        Acquisition::Parked(parked) => {
            let since = Instant::now();
            Acquiring::Waiting(Box::new(Waiting {
                call: ParkedCall::new(Arc::clone(&context.pool.shared), parked),
                rid,
                since,
                until: since + wait,
            }))
        }
    })
}

/// By which the engine will know the execution.
fn request_ids(body: &Acquire<'_>) -> Result<AbortIds, Refusal> {
    let Some(rid) = &body.rid else {
        return Ok(AbortIds::default());
    };
    AbortIds::of_sender(rid.iter()).map_err(|id| {
        let message = format!(
            "rid {id:?} is refused: engines abort every request whose id begins with it; give each request an id of \
             its own and of fixed length, such as uuid4().hex"
        );
        Refusal::new(Problem::Unprocessable, message)
    })
}

/// Remembers the ids for the case that nobody learns how the execution ends.
fn note_ids(context: Context<'_>, grant: &Grant, ids: AbortIds) {
    if let Some(clues) = context.pool.shared.clues() {
        let authorization = None;
        clues.note(grant.lease, Clue { ids, authorization });
    }
}

impl Waiting {
    /// Waits for the grant, or for the reason at the end of the time.
    pub(super) async fn finish(mut self, context: Context<'_>) -> Result<Stamped<LeaseView>, Refusal> {
        let in_time = tokio::select! {
            biased;
            answer = &mut self.call => Some(answer),
            () = context.api.time_is_up(self.until) => None,
        };
        let answer = in_time.unwrap_or_else(|| self.call.give_up());
        let grant = answer.map_err(|error| Refusal::of(&error, Side::Acquire))?;
        note_ids(context, &grant, self.rid);
        Ok(Stamped {
            value: LeaseView {
                grant,
                waited_ms: milliseconds(self.since.elapsed()),
            },
            stamp: context.stamp(),
        })
    }
}

impl Members for LeaseView {
    fn write(&self, object: &mut Object) {
        let Self { grant, waited_ms } = self;
        let address = &grant.backend.address;
        let scheme = if address.is_tls() { "https://" } else { "http://" };
        object
            .letters("\"lease_id\":", &grant.lease.to_hex())
            .text("\"backend\":", &grant.backend.id)
            .number("\"backend_generation\":", grant.backend.reference.generation().into())
            .text("\"authority\":", address.authority())
            .texts("\"url\":", scheme, address.authority())
            .optional("\"weight_version\":", grant.version.map(|published| published.version))
            .optional("\"epoch\":", grant.version.map(|published| published.epoch))
            .flag("\"sticky\":", grant.reason == PickReason::Sticky)
            .flag("\"replayed\":", grant.replayed)
            .text("\"reason\":", grant.reason.as_str())
            .number("\"waited_ms\":", *waited_ms);
    }
}

/// What a settlement says.
#[derive(Debug)]
pub(super) struct SettledView {
    outcome: &'static str,
    already: bool,
    /// The engine said to have run other weights than those of the lease.
    version_mismatch: bool,
}

impl Members for SettledView {
    fn write(&self, object: &mut Object) {
        object
            .text("\"outcome\":", self.outcome)
            .flag("\"already\":", self.already)
            .flag("\"version_mismatch\":", self.version_mismatch);
    }
}

pub(super) fn settle(context: Context<'_>, lease: &str, body: &Settle<'_>) -> Result<Bytes, Refusal> {
    if body.lease_id.is_some() {
        return Err(Refusal::new(Problem::Unprocessable, "lease_id is in the path already"));
    }
    Ok(context.write(&conclude(context, lease, body)?))
}

/// Ends the execution of `lease`.
pub(super) fn conclude(context: Context<'_>, lease: &str, body: &Settle<'_>) -> Result<Stamped<SettledView>, Refusal> {
    let outcome = Outcome::parse(&body.outcome).ok_or_else(|| {
        let known: Vec<&str> = Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
        let message = format!("outcome {:?} is unknown; known: {}", &*body.outcome, known.join(", "));
        Refusal::new(Problem::Unprocessable, message)
    })?;
    let settlement = Settlement {
        outcome,
        output_tokens: body.output_tokens,
        context_tokens: body.context_tokens,
        is_evidence: true,
        fingerprint: None,
        answered: body.output_tokens.is_some_and(|tokens| tokens > 0),
    };
    let sender = match (&body.sender, &body.incarnation) {
        (Some(sender), Some(incarnation)) => Some((sender, incarnation)),
        (None, None) if body.settled.is_empty() => None,
        _ => {
            let message = "settled, sender and incarnation go together: whose numbers are they?";
            return Err(Refusal::new(Problem::Unprocessable, message));
        }
    };
    let settled = context.pool.shared.with(|pool, now| {
        let lease: LeaseId = lease.parse()?;
        if let Some((sender, incarnation)) = sender {
            pool.report_settled(sender, incarnation, &body.settled, now)?;
        }
        let differs = differs(pool, lease, body);
        let settled = pool.settle(lease, settlement, now)?;
        let view = SettledView {
            outcome: settled.outcome.as_str(),
            already: settled.already,
            // While a lease is held nothing else is published: what is published now is the version of the lease.
            version_mismatch: !settled.already && differs,
        };
        let stamp = Stamp::of(pool);
        Ok((Stamped { value: view, stamp }, now))
    });
    let (settled, now) = settled.map_err(|error: Error| Refusal::of(&error, Side::Control))?;
    if !settled.value.already {
        remember(context, lease, outcome, body, settled.value.version_mismatch, now);
    }
    Ok(settled)
}

fn differs(pool: &Pool, lease: LeaseId, body: &Settle<'_>) -> bool {
    let (Some(observed), Some(published)) = (&body.observed_weight_version, pool.published()) else {
        return false;
    };
    match observed.number() {
        Some(number) => number != published.version,
        None => pool.names_version(lease),
    }
}

fn remember(context: Context<'_>, lease: &str, outcome: Outcome, body: &Settle<'_>, mismatch: bool, now: Timestamp) {
    let is_trouble =
        body.error.is_some() || !matches!(outcome, Outcome::Completed | Outcome::Aborted | Outcome::Cancelled);
    if outcome != Outcome::Ambiguous
        && let Some(clues) = context.pool.shared.clues()
        && let Ok(lease) = lease.parse()
    {
        clues.forget(lease);
    }
    if mismatch {
        context.pool.shared.note_version_mismatch();
    }
    if is_trouble {
        context.pool.memory.lock().note_trouble(Trouble {
            at: now,
            lease: lease.to_owned(),
            outcome: outcome.as_str(),
            http_status: body.http_status,
            error: body.error.as_deref().map(str::to_owned),
        });
    }
}
