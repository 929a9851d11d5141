//! How the API shows what the core counts: one function per kind of thing.

use super::error::census_view;
use super::memory::Memory;
use super::reply::milliseconds;
use router_core::fence::OwnerStatus;
use router_core::membership::BackendInfo;
use router_core::sender::SenderStatus;
use router_core::state::{Failure, PoolState};
use router_core::stats::{BackendStatistics, OutcomeCounts, PoolStatistics};
use router_core::time::Timestamp;
use router_core::update::UpdateStatus;
use router_core::version::Weights;
use serde_json::{Map, Value, json};

pub(super) fn backend_facts(info: &BackendInfo) -> Value {
    json!({
        "id": info.id,
        "generation": info.reference.generation(),
        "authority": info.address.authority(),
        "url": info.address.url(),
        "capacity": info.capacity.as_f64(),
    })
}

fn backend(backend: &BackendStatistics) -> Value {
    let (weights, version) = match backend.weights {
        Weights::Unknown => ("unknown", None),
        Weights::Version(version) => ("version", Some(version)),
        Weights::Tainted => ("tainted", None),
    };
    let mut view = backend_facts(&backend.info);
    let rest = json!({
        "health": backend.health.as_str(),
        "draining": backend.draining,
        "eligible": backend.eligible,
        "weights": weights,
        "weight_version": version,
        "weights_fit": backend.weights_fit,
        "outstanding": backend.outstanding,
        "unresolved": backend.unresolved,
        "sessions": backend.sessions,
        "picks": backend.picks,
        "failures": backend.failures,
        "output_tokens": backend.output_tokens,
        "outcomes": outcomes(&backend.outcomes),
    });
    if let (Value::Object(view), Value::Object(rest)) = (&mut view, rest) {
        view.extend(rest);
    }
    view
}

fn outcomes(counts: &OutcomeCounts) -> Value {
    named(counts.iter().map(|(outcome, count)| (outcome.as_str(), count)))
}

fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> Value {
    Value::Object(counts.map(|(name, count)| (name.to_owned(), count.into())).collect())
}

pub(super) fn owner(status: &OwnerStatus) -> Value {
    let per_backend: Map<String, Value> = status
        .per_backend
        .iter()
        .map(|(backend, count)| (backend.id.clone(), (*count).into()))
        .collect();
    json!({
        "owner": status.owner,
        "fences": status.fences,
        "acknowledged": status.acknowledged,
        "needs_acknowledgement": status.needs_acknowledgement,
        "parked": status.parked,
        "outstanding": status.outstanding,
        "per_backend": per_backend,
    })
}

fn sender(status: &SenderStatus) -> Value {
    json!({
        "sender": status.sender,
        "incarnation": status.incarnation,
        "owner": status.owner,
        "held": status.held,
        "tombstones": status.tombstones,
        "settled": status.settled,
        "silent_ms": milliseconds(status.silent),
    })
}

pub(super) fn update(status: &UpdateStatus, now: Timestamp) -> Value {
    json!({
        "update_id": status.id,
        "kind": status.kind.as_str(),
        "to_version": status.to_version,
        "phase": status.phase.as_str(),
        "server_paused": status.server_paused,
        "outstanding": status.outstanding,
        "version": status.published.map(|published| published.version),
        "epoch": status.published.map(|published| published.epoch),
        "began_ms_ago": milliseconds(now.since(status.began)),
        "drain_left_ms": status.drain_deadline.map(|deadline| milliseconds(deadline.since(now))),
        "replayed": status.replayed,
    })
}

/// The first cause of a failed pool; null for any other.
pub(super) fn failure(state: &PoolState, now: Timestamp) -> Value {
    match state {
        PoolState::Failed(failure) => failure_facts(failure, now),
        _ => Value::Null,
    }
}

fn failure_facts(failure: &Failure, now: Timestamp) -> Value {
    json!({
        "cause": failure.cause.as_str(),
        "message": failure.to_string(),
        "ms_ago": milliseconds(now.since(failure.at)),
    })
}

/// Everything about a pool. `name` is its role and its model.
pub(super) fn pool(
    name: (&str, &str),
    statistics: &PoolStatistics,
    memory: &Memory,
    mismatches: u64,
    now: Timestamp,
) -> Value {
    let control = &statistics.control;
    let each_update = |status: &UpdateStatus| update(status, now);
    json!({
        "pool": format!("{}/{}", name.0, name.1),
        "role": name.0,
        "model": name.1,
        "pool_gen": control.generation,
        "revision": control.revision,
        "state": control.state.as_str(),
        "server_paused": control.server_paused,
        "version": control.published.map(|published| published.version),
        "epoch": control.published.map(|published| published.epoch),
        "update": control.update.as_ref().map(each_update),
        "last_updates": control.last_updates.iter().map(each_update).collect::<Vec<_>>(),
        "failure": failure(&control.state, now),
        "closed_because": memory.closed_because,
        "backends": statistics.backends.iter().map(backend).collect::<Vec<_>>(),
        "retired": statistics.retired.iter().map(backend).collect::<Vec<_>>(),
        "owners": control.owners.iter().map(owner).collect::<Vec<_>>(),
        "senders": control.senders.iter().map(sender).collect::<Vec<_>>(),
        "census": census_view(&statistics.census),
        "counts": counts(statistics, mismatches),
        "recent_errors": memory.troubles().map(|trouble| json!({
            "ms_ago": milliseconds(now.since(trouble.at)),
            "lease_id": trouble.lease,
            "outcome": trouble.outcome,
            "http_status": trouble.http_status,
            "error": trouble.error,
        })).collect::<Vec<_>>(),
    })
}

fn counts(statistics: &PoolStatistics, mismatches: u64) -> Value {
    let control = &statistics.control;
    json!({
        "outstanding": statistics.outstanding,
        "leases": statistics.leases,
        "sessions": statistics.sessions,
        "waiters": control.waiters,
        "tombstones": control.tombstones,
        "unresolved": control.unresolved,
        "output_tokens": statistics.output_tokens,
        "sessions_expired": statistics.sessions_expired,
        "sessions_evicted": statistics.sessions_evicted,
        "later_failures": control.later_failures,
        "unexpected_aborts": control.unexpected_aborts,
        "stale_probes": control.stale_probes,
        "version_mismatches": mismatches,
        "picks": named(statistics.picks.iter().map(|(reason, count)| (reason.as_str(), count))),
        "outcomes": outcomes(&statistics.outcomes),
        "parked": named(control.parked.iter().map(|(reason, count)| (reason.as_str(), count))),
    })
}
