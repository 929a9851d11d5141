"""``/liveness`` and ``/readiness``, as sglang-router answers them; ``/live`` and ``/ready`` say more."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab_gateway.control.context import json_response

if TYPE_CHECKING:
    from trimtab_gateway.control.workers.fleet import Workers


async def liveness(_request: web.Request) -> web.Response:
    """The process runs."""
    return web.Response(text="OK")


async def readiness(_request: web.Request, workers: Workers) -> web.Response:
    """200 when a worker can take a request."""
    listed = workers.listed(None)
    healthy = sum(worker.backend.eligible for worker in listed)
    if healthy:
        return json_response({"status": "ready", "healthy_workers": healthy, "total_workers": len(listed)})
    document = {"status": "not ready", "reason": "insufficient healthy workers"}
    return json_response(document, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": "1"})
