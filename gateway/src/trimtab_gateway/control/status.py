"""``GET /status``: everything ``trimtab status`` shows, in one document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab import __version__
from trimtab_gateway.control.context import json_response, statistics
from trimtab_gateway.control.status_pool import pool_document
from trimtab_gateway.snapshot import engine_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from trimtab.fleet import FleetControl, ModelStanding
    from trimtab_gateway.snapshot import ModelSnapshot
    from trimtab_gateway.statistics import GatewayStatistics


async def status(request: web.Request, fleet: Callable[[], FleetControl | None]) -> web.Response:
    """The gateway at this moment; no engine is asked."""
    return json_response(status_document(statistics(request), fleet()))


def status_document(gateway: GatewayStatistics, fleet: FleetControl | None = None) -> dict[str, Any]:
    """Describe a whole gateway: pools with their counters, backends with their load, the data plane's counters.

    Args:
        gateway: The gateway.
        fleet: Who runs the engines, if anybody does: it knows of those that the router does not have, and why.
    """
    return {
        "version": __version__,
        "epoch": gateway.snapshot.epoch,
        "uptime_s": round(gateway.uptime_s, 3),
        "ready": gateway.snapshot.ready,
        "roles": {
            role.name: {
                "default_model": role.default_model,
                "topology_revision": role.topology_revision,
                "snapshot_seq": role.snapshot_seq,
                "models": {
                    model.name: {
                        **_model(model),
                        "manager": None if fleet is None else _manager(fleet.standing(role.name, model.name)),
                    }
                    for model in role.models
                },
            }
            for role in gateway.snapshot.roles.values()
        },
        "data_plane": dict(gateway.data_plane),
    }


def _manager(standing: ModelStanding | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    return {
        "hold": standing.hold,
        "changing": standing.changing,
        "recovering": list(standing.recovering),
        "engines": [
            {
                "engine_id": engine.engine,
                "generation": engine.generation,
                "state": engine.state,
                "reason": engine.reason,
            }
            for engine in standing.engines
        ],
    }


def _model(model: ModelSnapshot) -> dict[str, Any]:
    pool = model.pool
    return {
        "state": model.state,
        **pool_document(model.pool),
        "outstanding": pool.outstanding,
        "sessions": pool.sessions,
        "output_tokens": pool.output_tokens,
        "census": pool.census,
        "picks": pool.picks,
        "outcomes": pool.outcomes,
        "engines": [
            {
                "engine_id": backend.id,
                "generation": backend.generation,
                "base_url": backend.url,
                "capacity": backend.capacity,
                "state": engine_state(backend, model.state),
                "health": backend.health,
                "failures": backend.failures,
                "eligible": backend.eligible,
                "outstanding": backend.outstanding,
                "sessions": backend.sessions,
                "picks": backend.picks,
                "outcomes": backend.outcomes,
                "output_tokens": backend.output_tokens,
                "weight_version": backend.weight_version,
                "weights_fit": backend.weights_fit,
                "tainted": backend.tainted,
            }
            for backend in pool.backends
        ],
    }
