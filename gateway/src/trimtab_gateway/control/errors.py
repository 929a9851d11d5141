"""Every error answer of the control app: JSON with a machine-readable code, never a traceback."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web

from trimtab_gateway.control.access import AccessDenied
from trimtab_gateway.control.context import json_response
from trimtab_gateway.control.endpoints import CONTROL, FLEET, GENERATION, is_openai, listing
from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp.typedefs import Handler, Middleware

logger = get_logger("control")
_SHOWN_PATH_CHARS = 200
_READ_AWAY_BYTES = 2**26
_READ_AWAY_S = 10.0


def error_response(
    request: web.Request,
    status: int,
    code: str,
    message: str,
    *,
    detail: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    retryable: bool = False,
) -> web.Response:
    """An error answer; on OpenAI paths the object has the keys that OpenAI clients read."""
    error: dict[str, Any] = {"code": code, "message": message, "retryable": retryable}
    if is_openai(request.path):
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        error |= {"type": kind, "param": None}
    if detail is not None:
        error["detail"] = detail
    answer_headers = {"x-trimtab-error": code, "x-should-retry": str(retryable).lower(), **(headers or {})}
    return json_response({"error": error}, status=status, headers=answer_headers)


def error_middleware(roles: Sequence[str]) -> Middleware:
    """Turn everything a handler or the router raises into a JSON answer."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except AccessDenied as error:
            await _read_away(request)
            challenge = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else None
            return error_response(request, error.status, error.code, str(error), headers=challenge)
        except web.HTTPNotFound:
            await _read_away(request)
            return _not_found(request, roles)
        except web.HTTPMethodNotAllowed as error:
            await _read_away(request)
            return _other_method(request, ", ".join(sorted(error.allowed_methods)))
        except web.HTTPException as error:
            return error_response(request, error.status, "invalid_request", error.reason)
        except ConnectionResetError:
            # The client has left while it sent its request: nobody is there to be answered, and nothing failed here.
            raise
        except Exception:
            logger.exception("request failed", method=request.method, path=_shown(request.path))
            message = "the control app failed on this request; its log has the cause"
            return error_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", message)

    return middleware


def _other_method(request: web.Request, allowed: str) -> web.Response:
    headers = {"Allow": allowed}
    if request.method == "OPTIONS":
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=headers)
    message = f"{request.method} is not allowed on {_shown(request.path)}; allowed: {allowed}"
    return error_response(request, HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", message, headers=headers)


async def _read_away(request: web.Request) -> None:
    """Take in the body of a request that is refused.

    A client that is still sending when its connection closes gets a reset instead of the answer: a prompt of some
    megabytes for a mistyped path would look like a broken gateway.
    """

    async def read() -> None:
        taken = 0
        async for chunk in request.content.iter_any():
            taken += len(chunk)
            if taken > _READ_AWAY_BYTES:
                return

    # Whatever goes wrong here, the refusal is still the answer.
    with suppress(asyncio.TimeoutError, ConnectionError, web.RequestPayloadError):
        await asyncio.wait_for(read(), _READ_AWAY_S)


def _not_found(request: web.Request, roles: Sequence[str]) -> web.Response:
    detail = {"roles": list(roles), "endpoints": listing(roles)}
    role, rest = _split_role(request.path)
    if rest in (*GENERATION, *CONTROL, *FLEET) and role not in roles:
        served = ", ".join(roles)
        if role:
            message = f"unknown role {_shown(role)!r}; this gateway serves: {served}"
        else:
            message = f"several roles are served ({served}); put one in front, as in /{roles[0]}{rest}"
        return error_response(request, HTTPStatus.NOT_FOUND, "unknown_role", message, detail=detail)
    message = f"nothing at {request.method} {_shown(request.path)}; 'detail' lists the endpoints of this gateway"
    return error_response(request, HTTPStatus.NOT_FOUND, "not_found", message, detail=detail)


def _split_role(path: str) -> tuple[str, str]:
    """``("role", "/endpoint")`` of a path; an endpoint without a role in front has the empty role."""
    if path in (*GENERATION, *CONTROL, *FLEET):
        return "", path
    role, separator, rest = path.removeprefix("/").partition("/")
    return role, separator + rest


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_PATH_CHARS else f"{text[:_SHOWN_PATH_CHARS]}..."
