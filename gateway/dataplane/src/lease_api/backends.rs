//! Registering and removing backends.

use super::error::{Refusal, Side};
use super::query::Query;
use super::reply::Answer;
use super::request::{AddBackends, NewBackend};
use super::wait::{Changes, Ended};
use super::{Context, LeaseApi, Stamped, view};
use http::Response;
use router_core::error::Error;
use router_core::membership::BackendSpec;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Registers all of a list, or nobody.
pub(super) fn add(context: Context<'_>, body: AddBackends) -> Result<Response<Answer>, Refusal> {
    let specs: Result<Vec<BackendSpec>, Error> = body
        .backends
        .into_iter()
        .map(|backend| spec(context.api, backend))
        .collect();
    let added = specs
        .and_then(|specs| context.run(|pool, now| pool.add_backends(specs, body.replace, now)))
        .map_err(|error| Refusal::of(&error, Side::Control))?;
    Ok(context.ok(&added.map(|backends| {
        let backends: Vec<Value> = backends.iter().map(|backend| view::backend_facts(backend)).collect();
        json!({ "backends": backends })
    })))
}

fn spec(api: &LeaseApi, backend: NewBackend) -> Result<BackendSpec, Error> {
    let mut spec = BackendSpec::parse(&backend.address, backend.capacity)?;
    api.address_rules.check(&spec.address)?;
    if let Some(id) = backend.id {
        spec = spec.with_id(id);
    }
    if let Some(version) = backend.weight_version {
        spec = spec.with_weight_version(version);
    }
    Ok(spec)
}

/// Drains a backend and removes it once nothing runs on it, or says how much still does after `drain_ms`. It stays
/// draining then, and the same call goes on waiting.
pub(super) async fn remove(context: Context<'_>, id: &str, query: &Query) -> Result<Response<Answer>, Refusal> {
    context.api.expect(query.text("expect_incarnation"))?;
    let generation: Option<u32> = query.number("generation")?;
    let deadline = Instant::now() + query.wait("drain_ms")?;
    let mut changes = Changes::of(std::iter::once(context.pool));
    loop {
        let retired = context.run(|pool, now| {
            let found = pool.find_backend(id).map(|backend| backend.reference.generation());
            pool.retire_backend(id, generation, now)?;
            Ok(found)
        });
        match retired {
            Ok(retired) => {
                if let Some(generation) = retired.value {
                    context.pool.memory.lock().note_removal(id, generation);
                }
                return Ok(context.ok(&removed(&retired, false)));
            }
            // The answer to the first call was lost.
            Err(Error::UnknownBackend { .. }) if context.pool.memory.lock().was_removed(id, generation) => {
                let stamp = context.stamp();
                return Ok(context.ok(&removed(&Stamped { value: (), stamp }, true)));
            }
            Err(error @ Error::BackendBusy { .. }) => {
                if changes.next(context.api, deadline).await != Ended::Changed {
                    return Err(Refusal::of(&error, Side::Control));
                }
            }
            Err(error) => return Err(Refusal::of(&error, Side::Control)),
        }
    }
}

fn removed<T>(retired: &Stamped<T>, already: bool) -> Stamped<Value> {
    Stamped {
        value: json!({ "removed": true, "already": already }),
        stamp: retired.stamp,
    }
}
