"""A thousand random interleavings against engines that die of misuse, as SGLang does: none dies (B19).

An engine dies of a release while something runs, of a step without its memory, of a second release and of a resume of
what is not released. Whoever gives orders to a manager knows nothing of that.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.manager.fleet.conftest import running_fleet
from tests.support.sglang_traffic import greedy
from tests.support.sim_launcher import FAST, SimLauncher
from trimtab.errors import InvalidTransition, NoEligibleBackend, NotServing, UpdateInProgress, VersionRegression

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.manager.fleet.conftest import Fleet

FLEETS = 20
ROUNDS = 50
"""So many fleets live through so many interleavings each: 1,000 in all."""

AT_ONCE = 5
"""Fleets at the same time: most of the time they wait for proof that an engine is idle."""

ACTIONS = 8
ENGINES = 2
MORTAL = replace(FAST, memory_saver=True, weight_load_s=0)
LATEST_TURN = 60
"""An action begins within so many turns of the event loop."""

REFUSALS = (InvalidTransition, NotServing, NoEligibleBackend, UpdateInProgress, VersionRegression)
"""What an order or a request that does not fit the moment ends with. Anything else is a failure."""


class Interleavings:
    """One fleet, and eight actions at a time that know nothing of each other."""

    def __init__(self, fleet: Fleet, http: aiohttp.ClientSession, seed: int) -> None:
        self.fleet = fleet
        self.http = http
        self.random = random.Random(seed)
        self.version = 0
        self.served = 0

    async def round(self) -> None:
        """One interleaving, to its end."""
        manager = self.fleet.manager
        choices: list[Callable[[], Awaitable[object]]] = [
            self.request,
            self.request,
            self.impatient_request,
            self.update,
            self.abort,
            lambda: manager.sleep("rollout"),
            lambda: manager.wake("rollout"),
            lambda: manager.wake("rollout", tags=["weights"]),
            lambda: manager.wake("rollout", tags=["kv_cache", "cuda_graph"]),
        ]
        await asyncio.gather(*[self.later(self.random.choice(choices)) for _ in range(ACTIONS)])

    async def later(self, action: Callable[[], Awaitable[object]]) -> None:
        """At a random moment."""
        for _ in range(self.random.randrange(LATEST_TURN)):
            await asyncio.sleep(0)
        with suppress(*REFUSALS):
            await action()

    async def request(self) -> None:
        """A generation under a lease; it ends, or is aborted, with the weights of its lease."""
        lease = self.fleet.pool.acquire(f"session-{self.random.randrange(4)}")
        outcome = "cancelled"
        try:
            body = greedy([self.random.randrange(200), 7], self.random.randrange(1, 30))
            async with self.http.post(f"{lease.url}/generate", json=body) as answer:
                assert answer.status == 200, await answer.text()
                meta = (await answer.json())["meta_info"]
            outcome = "aborted" if meta["finish_reason"]["type"] == "abort" else "completed"
            self.served += outcome == "completed"
            assert lease.weight_version is None or meta["weight_version"] == str(lease.weight_version)
        finally:
            lease.settle(outcome)  # type: ignore[arg-type]  # one of the words

    async def impatient_request(self) -> None:
        """One whose client is gone before the answer."""
        task = asyncio.ensure_future(self.request())
        for _ in range(self.random.randrange(LATEST_TURN)):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def update(self) -> None:
        """New weights from disk."""
        self.version += 1
        await self.fleet.manager.update_from_disk("rollout", path=f"sim://weights/{self.version}", version=self.version)

    async def abort(self) -> None:
        """Somebody aborts everything on one engine, past the manager."""
        await self.random.choice(self.fleet.fleet.replicas).client.abort_all()

    async def settle(self) -> None:
        """Awake, whatever it was."""
        result = await self.fleet.manager.wake("rollout")
        assert result.ok, result


async def live_through(seed: int) -> None:
    """The interleavings of one fleet; after each of them both engines serve, and neither was ever replaced."""
    launcher = SimLauncher(MORTAL)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        running_fleet(ENGINES, launcher=launcher) as fleet,
    ):
        trial = Interleavings(fleet, http, seed)
        for number in range(ROUNDS):
            where = f"seed {seed}, round {number}"
            await trial.round()
            await trial.settle()
            crashes = {engine: handle.server.engine.crashed for engine, handle in launcher.handles.items()}
            assert set(crashes.values()) == {None}, f"{where}: {crashes}"
            assert len(launcher.requests) == ENGINES, f"{where}: an engine was replaced"
            assert fleet.eligible() == set(fleet.published()) == set(crashes), where
            served = trial.served
            await trial.request()
            assert trial.served == served + 1, where
        assert fleet.pool.statistics().outstanding == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, FLEETS, AT_ONCE))
async def test_b19_a_manager_kills_no_engine_in_a_thousand_interleavings(first: int) -> None:
    """Requests, sleep, wake, update and abort: a failure names the seed of its fleet."""
    fleets = [asyncio.ensure_future(live_through(seed)) for seed in range(first, first + AT_ONCE)]
    try:
        await asyncio.gather(*fleets)
    finally:
        for fleet in fleets:
            fleet.cancel()
        await asyncio.gather(*fleets, return_exceptions=True)
