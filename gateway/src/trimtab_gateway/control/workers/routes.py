"""Which path of the workers API is which call, and who may make it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab_gateway.control.access import require_admin
from trimtab_gateway.control.errors import error_response
from trimtab_gateway.control.workers import fan_out, handlers
from trimtab_gateway.control.workers.readiness import liveness, readiness
from trimtab_gateway.control.workers.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trimtab_gateway.control.workers.fleet import Workers

    Call = Callable[[web.Request, Workers, str | None], Awaitable[web.Response]]

CALLS: tuple[tuple[str, str, Call], ...] = (
    ("GET", "/workers", handlers.list_workers),
    ("POST", "/workers", handlers.add_worker),
    ("GET", "/workers/{worker}", handlers.show_worker),
    ("DELETE", "/workers/{worker}", handlers.remove_worker),
    ("GET", "/list_workers", handlers.list_urls),
    ("POST", "/add_worker", handlers.add_url),
    ("POST", "/remove_worker", handlers.remove_url),
    ("POST", "/flush_cache", fan_out.flush_cache),
    ("GET", "/get_loads", fan_out.get_loads),
    ("GET", "/v1/loads", fan_out.v1_loads),
)


def add_routes(app: web.Application, workers: Workers, roles: Sequence[str]) -> None:
    """Serve the API for all pools without a prefix, and for those of a role with it."""
    app.router.add_get("/liveness", liveness)
    app.router.add_get("/readiness", partial(readiness, workers=workers))
    scopes: list[tuple[str, str | None]] = [("", None), *((f"/{role}", role) for role in roles)]
    for prefix, role in scopes:
        for method, path, call in CALLS:
            handler = partial(_guarded, call=call, workers=workers, role=role)
            if method == "GET":
                app.router.add_get(prefix + path, handler)
            else:
                app.router.add_route(method, prefix + path, handler)


async def _guarded(request: web.Request, *, call: Call, workers: Workers, role: str | None) -> web.Response:
    require_admin(request)
    try:
        return await call(request, workers, role)
    except Refusal as refusal:
        return error_response(request, refusal.status, refusal.code, str(refusal))
