"""A request that kills its engine, under a manager that replaces the dead at once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.manager.fleet.conftest import KEY, running_fleet
from tests.support.sglang_traffic import greedy
from tests.support.waiting import wait_until
from trimtab.errors import PoisonSuspected

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet
    from tests.support.lab import Lab

ENGINES = 3
POISON: dict[str, Any] = greedy((1, 2, 10**6), 4)
"""Its last token id is outside the vocabulary."""


async def kill(fleet: Fleet, session: str) -> None:
    """A turn of ``session`` that kills its engine; the dead one is replaced before the client has said anything."""
    lease = fleet.pool.acquire(session)
    engine, generation = lease.backend_id, fleet.published()[lease.backend_id]
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientError):
            await http.post(f"{lease.url}/generate", json=POISON)
    await fleet.replaced(engine, generation + 1)
    lease.settle("ambiguous")


def has_replaced(fleet: Fleet, launched: int) -> bool:
    """Whether so many were launched so far, and as many as there should be are published."""
    return (len(fleet.launcher.requests), len(fleet.published())) == (launched, ENGINES)


async def test_who_died_with_two_engines_is_refused_a_third() -> None:
    """The engines are gone from the router by then, and what ran on them is remembered, with how they ended."""
    async with running_fleet(ENGINES) as fleet:
        await kill(fleet, "s")
        await kill(fleet, "s")
        with pytest.raises(PoisonSuspected, match="SIGKILL"):
            fleet.pool.acquire("s")
        fleet.pool.acquire("another").settle("completed")
        assert fleet.pool.statistics().engine_deaths == 2


async def test_a_poison_request_through_the_data_plane_is_refused(lab: Lab) -> None:
    """Its third attempt is answered 422, and every engine of that moment lives on."""
    async with running_fleet(ENGINES) as fleet, aiohttp.ClientSession() as http:
        gateway = await lab.gateway(pools={KEY: fleet.pool}, probe_interval_s=0.2)

        async def generate(body: dict[str, Any]) -> tuple[int, Any]:
            async with http.post(f"{gateway.url}/rollout/generate", json=body) as answer:
                return answer.status, await answer.json()

        for attempt in range(2):
            assert (await generate({**POISON, "rid": f"attempt-{attempt}"}))[0] == 502
            launched = ENGINES + attempt + 1
            await wait_until(functools.partial(has_replaced, fleet, launched), "the dead engine is replaced")
        status, answer = await generate({**POISON, "rid": "again"})
        assert (status, answer["error"]["code"]) == (422, "poison_suspected")
        assert (await generate(greedy((1, 2), 4)))[0] == 200
        assert all(handle.exit() is None for handle in fleet.launcher.handles.values())
        await gateway.idle()
