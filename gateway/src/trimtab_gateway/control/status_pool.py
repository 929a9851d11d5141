"""The part of the status document that is about updates: state, version, fences, senders and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab._core import OwnerStatus, PoolStatistics, SenderStatus, UpdateStatus


def pool_document(pool: PoolStatistics) -> dict[str, Any]:
    """Describe what a controller did to a pool, and what its clients hold."""
    return {
        "pool_state": pool.state,
        "failure": pool.failure,
        "later_failures": pool.later_failures,
        "server_paused": pool.server_paused,
        "weight_version": pool.weight_version,
        "epoch": pool.epoch,
        "pool_generation": pool.generation,
        "update": None if pool.update is None else _update(pool.update),
        "last_updates": [_update(update) for update in pool.last_updates],
        "owners": [_owner(owner) for owner in pool.owners],
        "senders": [_sender(sender) for sender in pool.senders],
        "waiters": pool.waiters,
        "parked": pool.parked,
        "leases": {
            "open": pool.outstanding,
            "settled": sum(pool.outcomes.values()),
            "tombstones": pool.tombstones,
            "unexpected_aborts": pool.unexpected_aborts,
            "version_mismatches": pool.version_mismatches,
        },
    }


def _update(update: UpdateStatus) -> dict[str, Any]:
    return {
        "update_id": update.id,
        "kind": update.kind,
        "to_version": update.to_version,
        "phase": update.phase,
        "outstanding": update.outstanding,
    }


def _owner(owner: OwnerStatus) -> dict[str, Any]:
    return {
        "owner": owner.owner,
        "fences": owner.fences,
        "acknowledged": owner.acknowledged,
        "needs_acknowledgement": owner.needs_acknowledgement,
        "waiters": owner.parked,
        "outstanding": owner.outstanding,
        "per_engine": owner.per_backend,
    }


def _sender(sender: SenderStatus) -> dict[str, Any]:
    return {
        "sender": sender.sender,
        "incarnation": sender.incarnation,
        "owner": sender.owner,
        "open_leases": sender.held,
        "tombstones": sender.tombstones,
        "silent_s": round(sender.silent_s, 3),
    }
