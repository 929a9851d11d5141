"""Concurrent duplicates of an operation join the one that runs."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import wait_until
from trimtab.errors import InvalidTransition
from trimtab_manager.fleet.single_flight import SingleFlight


class Work:
    """An operation that waits, and counts how often it was begun and broken off."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        """Do it."""
        self.begun += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.cancelled += 1
            raise
        return self.begun


async def test_duplicates_join_and_others_do_not() -> None:
    """One run per key at a time; a later call is a new one."""
    flights, work = SingleFlight("rollout/policy"), Work()
    callers = [asyncio.create_task(flights.run("sleep", work)) for _ in range(3)]
    other = asyncio.create_task(flights.run("wake", work))
    await asyncio.sleep(0)
    work.may_end.set()
    assert await asyncio.gather(*callers, other) == [1, 1, 1, 2]
    assert work.begun == 2
    assert await flights.run("sleep", work) == 3


async def test_a_cancelled_caller_leaves_it_to_the_others() -> None:
    """Only the last one who leaves takes the operation with him, and sees it ended."""
    flights, work = SingleFlight("rollout/policy"), Work()
    first, second = (asyncio.create_task(flights.run("sleep", work)) for _ in range(2))
    await wait_until(lambda: work.begun, "it runs")
    first.cancel()
    await asyncio.wait({first})
    assert work.cancelled == 0
    second.cancel()
    await asyncio.wait({second})
    assert work.cancelled == 1


async def test_an_error_reaches_every_caller() -> None:
    """Nobody waits for a result that never comes."""
    flights = SingleFlight("rollout/policy")

    async def fail() -> None:
        raise ValueError("no")

    results = await asyncio.gather(flights.run("x", fail), flights.run("x", fail), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]


async def test_closing_ends_what_runs_and_refuses_what_comes() -> None:
    """Callers are told why, which is not that they were cancelled."""
    flights, work = SingleFlight("rollout/policy"), Work()
    caller = asyncio.create_task(flights.run("sleep", work))
    await wait_until(lambda: work.begun, "it runs")
    await flights.close()
    with pytest.raises(InvalidTransition, match="rollout/policy: sleep is refused"):
        await caller
    with pytest.raises(InvalidTransition, match="shut down"):
        await flights.run("sleep", work)
    assert work.cancelled == 1
