"""``GET /<role>/health``: whether a role is well, model by model.

A model that a controller holds (it is updated, drained, asleep or paused) cannot serve now and is not ill: whoever
restarts what is unhealthy must not restart a fleet that sleeps. Ill is what nobody willed.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from trimtab_gateway.control.context import json_response, role_snapshot
from trimtab_gateway.snapshot import BY_WILL

if TYPE_CHECKING:
    from aiohttp import web


async def health(request: web.Request, role: str) -> web.Response:
    """200 when any model is well (``healthy``: all are, ``degraded``: some are), else 503 (``unhealthy``)."""
    models = role_snapshot(request, role).models
    well = sum(model.state == "ready" or model.state in BY_WILL for model in models)
    document = {
        "status": "unhealthy" if well == 0 else "healthy" if well == len(models) else "degraded",
        "service": role,
        "role": role,
        "models": {model.name: {"state": model.state, **model.pool.census} for model in models},
    }
    if well:
        return json_response(document)
    return json_response(document, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "1"})
