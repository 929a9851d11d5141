"""SGLang's control endpoints: abort, pause, flush, memory, weights.

What may take long, or must not stop half-way, runs as a task of its own: FastAPI does not cancel a handler whose client
left, so a pause that was asked for happens although nobody waits for the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from trimtab_manager.sim.bodies import (
    BodyError,
    Field,
    engine_of,
    is_boolean,
    is_list_of,
    is_number,
    is_string,
    json_response,
    read_object,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

PAUSE_MODES = ("abort", "retract", "in_place")
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the "
    "operation will not be performed.)\n"
)

_STRING = Field(is_string, "a valid string")
_BOOLEAN = Field(is_boolean, "a valid boolean")
_TAGS = Field(is_list_of(is_string), "a list of strings")


class Tasks:
    """Control operations in progress; they survive their client and end with the server."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Do it to its end, whether or not the caller is cancelled meanwhile."""
        task = asyncio.create_task(operation)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Cancel what is left."""
        for task in list(self._running):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


TASKS = web.AppKey("tasks", Tasks)


class Untyped(web.Response):
    """A body without a content type, as SGLang sends some; aiohttp would add a default."""


async def drop_content_type(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler of the application."""
    if isinstance(response, Untyped):
        response.headers.pop("Content-Type", None)


async def handle_abort(request: web.Request) -> web.Response:
    """POST ``/abort_request``: 200 and no body, whatever the id."""
    body = await _read(request, rid=_STRING, abort_all=_BOOLEAN)
    engine_of(request).abort(body.get("rid") or "", everything=bool(body.get("abort_all")))
    return web.Response()


async def handle_pause(request: web.Request) -> web.Response:
    """POST ``/pause_generation``."""
    body = await _read(request, mode=_STRING)
    mode = body.get("mode", "abort")
    if mode not in PAUSE_MODES:
        raise BodyError("literal_error", ("body", "mode"), "Input should be 'abort', 'retract' or 'in_place'", mode)
    await request.app[TASKS].run(engine_of(request).pause(mode))
    return json_response({"message": "Generation paused successfully.", "status": "ok"})


async def handle_continue(request: web.Request) -> web.Response:
    """POST ``/continue_generation``; the body ``{}`` is required."""
    await _read(request, torch_empty_cache=_BOOLEAN)
    await request.app[TASKS].run(engine_of(request).resume_generation())
    return json_response({"message": "Generation continued successfully.", "status": "ok"})


async def handle_flush(request: web.Request) -> web.Response:
    """GET or POST ``/flush_cache[?timeout=seconds]``."""
    given = request.query.get("timeout", "0")
    try:
        timeout_s = float(given)
    except ValueError:
        raise BodyError("float_parsing", ("query", "timeout"), "Input should be a valid number", given) from None
    if timeout_s < 0:
        raise BodyError("greater_than_equal", ("query", "timeout"), "Input should be at least 0", given)
    problem = await request.app[TASKS].run(engine_of(request).flush(timeout_s))
    return Untyped(body=(problem or FLUSHED).encode(), status=400 if problem else 200)


async def handle_release(request: web.Request) -> web.Response:
    """GET or POST ``/release_memory_occupation``: ``null``, or death when the engine is busy."""
    body = await _read(request, tags=_TAGS)
    await request.app[TASKS].run(engine_of(request).release_memory(body.get("tags")))
    return json_response(None)


async def handle_resume(request: web.Request) -> web.Response:
    """GET or POST ``/resume_memory_occupation``: ``null``, or death when a tag is not released."""
    body = await _read(request, tags=_TAGS)
    await request.app[TASKS].run(engine_of(request).resume_memory(body.get("tags")))
    return json_response(None)


async def handle_update_from_disk(request: web.Request) -> web.Response:
    """POST ``/update_weights_from_disk``."""
    body = await _read(
        request,
        model_path=Field(is_string, "a valid string", required=True),
        weight_version=_STRING,
        load_format=_STRING,
        flush_cache=_BOOLEAN,
        abort_all_requests=_BOOLEAN,
    )
    success, message = await request.app[TASKS].run(
        engine_of(request).update_from_disk(
            body["model_path"],
            body.get("weight_version"),
            flush=bool(body.get("flush_cache", True)),
            abort_all=bool(body.get("abort_all_requests", False)),
        )
    )
    content = {"success": success, "message": message, "num_paused_requests": 0}
    return json_response(content, 200 if success else 400)


async def handle_update_version(request: web.Request) -> web.Response:
    """POST ``/update_weight_version``: by default aborts every request."""
    body = await _read(
        request, new_version=Field(is_string, "a valid string", required=True), abort_all_requests=_BOOLEAN
    )
    version = body["new_version"]
    await request.app[TASKS].run(
        engine_of(request).set_version(version, abort_all=bool(body.get("abort_all_requests", True)))
    )
    return json_response({"success": True, "message": f"Weight version updated to {version}", "new_version": version})


async def handle_slow_down(request: web.Request) -> web.Response:
    """GET or POST ``/slow_down``: real seconds of sleep before every step; ``null`` ends it."""
    body = await _read(request, forward_sleep_time=Field(is_number, "a valid number"))
    if "forward_sleep_time" not in body:
        raise BodyError("missing", ("body", "forward_sleep_time"), "Field required", body)
    async with engine_of(request).scheduler.between_steps():
        engine_of(request).scheduler.forward_sleep_s = float(body["forward_sleep_time"] or 0)
    return json_response(None)


async def _read(request: web.Request, **fields: Field) -> dict[str, Any]:
    body = await read_object(request)
    for name, field in fields.items():
        field.check(body, name)
    return body
