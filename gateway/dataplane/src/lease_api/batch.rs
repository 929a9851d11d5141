//! Several acquires and settlements in one request, each with its own answer.
//!
//! They are carried out in their order; those that have to wait do so together, so a batch takes as long as the longest
//! wait in it. A batch that is cut off can be sent again: each of its requests has its own key.

use super::error::{Problem, Refusal};
use super::leases::{self, Acquiring, Waiting};
use super::request::{Batch, Body as _, Operation};
use super::{Context, Stamped};
use crate::answer::Answer;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Response;
use serde::Serialize;
use serde_json::{Value, json};

/// Requests in one batch at most.
const MAX_REQUESTS: usize = 1024;

/// The result of one request, or the wait for it.
enum Entry {
    Done(Value),
    Waiting(Waiting),
}

pub(super) async fn run(context: Context<'_>, body: &Batch) -> Result<Response<Answer>, Refusal> {
    if body.requests.len() > MAX_REQUESTS {
        let message = format!("{} requests in one batch; at most {MAX_REQUESTS}", body.requests.len());
        return Err(Refusal::new(Problem::Unprocessable, message));
    }
    let mut results = Vec::with_capacity(body.requests.len());
    // Each wait has a waker of its own, so a grant touches nobody else of the batch.
    let mut waits = FuturesUnordered::new();
    for (index, request) in body.requests.iter().enumerate() {
        results.push(match start(context, request) {
            Entry::Done(value) => value,
            Entry::Waiting(waiting) => {
                waits.push(async move { (index, wait(context, waiting).await) });
                Value::Null
            }
        });
    }
    while let Some((index, value)) = waits.next().await {
        results[index] = value;
    }
    let answer = Stamped {
        value: json!({ "results": results }),
        stamp: context.stamp(),
    };
    Ok(context.ok(&answer))
}

fn start(context: Context<'_>, request: &Operation) -> Entry {
    let expected = match request {
        Operation::Acquire(body) => body.expect_incarnation(),
        Operation::Settle(body) => body.expect_incarnation(),
    };
    if let Err(refusal) = context.api.expect(expected) {
        return Entry::Done(refused(&refusal));
    }
    match request {
        Operation::Acquire(body) => match leases::begin(context, body) {
            Ok(Acquiring::Granted(granted)) => Entry::Done(granted_view(&granted)),
            Ok(Acquiring::Waiting(waiting)) => Entry::Waiting(waiting),
            Err(refusal) => Entry::Done(refused(&refusal)),
        },
        Operation::Settle(body) => {
            let settled = match &body.lease_id {
                Some(lease) => leases::conclude(context, lease, body),
                None => Err(Refusal::new(
                    Problem::Unprocessable,
                    "missing field `lease_id` of a settlement",
                )),
            };
            Entry::Done(settled.map_or_else(|refusal| refused(&refusal), |settled| granted_view(&settled)))
        }
    }
}

async fn wait(context: Context<'_>, waiting: Waiting) -> Value {
    match waiting.finish(context).await {
        Ok(granted) => granted_view(&granted),
        Err(refusal) => refused(&refusal),
    }
}

fn granted_view<T: Serialize>(answer: &Stamped<T>) -> Value {
    json!({ "status": 200, "body": &answer.value })
}

fn refused(refusal: &Refusal) -> Value {
    json!({ "status": refusal.status().as_u16(), "body": refusal.to_value() })
}
