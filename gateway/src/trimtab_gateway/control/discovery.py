"""``GET /<role>/engines``: the discovery document, which says where each model can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab_gateway.control.context import json_response, statistics
from trimtab_gateway.snapshot import engine_state

if TYPE_CHECKING:
    from aiohttp import web

    from trimtab_gateway.snapshot import ModelSnapshot, Snapshot

SCHEMA_VERSION = 1


async def engines(request: web.Request, role: str) -> web.Response:
    """The document of one role, from one snapshot; no engine is asked."""
    return json_response(discovery_document(statistics(request).snapshot, role))


def discovery_document(snapshot: Snapshot, role: str) -> dict[str, Any]:
    """Describe one role. ``phase`` is null: attached engines have no schedule."""
    served = snapshot.roles[role]
    return {
        "schema_version": SCHEMA_VERSION,
        "role": role,
        "epoch": snapshot.epoch,
        "topology_revision": served.topology_revision,
        "snapshot_seq": served.snapshot_seq,
        "phase": None,
        "routing": {"default_model": served.default_model, "route_keys": {}},
        "models": {model.name: _model(model) for model in served.models},
    }


def _model(model: ModelSnapshot) -> dict[str, Any]:
    return {
        "state": model.state,
        "router_url": None,
        "weight_version": model.pool.weight_version,
        "engines": [
            {
                "engine_id": backend.id,
                "generation": backend.generation,
                "base_url": backend.url,
                "state": engine_state(backend),
                "direct_eligible": backend.eligible,
                "capacity": backend.capacity,
            }
            for backend in model.pool.backends
        ],
    }
