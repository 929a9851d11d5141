"""An engine whose every answer is scripted, control calls among them, and that remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

HOLD = "hold"
"""The answer never comes."""

CUT = "cut"
"""The connection ends before any answer."""

Script = tuple[int, Any] | str


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    authorization: str | None
    body: Any


class ScriptedControl:
    """Answers as the script says, one entry per request, and with an empty object after its end."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self._script: deque[Script] = deque()

    def next(self, *script: Script) -> None:
        """What the next requests get: status and body (JSON, or bytes as they are), ``HOLD``, ``CUT``."""
        self._script.extend(script)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answers one request."""
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.asked.append(Asked(request.method, request.path_qs, request.headers.get("Authorization"), body))
        script = self._script.popleft() if self._script else (200, {})
        if isinstance(script, str):
            if script == CUT and request.transport is not None:
                request.transport.close()
            await asyncio.Event().wait()
            return web.Response()  # nobody sets that event
        status, answer = script
        return web.Response(status=status, body=answer if isinstance(answer, bytes) else json.dumps(answer))


@asynccontextmanager
async def scripted_control() -> AsyncIterator[ScriptedControl]:
    """A scripted engine on a free port of this machine."""
    engine = ScriptedControl()
    runner = web.ServerRunner(web.Server(engine.handle, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()
