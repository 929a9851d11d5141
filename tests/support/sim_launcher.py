"""A launcher whose engines are simulated ones in the test's own process: real HTTP, no start to wait for."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trimtab_manager.launch.types import Exit, LaunchError
from trimtab_manager.sim import SimConfig, SimEngine, SimServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trimtab_manager.launch.types import LaunchRequest

FAST = SimConfig(time_scale=0, pause_poll_s=0.01, max_running_requests=4, max_total_tokens=8_192, context_length=4_096)
_pids = itertools.count(1)


class SimHandle:
    """One engine. ``kill`` is SIGKILL, as far as anybody outside can tell.

    Attributes:
        server: The engine.
        request: What it was launched with.
        stop_calls: The grace of every call of ``stop``.
        stop_hangs: While clear, ``stop`` does not return.
    """

    def __init__(self, server: SimServer, request: LaunchRequest, log: Callable[[str], None]) -> None:
        self.server = server
        self.request = request
        self.stop_calls: list[float] = []
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self._log = log
        self._pid = next(_pids)
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        server.engine.on_crash(lambda reason: self._end(Exit("main", self._pid, signal="SIGKILL", evidence=reason)))

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its made-up pid."""
        return {"pid": self._pid}

    def kill(self) -> None:
        """Its process dies."""
        self.server.engine.crash("killed by the test")

    def exit(self) -> Exit | None:
        """As the protocol says."""
        return self._exit.result() if self._exit.done() else None

    async def exited(self) -> Exit:
        """As the protocol says."""
        return await asyncio.shield(self._exit)

    def log_tail(self, lines: int = 50) -> str:  # the protocol's
        """Nothing."""
        return ""

    async def stop(self, grace_s: float) -> None:
        """As the protocol says."""
        self.stop_calls.append(grace_s)
        self._log(f"stop {self.request.engine_id}#{self.request.generation}")
        await self.may_stop.wait()
        self._end(Exit("main", self._pid, code=0))
        await self.server.stop()

    def _end(self, exit_: Exit) -> None:
        if not self._exit.done():
            self._exit.set_result(exit_)


class SimLauncher:
    """Launches simulated engines, and remembers what it was asked for.

    Args:
        config: Of every engine.

    Attributes:
        requests: Every request.
        handles: The newest handle of each engine id.
        log: What happened, in order; tests add to it.
        fail: Ids whose launch fails.
        gate: While clear, launches wait.
        configure: Changes the configuration of one engine.
    """

    def __init__(self, config: SimConfig = FAST) -> None:
        self.config = config
        self.requests: list[LaunchRequest] = []
        self.handles: dict[str, SimHandle] = {}
        self.log: list[str] = []
        self.fail: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.configure: Callable[[LaunchRequest, SimConfig], SimConfig] = lambda _, config: config
        self._all: list[SimHandle] = []

    async def launch(self, request: LaunchRequest) -> SimHandle:
        """As the protocol says."""
        self.requests.append(request)
        await self.gate.wait()
        if request.engine_id in self.fail:
            raise LaunchError(f"{request.engine_id} exited with code 1 (told so by the test)")
        config = replace(self.config, model_name=request.served_model_name, model_path=request.model_path)
        server = SimServer(SimEngine(self.configure(request, config)))
        starting = asyncio.ensure_future(server.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A listener that is half open can only be closed once it is open.
            await starting
            await server.stop()
            raise
        handle = SimHandle(server, request, self.log.append)
        self.handles[request.engine_id] = handle
        self._all.append(handle)
        self.log.append(f"launch {request.engine_id}#{request.generation}")
        return handle

    @property
    def alive(self) -> list[str]:
        """Ids of engines that were not ended."""
        return [handle.request.engine_id for handle in self._all if handle.exit() is None]

    async def close(self) -> None:
        """As the protocol says."""
        for handle in self._all:
            handle.may_stop.set()
            with suppress(asyncio.CancelledError):
                await handle.stop(0.0)
