"""Waiting until an engine serves: ready, or any of its processes ended, or the deadline."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

import aiohttp

from trimtab_manager.launch.types import EngineHandle, Exit, Progress, ProgressListener

log = logging.getLogger(__name__)

POLL_S = 0.2
"""Between two looks at a server that refuses or says 503, which it does at once while it starts."""
ANSWER_TIMEOUT_S = 25.0
"""SGLang's /health generates a token; a scheduler that hangs makes it 503 after 20 s."""
PROGRESS_INTERVAL_S = 30.0


class NotReady(Exception):
    """It is not going to serve.

    Attributes:
        exit: How a process ended; None: the deadline passed.
        elapsed_s: How long it was waited for.
        health: What ``GET /health`` last said.
    """

    def __init__(self, exit_: Exit | None, elapsed_s: float, health: str) -> None:
        super().__init__(str(exit_ or health))
        self.exit = exit_
        self.elapsed_s = elapsed_s
        self.health = health


def log_progress(progress: Progress) -> None:
    """The listener by default."""
    log.info("%s", progress)


async def wait_ready(
    handle: EngineHandle,
    engine_id: str,
    *,
    deadline_s: float,
    progress: ProgressListener = log_progress,
    progress_interval_s: float = PROGRESS_INTERVAL_S,
    clock: Callable[[], float] = time.monotonic,
    url: str | None = None,
) -> float:
    """Returns the seconds until ``GET /health`` said 200.

    Args:
        handle: The engine; its exit ends the wait.
        engine_id: For the progress.
        deadline_s: From now.
        progress: Called every ``progress_interval_s``.
        progress_interval_s: Seconds between two calls of it.
        clock: Seconds of a clock that never goes back.
        url: Where to ask, if that is not the advertised address.

    Raises:
        NotReady: A process ended, or the deadline passed.
    """
    started = clock()
    health = _Health(f"{url or handle.url}/health")
    asking = asyncio.ensure_future(health.wait())
    dying = asyncio.ensure_future(handle.exited())
    try:
        while True:
            elapsed = clock() - started
            left = max(0.0, min(progress_interval_s, deadline_s - elapsed))
            await asyncio.wait({asking, dying}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            elapsed = clock() - started
            # The end first: what answered may be another server, on whose port ours could not start.
            if (ended := handle.exit()) is not None:
                raise NotReady(ended, elapsed, health.last)
            if asking.done():
                asking.result()
                return elapsed
            if elapsed >= deadline_s:
                raise NotReady(None, elapsed, health.last)
            progress(Progress(engine_id, elapsed, deadline_s, health.last, handle.log_tail(1)))
    finally:
        for task in (asking, dying):
            task.cancel()
        await asyncio.wait({asking, dying})


class _Health:
    """Asks until the answer is 200, and remembers the last other one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.last = "not asked yet"

    async def wait(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            while True:
                if await self._ask(client):
                    return
                await asyncio.sleep(POLL_S)

    async def _ask(self, client: aiohttp.ClientSession) -> bool:
        try:
            async with client.get(self._url) as answer:
                self.last = str(answer.status)
                return answer.status == 200  # noqa: PLR2004  # OK
        except asyncio.TimeoutError:
            self.last = f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            self.last = str(error.os_error) if number is None else os.strerror(number).lower()
        except (OSError, aiohttp.ClientError) as error:
            self.last = str(error) or type(error).__name__
        return False
