"""What the discovery document says of a role: where each model can be reached, and in which state it is.

The document has two readers. ``DirectClient`` and other programs read ``models.<name>.engines``. Clients of Relax read
``router_ip``, ``router_port``, ``engine_groups`` and ``total_engines``, which say the same in their words; they are
part of every role's document, because no code here knows the name of a role.

An engine that spans nodes is one entry: it has one address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trimtab_gateway.snapshot import engine_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab._core import BackendStatistics
    from trimtab_gateway.snapshot import ModelSnapshot, ServedRole

_DEAD = ("down", "starting")


def discovery_content(
    role: ServedRole, models: Sequence[ModelSnapshot], *, phase: str | None, stale: bool
) -> dict[str, Any]:
    """Everything of the document but its counters."""
    described = {model.name: _model(role, model, stale=stale) for model in models}
    return {
        "phase": phase,
        "stale": stale,
        "routing": {"default_model": role.default_model, "route_keys": dict(role.route_keys)},
        "models": described,
        "total_engines": sum(model["total_engines"] for model in described.values()),
    }


def only_model(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The document without the other models; without any when there is none of that name."""
    models = {key: model for key, model in document["models"].items() if key == name}
    total = sum(model["total_engines"] for model in models.values())
    return {**document, "models": models, "total_engines": total}


def _model(role: ServedRole, model: ModelSnapshot, *, stale: bool) -> dict[str, Any]:
    direct = role.expose_engine_urls and model.state == "ready" and not stale
    # The one backend of a model behind a router is that router, which is no engine.
    backends = model.pool.backends if model.router_url is None else []
    engines = [_engine(role, model, backend, direct=direct) for backend in backends]
    return {
        "state": model.state,
        "router_url": model.router_url,
        "weight_version": model.pool.weight_version,
        "engines": engines,
        **_of_relax(model.router_url, engines),
    }


def _engine(role: ServedRole, model: ModelSnapshot, backend: BackendStatistics, *, direct: bool) -> dict[str, Any]:
    return {
        "engine_id": backend.id,
        "generation": backend.generation,
        "base_url": backend.url if role.expose_engine_urls else None,
        "state": engine_state(backend, model.state),
        "direct_eligible": direct and backend.eligible,
        "capacity": backend.capacity,
    }


def _of_relax(router_url: str | None, engines: list[dict[str, Any]]) -> dict[str, Any]:
    """The same in the words of Relax. What a gateway does not know of an engine is null."""
    router = urlsplit(router_url or "")
    group = {
        "group_index": 0,
        "worker_type": "regular",
        "num_gpus_per_engine": None,
        "num_new_engines": 0,
        "engines": [
            {
                "rank": rank,
                "status": "dead" if engine["state"] in _DEAD else "active",
                "url": engine["base_url"],
                "pid": None,
                "node_id": None,
            }
            for rank, engine in enumerate(engines)
        ],
    }
    return {
        "router_ip": router.hostname,
        "router_port": router.port,
        "engine_groups": [group],
        "total_engines": len(engines),
    }
