"""Engines that run already: somebody else started them, and somebody else ends them.

Nothing but HTTP is known of such an engine. Whether its processes live cannot be told from a failed call, so the handle
never says that it ended: health checks have to find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trimtab_manager.launch.startup import PROGRESS_INTERVAL_S, NotReady, log_progress, wait_ready
from trimtab_manager.launch.types import Exit, LaunchError, LaunchRequest, ProgressListener


class ExternalEngine:
    """The handle of an engine that this process has no rights over."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """What was configured."""
        return self._url

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its address; more is not known."""
        return {"launcher": "external", "url": self._url}

    def exit(self) -> Exit | None:
        """None: nobody here would know."""
        return None

    async def exited(self) -> Exit:
        """Never returns."""
        never: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        return await never

    def log_tail(self, lines: int = 50) -> str:  # the protocol's
        """Empty: its log is elsewhere."""
        return ""

    async def stop(self, grace_s: float) -> None:
        """Does nothing: who started it ends it."""


class ExternalLauncher:
    """Attaches to engines at their URLs.

    Args:
        progress: Called while an engine is not healthy.
        progress_interval_s: Seconds between two such calls.
    """

    def __init__(
        self, *, progress: ProgressListener = log_progress, progress_interval_s: float = PROGRESS_INTERVAL_S
    ) -> None:
        self._progress = progress
        self._progress_interval_s = progress_interval_s

    async def launch(self, request: LaunchRequest) -> ExternalEngine:
        """Waits until the engine is healthy.

        Raises:
            LaunchError: It has no URL, or is not healthy within the deadline.
        """
        if request.url is None:
            raise LaunchError(f"{request.engine_id}: an external engine needs a URL; set urls of its group")
        engine = ExternalEngine(request.url.rstrip("/"))
        try:
            await wait_ready(
                engine,
                request.engine_id,
                deadline_s=request.deadline_s,
                progress=self._progress,
                progress_interval_s=self._progress_interval_s,
            )
        except NotReady as error:
            raise LaunchError(
                f"{request.engine_id} at {engine.url} was not healthy within {error.elapsed_s:.1f} s; GET /health last "
                f"said: {error.health}. It is not ours to start: see its own log, or correct the URL"
            ) from None
        return engine

    async def close(self) -> None:
        """Does nothing: nothing was started."""
