"""The aiohttp application of the control app: which path belongs to which handler."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab import __version__
from trimtab_gateway.control.context import STATISTICS, WATCH, json_response
from trimtab_gateway.control.dashboard import add_dashboard
from trimtab_gateway.control.discovery import engines
from trimtab_gateway.control.endpoints import listing, prefixes
from trimtab_gateway.control.errors import error_middleware
from trimtab_gateway.control.fleet import add_fleet_routes
from trimtab_gateway.control.health import health
from trimtab_gateway.control.metrics import metrics
from trimtab_gateway.control.models import models
from trimtab_gateway.control.poison import add_poison_routes
from trimtab_gateway.control.status import status
from trimtab_gateway.control.workers import Workers, add_routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.fleet import FleetControl
    from trimtab_gateway.publisher import Watch
    from trimtab_gateway.snapshot import ServedRole
    from trimtab_gateway.statistics import GatewayStatistics


def create_app(
    served: Sequence[ServedRole],
    statistics: Callable[[], GatewayStatistics],
    watch: Watch,
    workers: Workers,
    fleet: Callable[[], FleetControl | None],
) -> web.Application:
    """Build the control app.

    Args:
        served: The served roles. A sole role also answers without its prefix.
        statistics: The gateway at the moment of the call; called in the event loop, must not block.
        watch: For those who wait for a newer snapshot.
        workers: The engines, for those who register and remove them.
        fleet: Who acts on the engines, if anybody does.
    """
    roles = [role.name for role in served]
    app = web.Application(middlewares=[error_middleware(roles)])
    app[STATISTICS] = statistics
    app[WATCH] = watch
    app.on_response_prepare.append(_hide_server_version)
    app.router.add_get("/", partial(_index, roles=roles))
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/status", partial(status, fleet=fleet))
    add_dashboard(app)
    for prefix, role in prefixes(roles).items():
        for path, handler in (("/health", health), ("/v1/models", models), ("/engines", engines)):
            app.router.add_get(f"{prefix}{path}", partial(handler, role=role))
    add_routes(app, workers, roles)
    add_fleet_routes(app, fleet, roles)
    add_poison_routes(app, served)
    return app


async def _hide_server_version(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "trimtab"


async def _index(_request: web.Request, roles: Sequence[str]) -> web.Response:
    return json_response({"name": "trimtab", "version": __version__, "roles": list(roles), "endpoints": listing(roles)})
