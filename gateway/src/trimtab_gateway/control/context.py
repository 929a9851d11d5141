"""What the handlers of the control app share: the statistics they read, and how they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab_gateway.publisher import Watch
    from trimtab_gateway.snapshot import RoleSnapshot
    from trimtab_gateway.statistics import GatewayStatistics

WATCH: web.AppKey[Watch] = web.AppKey("WATCH")
STATISTICS: web.AppKey[Callable[[], GatewayStatistics]] = web.AppKey("STATISTICS")


def statistics(request: web.Request) -> GatewayStatistics:
    """The gateway at this moment."""
    return request.app[STATISTICS]()


def role_snapshot(request: web.Request, role: str) -> RoleSnapshot:
    """The role at this moment; routes exist only for roles that are served."""
    return statistics(request).snapshot.roles[role]


def json_response(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer that no cache keeps."""
    response = web.Response(
        body=orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS),
        status=status,
        content_type="application/json",
        headers=headers,
    )
    response.headers.setdefault("Cache-Control", "no-store")
    return response
