"""What happens around every handler: counting, keys, faults, and errors in FastAPI's words."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab_manager.sim import wire
from trimtab_manager.sim.bodies import ENGINE, BodyError, engine_of, json_response
from trimtab_manager.sim.faults import INFERENCE, Fault
from trimtab_manager.sim.metrics import HTTP_METRICS
from trimtab_manager.sim.reply import EXCHANGE, Exchange, IdleCloser, meet, send_whole

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

LOG = logging.getLogger(__name__)

IDLE_CLOSER = web.AppKey("idle_closer", IdleCloser)

OPEN_PATHS = ("/health", "/ready", "/metrics")
"""Prefixes of paths that need no key, for probes and scrapers."""

OWN_PATHS = "/sim/"
"""The simulated engine's own endpoints meet no fault: through them faults are cleared."""


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count the request, and notice a client that leaves before the answer is complete."""
    exchange = Exchange()
    EXCHANGE.set(exchange)
    request.app[IDLE_CLOSER].begin(request)
    metrics = request.app[HTTP_METRICS]
    began, status = metrics.begin(request), None
    try:
        response = await handler(request)
        status = response.status
    except (asyncio.CancelledError, ConnectionError) as left:
        if not exchange.cut and engine_of(request).crashed is None:
            engine_of(request).disconnects += 1
        if isinstance(left, asyncio.CancelledError):
            raise
        # The write met a closing connection before aiohttp cancelled us. It would log that as a failure of ours, with a
        # traceback per client that left; cancelled is what this handler would have been a moment later.
        raise asyncio.CancelledError from left
    else:
        return response
    finally:
        metrics.end(request, began, status, inference=request.path in INFERENCE)


@web.middleware
async def translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as SGLang's server words them."""
    try:
        return await handler(request)
    except BodyError as error:
        return json_response(wire.validation_error(str(error)), 400)
    except web.HTTPNotFound:
        return json_response({"detail": "Not Found"}, 404)
    except web.HTTPMethodNotAllowed as error:
        response = json_response({"detail": "Method Not Allowed"}, 405)
        response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:
        LOG.exception("%s %s failed", request.method, request.path)
        response = web.Response(text="Internal Server Error", status=500)
        response.force_close()
        return response


@web.middleware
async def check_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """``Authorization: Bearer <key>`` when the engine has a key."""
    key = engine_of(request).config.api_key
    if key is not None and not request.path.startswith(OPEN_PATHS):
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), key.encode()):
            return json_response({"error": "Unauthorized"}, 401)
    return await handler(request)


@web.middleware
async def inject_faults(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the request meet the fault that is armed for its path."""
    fault = _fault_for(request)
    if fault is None:
        return await handler(request)
    EXCHANGE.get().fault = fault
    response: web.StreamResponse | None = await meet(request, fault)
    if response is None:
        response = await handler(request)
        if isinstance(response, web.Response):
            response = await send_whole(request, response)
    if fault.kind == "fin_idle":
        request.app[IDLE_CLOSER].schedule(request, fault.delay_s)
    return response


def _fault_for(request: web.Request) -> Fault | None:
    return None if request.path.startswith(OWN_PATHS) else request.app[ENGINE].faults.take(request.path)


MIDDLEWARES = (observe, translate_errors, check_key, inject_faults)
