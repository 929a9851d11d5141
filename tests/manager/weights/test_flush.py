"""KV caches of the old weights: emptied with patience, and looked after."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.sglang_traffic import greedy
from tests.support.waiting import wait_until
from trimtab_manager.sim import Fault
from trimtab_manager.weights import FromDisk, UpdateFailed

if TYPE_CHECKING:
    from tests.manager.weights.conftest import Fleet

NEW = FromDisk("sim://weights/2")
PROMPT = list(range(20, 60))


async def cached(http: aiohttp.ClientSession, url: str) -> int:
    """How many tokens of the prompt an engine finds in its cache."""
    async with http.post(f"{url}/generate", json=greedy(PROMPT, 1)) as answer:
        return int((await answer.json())["meta_info"]["cached_tokens"])


@pytest.mark.parametrize("policy", ["flush", "keep"])
async def test_b22_after_an_update_a_repeated_prompt_has_no_token_of_the_old_weights(fleet: Fleet, policy: str) -> None:
    """Under ``flush`` nothing of a prompt that everybody has seen is cached; under ``keep``, all of it."""
    async with aiohttp.ClientSession() as http:
        for server in fleet.servers:
            await cached(http, server.url)
            assert await cached(http, server.url) > 0
        assert (await fleet.updates.update(NEW, 2, flush="keep" if policy == "keep" else "flush")).ok
        found = [await cached(http, server.url) for server in fleet.servers]
    assert all(count == 0 if policy == "flush" else count > 0 for count in found)


async def test_b22_a_flush_that_does_nothing_is_found_out(fleet: Fleet) -> None:
    """e1 says that it flushed and kept everything: its probe prompt is still cached, so it is tainted."""
    fleet.engines[1].arm(Fault(kind="no_flush"))
    result = await fleet.updates.update(NEW, 2)
    assert [row.status for row in result.engines] == ["ok", "error", "ok"]
    assert "tokens of the probe prompt in the KV cache" in str(result.engines[1].error)
    assert fleet.scope.states() == {"e0": "eligible", "e1": "tainted", "e2": "eligible"}
    assert not any(fleet.paused)


async def test_b5_a_refused_flush_is_asked_again_with_growing_gaps(fleet: Fleet) -> None:
    """e0 refuses three times, as it does while something is queued, and then flushes: nothing is lost."""
    fleet.engines[0].arm(Fault(kind="status", path="/flush_cache", status=400, times=3))
    began = time.monotonic()
    assert (await fleet.updates.update(NEW, 2)).ok
    assert time.monotonic() - began >= 0.05 + 0.1 + 0.2


@pytest.mark.slow
async def test_b5_an_engine_that_never_flushes_is_named_with_its_queue(fleet: Fleet) -> None:
    """At the deadline it is left behind, in a bounded number of tries, and the job goes on without it."""
    fleet.engines[2].arm(Fault(kind="status", path="/flush_cache", status=400))
    began = time.monotonic()
    result = await fleet.updates.update(NEW, 2)
    assert time.monotonic() - began < 3
    assert [row.status for row in result.engines] == ["ok", "ok", "error"]
    error = str(result.engines[2].error)
    assert "engine e2" in error
    assert re.search(r"refused to empty the KV cache, asked [345] times: 0 requests run and 0 wait", error)
    assert fleet.scope.pool.weight_version == 2
    assert fleet.scope.states()["e2"] == "tainted"


async def test_b5_nothing_is_flushed_while_requests_run(fleet: Fleet) -> None:
    """Sixty-four requests on engines that run eight each: they are drained first, so that no flush is ever refused."""
    refused = []
    for engine in fleet.engines:
        flush = engine.scheduler.flush

        def spy(flush: object = flush) -> bool:
            assert callable(flush)
            if not flush():
                refused.append(1)
                return False
            return True

        engine.scheduler.flush = spy  # type: ignore[method-assign]  # counts refusals
        engine.scheduler.forward_sleep_s = 0.02

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def one(number: int) -> str:
            lease = fleet.scope.pool.acquire(f"s{number}")
            async with http.post(f"{lease.url}/generate", json=greedy([number, 30, 40], 500)) as answer:
                kind = str((await answer.json())["meta_info"]["finish_reason"]["type"])
            lease.settle("aborted" if kind == "abort" else "completed")
            return kind

        running = [asyncio.ensure_future(one(number)) for number in range(64)]
        await wait_until(lambda: sum(e.statistics().running for e in fleet.engines) == 24, "all engines are full")
        assert (await fleet.updates.update(NEW, 2)).ok
        assert await asyncio.gather(*running) == ["abort"] * 64
    assert refused == []


@pytest.mark.slow
async def test_a_foreign_client_keeps_its_engine_out(fleet: Fleet) -> None:
    """Somebody calls e0 past the router, and never stops: e0 is not idle at its deadline.

    It keeps the old weights, out of routing, and the others are updated without it.
    """
    fleet.engines[0].scheduler.forward_sleep_s = 0.05
    async with aiohttp.ClientSession() as http:

        async def past_the_router() -> None:
            async with http.post(f"{fleet.servers[0].url}/generate", json=greedy([7, 8, 9], 1000)) as answer:
                await answer.read()

        foreign = asyncio.ensure_future(past_the_router())
        await wait_until(lambda: fleet.engines[0].statistics().running == 1, "it runs")
        result = await fleet.updates.update(NEW, 2)
        assert [row.status for row in result.engines] == ["error", "ok", "ok"]
        assert "who else sends requests to it?" in str(result.engines[0].error)
        assert fleet.scope.states() == {"e0": "tainted", "e1": "eligible", "e2": "eligible"}
        foreign.cancel()
        await asyncio.gather(foreign, return_exceptions=True)


async def test_all_engines_refuse_to_flush(fleet: Fleet) -> None:
    """Nobody confirmed: the version is not published, and since all weights changed nobody is routable."""
    for engine in fleet.engines:
        engine.arm(Fault(kind="status", path="/flush_cache", status=400))
    with pytest.raises(UpdateFailed, match="version 1 stays published"):
        await fleet.updates.update(NEW, 2)
    assert set(fleet.scope.states().values()) == {"tainted"}
    assert not any(fleet.paused)
    for engine in fleet.engines:
        engine.disarm()
    assert (await fleet.updates.update(NEW, 2)).ok
