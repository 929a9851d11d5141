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
        "lenient_model": served.served.lenient_model,
        "routing": {
            "default_model": served.default_model,
            "route_keys": dict(served.served.route_keys),
            "session_fields": list(served.served.session_fields),
        },
        "models": {model.name: _model(model, served.served.router_urls.get(model.name)) for model in served.models},
    }


def _model(model: ModelSnapshot, router_url: str | None) -> dict[str, Any]:
    # The one backend of a model behind a router is the router, which is no engine.
    backends = model.pool.backends if router_url is None else []
    return {
        "state": model.state,
        "router_url": router_url,
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
            for backend in backends
        ],
    }
