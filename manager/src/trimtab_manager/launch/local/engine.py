"""One engine of this machine: its processes, one per node of the replica, and their end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab_manager.launch.command import shown
from trimtab_manager.launch.local.process import KILL, SERVING, TERMINATE, WATCH, GuardedProcess
from trimtab_manager.launch.parts import any_ended, first_exit
from trimtab_manager.launch.types import Exit, StopError

log = logging.getLogger(__name__)

KILL_DEADLINE_S = 30.0
"""How long a killed process may take to go: a driver can hold one while it frees the memory of a GPU."""
GUARD_PATIENCE_S = 2.0
"""How long a guard may take over a kill before it is killed itself: one that was stopped would never do it."""
REFUSE_DEADLINE_S = 5.0


class LocalEngine:
    """The handle. Its processes are running when it is made.

    Args:
        name: The engine, for messages.
        url: The address that others dial.
        bound: Address and port that the server binds.
        processes: One per node; the first is the head.
        facts: What people ask, beyond what the processes say.
        on_gone: Called once when nothing is left: frees ports and GPUs.
    """

    def __init__(
        self,
        name: str,
        url: str,
        bound: tuple[str, int],
        processes: Sequence[GuardedProcess],
        *,
        facts: Mapping[str, Any],
        on_gone: Callable[[], None],
    ) -> None:
        self.name = name
        self._url = url
        self._bound = bound
        self._processes = tuple(processes)
        self._facts = facts
        self._on_gone = on_gone
        self._exit: Exit | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._kill_at_s = float("inf")

    @property
    def url(self) -> str:
        """``http://host:port`` of the head, as others dial it."""
        return self._url

    @property
    def facts(self) -> Mapping[str, Any]:
        """Commands, pids, ports, GPUs and log files."""
        return {
            "launcher": "local",
            "command": [shown(process.command) for process in self._processes],
            "pids": [process.pid for process in self._processes],
            "parts": {str(pid): name for process in self._processes for pid, name in process.parts.items()},
            "guards": [process.guard_pid for process in self._processes],
            **self._facts,
            "logs": [str(process.log.path) for process in self._processes],
        }

    def serving(self) -> None:
        """The server is up and has read its keys: their file goes."""
        self._order(SERVING)

    def watch(self) -> None:
        """From now on the end of any named part of the server, such as a scheduler, is the engine's end."""
        self._order(WATCH)

    def exit(self) -> Exit | None:
        """How the first process that ended did."""
        if self._exit is None:
            self._exit = first_exit(self._processes)
        return self._exit

    async def exited(self) -> Exit:
        """Waits for that."""
        await any_ended(self._processes)
        ended = self.exit()
        assert ended is not None  # noqa: S101  # `ended` is set after the exit
        return ended

    def log_tail(self, lines: int = 50) -> str:
        """The end of the head's log; of several nodes the end of each, under its name."""
        if len(self._processes) == 1:
            return self._processes[0].log.tail(lines)
        return "\n".join(f"--- {process.what}\n{process.log.tail(lines)}" for process in self._processes)

    async def stop(self, grace_s: float) -> None:
        """See :class:`~trimtab_manager.launch.types.EngineHandle`."""
        self._kill_at_s = min(self._kill_at_s, asyncio.get_running_loop().time() + grace_s)
        self._hurry.set()
        if self._stopping is None or (self._stopping.done() and self._stopping.exception() is not None):
            self._stopping = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        gone = asyncio.ensure_future(self._all_gone())
        try:
            self._order(TERMINATE)
            await self._grace(gone)
            self._order(KILL)
            await asyncio.wait({gone}, timeout=GUARD_PATIENCE_S)
            for process in self._processes:
                process.kill_guard()
            await asyncio.wait({gone}, timeout=KILL_DEADLINE_S)
            if not gone.done():
                raise StopError(
                    f"{self.name}: processes are left {KILL_DEADLINE_S:.0f} s after SIGKILL, below the guards "
                    f"{[process.guard_pid for process in self._processes if not process.gone.is_set()]}. A driver may "
                    f"hold them: see `ps -o pid,stat,wchan,args`; stop again, or restart the host"
                )
        finally:
            gone.cancel()
        await self._refused()
        self._on_gone()

    async def _grace(self, gone: asyncio.Future[None]) -> None:
        """Wait until all is gone, or the grace is over; a later stop may have shortened it."""
        while not gone.done():
            self._hurry.clear()
            left = self._kill_at_s - asyncio.get_running_loop().time()
            if left <= 0:
                return
            hurry: asyncio.Future[Any] = asyncio.ensure_future(self._hurry.wait())
            either: set[asyncio.Future[Any]] = {gone, hurry}
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()

    def _order(self, order: bytes) -> None:
        for process in self._processes:
            process.order(order)

    async def _all_gone(self) -> None:
        for process in self._processes:
            await process.gone.wait()

    async def _refused(self) -> None:
        """Wait until nobody listens. Its processes are gone, so only a stranger could go on listening there."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REFUSE_DEADLINE_S
        while _listening(self._bound):
            if loop.time() >= deadline:
                log.warning("%s is stopped, and somebody else listens on its port %d", self.name, self._bound[1])
                return
            await asyncio.sleep(0.01)


def _listening(bound: tuple[str, int]) -> bool:
    """Whether a connect to a bound address succeeds; a wildcard is dialled on loopback."""
    host, port = bound
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared, not bound
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0
