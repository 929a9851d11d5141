"""The handlers: who may call, what the body says, and what became of it on every engine."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from trimtab.errors import DrainTimeout, InvalidRequest, NotManaged, TrimtabError
from trimtab_gateway.control.access import require_admin
from trimtab_gateway.control.context import json_response
from trimtab_gateway.control.endpoints import prefixes
from trimtab_gateway.control.errors import error_response
from trimtab_gateway.control.fleet.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.fleet import FleetControl, OperationResult

_NOT_MANAGED = (
    "this gateway routes to engines that others manage: it can add and remove them (POST /workers), not pause, update "
    "or put them to sleep. 'trimtab up' runs a gateway together with its engines' manager"
)


def add_fleet_routes(app: web.Application, fleet: Callable[[], FleetControl | None], roles: Sequence[str]) -> None:
    """Serve the operations under every role.

    Args:
        app: The control app.
        fleet: Who carries them out; None: nobody, and every call is refused.
        roles: Names of the served roles. A sole role also answers without its prefix.
    """
    for prefix, role in prefixes(roles).items():
        for operation in OPERATIONS:
            handler = partial(_handle, operation=operation, fleet=fleet, role=role)
            app.router.add_post(f"{prefix}{operation.path}", handler)


async def _handle(
    request: web.Request, *, operation: Operation, fleet: Callable[[], FleetControl | None], role: str
) -> web.Response:
    require_admin(request)
    try:
        arguments = operation.arguments(await _body(request))
        control = fleet()
        if control is None:
            raise NotManaged(_NOT_MANAGED)
        # A caller that leaves changes nothing: what was begun is brought to its end.
        result = await operation.call(control)(role, arguments.pop("model", None), **arguments)
    except TrimtabError as error:
        status, detail = status_of_error(error), dict(error.detail) or None
        return error_response(request, status, error.code, str(error), detail=detail, retryable=error.retryable)
    return json_response(document(result), status=_status(result))


async def _body(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read() or b"null")
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error


def document(result: OperationResult) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "operation": result.operation,
        "role": result.role,
        "model": result.model,
        "ok": result.ok,
        "seconds": round(result.seconds, 6),
        "weight_version": result.weight_version,
        "engines": [
            {
                "engine": row.engine,
                "status": row.status,
                "seconds": round(row.seconds, 6),
                "state": row.state,
                "error": row.error,
                **({"detail": dict(row.detail)} if row.detail else {}),
            }
            for row in result.engines
        ],
        **({"detail": dict(result.detail)} if result.detail else {}),
    }


def _status(result: OperationResult) -> HTTPStatus:
    """200: on every engine; 207: on some, the rows say which; 502: on none."""
    if result.ok:
        return HTTPStatus.OK
    any_ok = any(row.status == "ok" for row in result.engines)
    return HTTPStatus.MULTI_STATUS if any_ok else HTTPStatus.BAD_GATEWAY


def status_of_error(error: TrimtabError) -> HTTPStatus:
    """Of an operation that failed as a whole."""
    if isinstance(error, DrainTimeout):
        return HTTPStatus.GATEWAY_TIMEOUT
    if isinstance(error, LookupError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, ValueError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.CONFLICT
