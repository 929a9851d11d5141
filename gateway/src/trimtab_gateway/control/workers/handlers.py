"""``/workers`` and its older names: list, add, show, remove."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from trimtab_gateway.control.context import json_response
from trimtab_gateway.control.workers.documents import (
    accepted_document,
    list_document,
    removal_document,
    urls_document,
    worker_document,
)
from trimtab_gateway.control.workers.refusal import Refusal
from trimtab_gateway.control.workers.registration import parse_registration

if TYPE_CHECKING:
    from aiohttp import web

    from trimtab_gateway.control.workers.fleet import Workers


async def list_workers(_request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``GET /workers``: configured engines and registered ones, draining ones among them."""
    return json_response(list_document(workers.listed(role)))


async def show_worker(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``GET /workers/<id>``."""
    return json_response(worker_document(workers.find(role, request.match_info["worker"])))


async def add_worker(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``POST /workers``: 202; ``GET /workers`` lists it at once, and a repetition has the same id."""
    registration = parse_registration(await _body(request), engine_key=workers.engine_key)
    worker = await workers.register(role, registration)
    prefix = request.path.removesuffix("/workers")
    return json_response(accepted_document(worker, prefix), status=HTTPStatus.ACCEPTED)


async def remove_worker(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``DELETE /workers/<id>``: 202; no new request goes there, and what runs there finishes."""
    worker = workers.find(role, request.match_info["worker"])
    await workers.remove(worker)
    return json_response(removal_document(worker), status=HTTPStatus.ACCEPTED)


async def list_urls(_request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``GET /list_workers``."""
    return json_response({"urls": [worker.url for worker in workers.listed(role)]})


async def add_url(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``POST /add_worker?url=``."""
    said = dict(request.query) or await _body(request)
    await workers.register(role, parse_registration(_with_url(said), engine_key=workers.engine_key))
    return json_response(urls_document(workers.listed(role)))


async def remove_url(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """``POST /remove_worker?url=``."""
    said = _with_url(dict(request.query) or await _body(request))
    url = said.get("url")
    if not isinstance(url, str):
        raise Refusal("invalid_request", "which worker? Send POST /remove_worker?url=http://10.0.0.1:30000")
    await workers.remove(workers.find(role, url))
    return json_response(urls_document(workers.listed(role)))


def _with_url(said: Any) -> dict[str, Any]:
    members = said if isinstance(said, dict) else {}
    url = members.get("url", members.get("worker_url"))
    if url is None:
        raise Refusal("invalid_request", "which worker? Name it as in ?url=http://10.0.0.1:30000")
    return {**members, "url": url}


async def _body(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read() or b"null")
    except ValueError as error:
        raise Refusal("invalid_json", f"the body is not valid JSON: {error}") from error
