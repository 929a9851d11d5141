"""The rows of a fault matrix: what may happen to one engine in one step, and what must hold all the while.

A matrix picks the path of the call that a step sends, arms one of ``FAULTS`` on one engine, runs the operation beside a
``Watch`` and some ``Traffic``, and then looks at who serves.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import aiohttp

from tests.support.sglang_traffic import greedy
from trimtab import NoEligibleBackend, NotServing
from trimtab_manager.sim import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from trimtab import Pool
    from trimtab_manager.sim import SimEngine

SLOW_S = 0.1

FAULTS: Mapping[str, Callable[[str], Fault]] = {
    "kill": lambda path: Fault(kind="crash", path=path),
    "reset": lambda path: Fault(kind="reset", path=path),
    "500": lambda path: Fault(kind="status", path=path, status=500),
    "hang": lambda path: Fault(kind="hold", path=path),
    "slow": lambda path: Fault(kind="delay", path=path, delay_s=SLOW_S),
    "lost_reply": lambda path: Fault(kind="reset", path=path, at_bytes=1, times=1),
}
"""By name, on the path of a call. A process that is stopped (SIGSTOP) is no fault of a request: see ``stopped``."""

HARMLESS = frozenset({"slow"})
"""Faults that cost nothing but time."""


class Model(Protocol):
    """What is watched and asked."""

    @property
    def pool(self) -> Pool:
        """Its routing state."""


class Watch:
    """Looks at every turn of the event loop for an engine that is paused and eligible at once.

    Args:
        scope: The model.
        engines: What is behind its ids.
    """

    def __init__(self, scope: Model, engines: Mapping[str, SimEngine]) -> None:
        self._scope = scope
        self._engines = engines
        self.violations: list[str] = []

    def look(self) -> None:
        """Look once."""
        statistics = self._scope.pool.statistics()
        if statistics.state != "serving" or statistics.server_paused:
            return
        for backend in statistics.backends:
            engine = self._engines.get(backend.id)
            if engine is not None and backend.eligible and engine.admission.paused and engine.crashed is None:
                self.violations.append(f"{backend.id} is paused and eligible")

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look all the time inside the block."""

        async def loop() -> None:
            while True:
                self.look()
                await asyncio.sleep(0)

        task = asyncio.ensure_future(loop())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.look()


class Traffic:
    """Sessions that ask one thing after another, each with a lease, as long as the block runs.

    What an engine aborted or dropped is asked again. Every answer must come from the weights that its lease names.
    """

    def __init__(self, scope: Model, sessions: int = 6) -> None:
        self._scope = scope
        self._sessions = sessions
        self.completed = 0
        self.wrong: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep asking inside the block; at its end what runs is over."""
        stop = asyncio.Event()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as http:
            tasks = [asyncio.ensure_future(self._session(http, number, stop)) for number in range(self._sessions)]
            try:
                yield
            finally:
                stop.set()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _session(self, http: aiohttp.ClientSession, number: int, stop: asyncio.Event) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                lease = self._scope.pool.acquire(f"session-{number}")
            except (NotServing, NoEligibleBackend):
                await asyncio.sleep(0.01)
                continue
            outcome = "cancelled"
            try:
                async with http.post(f"{lease.url}/generate", json=greedy([number + 10, turn % 200], 12)) as answer:
                    meta = (await answer.json())["meta_info"]
                if meta["weight_version"] != str(lease.weight_version):
                    self.wrong.append(f"{lease.backend_id} said {meta['weight_version']} for {lease.weight_version}")
                outcome = "aborted" if meta["finish_reason"]["type"] == "abort" else "completed"
                self.completed += outcome == "completed"
            except (aiohttp.ClientError, ConnectionError):
                outcome = "failed"
                await asyncio.sleep(0.01)
            finally:
                lease.settle(outcome)  # type: ignore[arg-type]  # one of the words
