"""``GET /<role>/health``: whether a role can serve, model by model."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from trimtab_gateway.control.context import json_response, role_snapshot

if TYPE_CHECKING:
    from aiohttp import web


async def health(request: web.Request, role: str) -> web.Response:
    """200 when any model is ready (``ok``: all are, ``degraded``: some are), else 503 (``unavailable``)."""
    snapshot = role_snapshot(request, role)
    ready = sum(model.state == "ready" for model in snapshot.models)
    status = "unavailable" if ready == 0 else "ok" if ready == len(snapshot.models) else "degraded"
    models = {model.name: {"state": model.state, **model.pool.census} for model in snapshot.models}
    document = {"status": status, "role": role, "models": models}
    if ready:
        return json_response(document)
    return json_response(document, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "1"})
