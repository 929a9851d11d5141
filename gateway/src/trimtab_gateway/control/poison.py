"""``GET`` and ``DELETE /<role>/poison``: what is refused because engines died under it, for operators.

The pools decide and remember (``Pool.poison_entries``); here they are only listed and cleared, both behind the admin
key: session keys and engine names are nobody else's business.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from trimtab_gateway.control.access import require_admin
from trimtab_gateway.control.context import json_response
from trimtab_gateway.control.endpoints import prefixes
from trimtab_gateway.control.errors import error_response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from trimtab._core import PoisonEntry, Pool
    from trimtab_gateway.snapshot import ServedRole

_PATH = "/poison"


def add_poison_routes(app: web.Application, roles: Sequence[ServedRole]) -> None:
    """Serve the entries of every role. A sole role also answers without its prefix."""
    models = {role.name: role.models for role in roles}
    for prefix, role in prefixes(list(models)).items():
        pools = models[role]
        app.router.add_get(f"{prefix}{_PATH}", partial(_list, role=role, pools=pools))
        app.router.add_delete(f"{prefix}{_PATH}", partial(_clear_all, role=role, pools=pools))
        app.router.add_delete(f"{prefix}{_PATH}/{{entry}}", partial(_clear, role=role, pools=pools))


async def _list(request: web.Request, *, role: str, pools: Mapping[str, Pool]) -> web.Response:
    require_admin(request)
    entries = [_document(model, entry) for model, pool in pools.items() for entry in pool.poison_entries()]
    return json_response({"role": role, "entries": entries})


async def _clear_all(request: web.Request, *, role: str, pools: Mapping[str, Pool]) -> web.Response:
    require_admin(request)
    return json_response({"role": role, "cleared": sum(pool.clear_poison() for pool in pools.values())})


async def _clear(request: web.Request, *, role: str, pools: Mapping[str, Pool]) -> web.Response:
    require_admin(request)
    name = request.match_info["entry"]
    cleared = sum(pool.clear_poison(name) for pool in pools.values())
    if not cleared:
        message = f"role {role!r} has no such entry: GET {_PATH} lists them, and an entry leaves by itself in time"
        return error_response(request, HTTPStatus.NOT_FOUND, "unknown_entry", message)
    return json_response({"role": role, "cleared": cleared})


def _document(model: str, entry: PoisonEntry) -> dict[str, Any]:
    return {
        "model": model,
        "entry": entry.entry,
        "kind": entry.kind,
        "session": entry.session,
        "sender": entry.sender,
        "refused": entry.refused,
        "refusals": entry.refusals,
        "expires_in_s": round(entry.expires_in_s, 3),
        "reason": str(entry),
        "deaths": [
            {
                "backend": death.backend,
                "generation": death.generation,
                "evidence": death.evidence,
                "age_s": round(death.age_s, 3),
                "weight": death.weight,
            }
            for death in entry.deaths
        ],
    }
