"""Calls to every worker at once: cache and load. The only place of the control app that asks engines anything."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_gateway.control.workers.fleet import Worker, Workers

AT_ONCE = 64
"""Engines asked at the same time."""
FLUSH_S = 60.0
LOAD_S = 5.0
_SHOWN_CHARS = 200


@dataclass(frozen=True)
class EngineAnswer:
    """What one worker answered: its JSON, or why there is none."""

    worker: Worker
    value: Any = None
    error: str | None = None


async def ask_all(
    fleet: Workers, asked: Sequence[Worker], method: str, path: str, *, via: Sequence[str], timeout_s: float
) -> list[EngineAnswer]:
    """Ask each of ``asked`` for ``path``, with the engines' key and a deadline of its own.

    Args:
        fleet: Whose engines they are.
        asked: Some of them.
        method: Of HTTP.
        path: The engine's, with its query.
        via: The gateways that the question has passed, this one among them: by its name it ends a loop.
        timeout_s: The deadline of each answer.

    Returns:
        The answers in the order of ``asked``; nothing is raised for an engine that does not answer.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    headers = {"Via": ", ".join(via)} if via else {}
    if fleet.engine_key is not None:
        headers["Authorization"] = f"Bearer {fleet.engine_key}"
    has_tls = any(worker.backend.url.startswith("https") for worker in asked)
    trust = ssl.create_default_context(cafile=fleet.engine_ca) if has_tls else True
    # Engines are reached directly, whatever the environment says; the deadline is that of each call.
    connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=trust)
    async with aiohttp.ClientSession(connector=connector, trust_env=False, headers=headers) as session:

        async def ask(worker: Worker) -> EngineAnswer:
            async with gate:
                return await _ask(session, worker, method, path, timeout_s)

        return list(await asyncio.gather(*map(ask, asked)))


async def _ask(
    session: aiohttp.ClientSession, worker: Worker, method: str, path: str, timeout_s: float
) -> EngineAnswer:
    url = f"{worker.backend.url}{path}"
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with session.request(method, url, timeout=timeout, allow_redirects=False) as answer:
            body = await answer.read()
    except asyncio.TimeoutError:
        return EngineAnswer(worker, error=f"no answer within {timeout_s} s")
    except aiohttp.ClientError as error:
        return EngineAnswer(worker, error=str(error) or type(error).__name__)
    if answer.status != HTTPStatus.OK:
        said = body.decode("utf-8", "replace").strip()[:_SHOWN_CHARS]
        return EngineAnswer(worker, error=f"{answer.status}: {said}")
    try:
        return EngineAnswer(worker, orjson.loads(body))
    except ValueError:
        # ``/flush_cache`` says so in words.
        return EngineAnswer(worker, body.decode("utf-8", "replace"))
