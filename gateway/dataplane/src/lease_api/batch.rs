//! Several acquires and settlements in one request, each with its own answer.
//!
//! They are carried out in their order; those that have to wait do so together, so a batch takes as long as the longest
//! wait in it. A batch that is cut off can be sent again: each of its requests has its own key.

use super::error::{Problem, Refusal};
use super::leases::{self, Acquiring, LeaseView, SettledView, Waiting};
use super::reply::{Members, Object};
use super::request::{Batch, Body as _, Operation};
use super::{Context, Stamped};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Requests in one batch at most.
const MAX_REQUESTS: usize = 1024;

/// What came of one request.
enum Entry {
    Granted(Stamped<LeaseView>),
    Settled(Stamped<SettledView>),
    Refused(Refusal),
    /// It is among the waits.
    Waits,
}

pub(super) async fn run(context: Context<'_>, body: &Batch<'_>) -> Result<Bytes, Refusal> {
    if body.requests.len() > MAX_REQUESTS {
        let message = format!("{} requests in one batch; at most {MAX_REQUESTS}", body.requests.len());
        return Err(Refusal::new(Problem::Unprocessable, message));
    }
    let mut entries = Vec::with_capacity(body.requests.len());
    let mut waiting = Vec::new();
    for request in &body.requests {
        if let Operation::Acquire(body) = request {
            leases::settle_doubts(context, body).await;
        }
        let entry = start(context, request).unwrap_or_else(|wait| {
            waiting.push((entries.len(), wait));
            Entry::Waits
        });
        entries.push(entry);
    }
    if !waiting.is_empty() {
        // Boxed, so that a batch without a wait has no room for it.
        Box::pin(wait(context, waiting, &mut entries)).await;
    }
    let mut object = Object::with_capacity(entries.len());
    object.raw("{\"results\":[");
    for entry in &entries {
        entry.write(&mut object);
    }
    object.without_comma().raw("],");
    Ok(context.close(object, context.stamp()))
}

/// Waits for all at once. Each wait has a waker of its own, so a grant touches nobody else of the batch.
async fn wait(context: Context<'_>, waiting: Vec<(usize, Box<Waiting>)>, entries: &mut [Entry]) {
    let mut waits: FuturesUnordered<_> = waiting
        .into_iter()
        .map(|(index, wait)| async move { (index, wait.finish(context).await) })
        .collect();
    while let Some((index, answer)) = waits.next().await {
        entries[index] = answer.map_or_else(Entry::Refused, Entry::Granted);
    }
}

fn start(context: Context<'_>, request: &Operation<'_>) -> Result<Entry, Box<Waiting>> {
    let expected = match request {
        Operation::Acquire(body) => body.expect_incarnation(),
        Operation::Settle(body) => body.expect_incarnation(),
    };
    if let Err(refusal) = context.api.expect(expected) {
        return Ok(Entry::Refused(refusal));
    }
    match request {
        Operation::Acquire(body) => match leases::begin(context, body) {
            Ok(Acquiring::Granted(granted)) => Ok(Entry::Granted(granted)),
            Ok(Acquiring::Waiting(waiting)) => Err(waiting),
            Err(refusal) => Ok(Entry::Refused(refusal)),
        },
        Operation::Settle(body) => {
            let settled = match &body.lease_id {
                Some(lease) => leases::conclude(context, lease, body),
                None => Err(Refusal::new(
                    Problem::Unprocessable,
                    "missing field `lease_id` of a settlement",
                )),
            };
            Ok(settled.map_or_else(Entry::Refused, Entry::Settled))
        }
    }
}

impl Entry {
    /// Its status and body, and the comma that follows.
    fn write(&self, object: &mut Object) {
        let members: &dyn Members = match self {
            Self::Granted(answer) => &answer.value,
            Self::Settled(answer) => &answer.value,
            Self::Refused(refusal) => {
                object.number("{\"status\":", refusal.status().as_u16().into());
                object.raw("\"body\":").json(&refusal.to_value()).raw("},");
                return;
            }
            Self::Waits => unreachable!("every wait was waited for"),
        };
        object.raw("{\"status\":200,\"body\":{");
        members.write(object);
        object.without_comma().raw("}},");
    }
}
