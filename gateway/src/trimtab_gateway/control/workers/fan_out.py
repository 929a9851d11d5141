"""``/flush_cache``, ``/get_loads`` and ``/v1/loads``: one call here, one to every worker."""

from __future__ import annotations

from datetime import datetime, timezone
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from trimtab_gateway.control.context import json_response
from trimtab_gateway.control.workers.engines import FLUSH_S, LOAD_S, EngineAnswer, ask_all

if TYPE_CHECKING:
    from aiohttp import web

    from trimtab_gateway.control.workers.fleet import Workers

UNKNOWN_LOAD = -1


async def flush_cache(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """Flush the KV cache of every worker; 206 with the failed ones when not all did (a busy engine refuses)."""
    listed = workers.listed(role)
    answers = await ask_all(workers, listed, "POST", "/flush_cache", via=_via(request), timeout_s=FLUSH_S)
    failed = [_failed(answer) for answer in answers if answer.error is not None]
    flushed = [answer.worker.url for answer in answers if answer.error is None]
    document: dict[str, Any] = {
        "status": "partial_success" if failed else "success",
        "message": f"flushed the cache of {len(flushed)} of {len(listed)} workers",
        "workers_flushed": len(flushed),
        "total_http_workers": len(listed),
        "total_workers": len(listed),
    }
    if failed:
        document |= {"successful": flushed, "failed": failed}
    return json_response(document, status=_status(failed))


async def get_loads(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """Tokens in use on every worker, as the engine says; -1 where it does not."""
    answers = await _loads(request, workers, role, "core")
    loads = [{"worker": answer.worker.url, "load": _used_tokens(answer)} for answer in answers]
    return json_response({"workers": loads})


async def v1_loads(request: web.Request, workers: Workers, role: str | None) -> web.Response:
    """The entries of all engines' ``/v1/loads``, each with its ``worker``; 206 when some are missing."""
    include = request.query.get("include", "all")
    answers = await _loads(request, workers, role, "core" if include == "core" else "all")
    known = [answer for answer in answers if _entries(answer)]
    failed = [_failed(answer) for answer in answers if not _entries(answer)]
    loads = [{**entry, "worker": answer.worker.url} for answer in known for entry in _entries(answer)]
    document = {"timestamp": datetime.now(timezone.utc).isoformat(), "loads": loads, "failed": failed}
    return json_response(document, status=_status(failed))


async def _loads(request: web.Request, workers: Workers, role: str | None, include: str) -> list[EngineAnswer]:
    path = f"/v1/loads?include={include}"
    return await ask_all(workers, workers.listed(role), "GET", path, via=_via(request), timeout_s=LOAD_S)


def _via(request: web.Request) -> list[str]:
    return request.headers.getall("Via", [])


def _entries(answer: EngineAnswer) -> list[dict[str, Any]]:
    loads = answer.value.get("loads") if isinstance(answer.value, dict) else None
    return [load for load in loads if isinstance(load, dict)] if isinstance(loads, list) else []


def _used_tokens(answer: EngineAnswer) -> int:
    used = [entry.get("num_used_tokens") for entry in _entries(answer)]
    numbers = [number for number in used if isinstance(number, int)]
    return sum(numbers) if used and len(numbers) == len(used) else UNKNOWN_LOAD


def _failed(answer: EngineAnswer) -> dict[str, str]:
    return {"worker": answer.worker.url, "error": answer.error or "answered without loads"}


def _status(failed: list[dict[str, str]]) -> int:
    return HTTPStatus.PARTIAL_CONTENT if failed else HTTPStatus.OK
