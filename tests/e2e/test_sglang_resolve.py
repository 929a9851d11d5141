"""``on_ambiguous = "resolve"`` and drains that ask the engines, on real SGLang servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.support.serve import eventually
from tests.support.sglang_traffic import greedy, in_background, post
from trimtab import DrainTimeout, Pool, RouterAdmin
from trimtab._core import DataPlane, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp

    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

STEP_S = 0.05
TOKENS = 400
REQUESTS = "sglang:num_requests_total"


@pytest.fixture
def pool(sglang_pair: Pair) -> Pool:
    """The two servers, at 20 tokens a second."""
    pool = Pool("rollout/tiny", on_ambiguous="resolve")
    for server in sglang_pair:
        server.slow_down(STEP_S)
        pool.add_backend(server.url)
    return pool


@pytest.fixture
def plane(pool: Pool) -> Iterator[DataPlane]:
    """A gateway's data plane that waits for an answer for a second only."""
    plane = DataPlane.start(roles=[Role("rollout", {"tiny": pool})], total_timeout_s=1.0)
    yield plane
    plane.shutdown(1.0)


def url(plane: DataPlane) -> str:
    """Where it listens."""
    return f"http://{plane.host}:{plane.port}"


async def test_an_execution_that_was_given_up_is_lost(
    sglang_pair: Pair, pool: Pool, plane: DataPlane, http: aiohttp.ClientSession
) -> None:
    """Beside one that runs on: it is lost, the engine no longer has it, and nothing was sent again."""
    before = sum(server.metric(REQUESTS) for server in sglang_pair)
    # One engine, so that it is busy while it is asked.
    pool.drain_backend(sglang_pair[1].authority)
    bystander = {**greedy([9, 8], TOKENS), "rid": uuid4().hex}
    lease = pool.acquire("bystander")
    async with in_background(post(http, f"{lease.backend.url}/generate", bystander)):
        await eventually(lambda: at_work(sglang_pair), 1, "the other one runs")
        async with http.post(f"{url(plane)}/rollout/generate", json=greedy([1, 2, 3], TOKENS)) as answer:
            assert answer.status == 504
        await eventually(lambda: counted(pool, "lost"), 1, "it is lost", 5)
        assert await at_work(sglang_pair) == 1, "the other one runs on"
        assert (pool.statistics().outstanding, pool.unresolved()) == (1, [])
    lease.settle("cancelled")
    await eventually(lambda: at_work(sglang_pair), 0, "both are over", 10)
    assert sum(server.metric(REQUESTS) for server in sglang_pair) - before == 2


async def test_b59_a_request_past_the_router_holds_an_update_up(
    sglang_pair: Pair, pool: Pool, plane: DataPlane, http: aiohttp.ClientSession
) -> None:
    """The drain names the engine at its deadline; an idle fleet, also a paused one, is drained at once."""
    del pool
    rogue: dict[str, Any] = {**greedy([4, 5], TOKENS), "rid": uuid4().hex}
    with RouterAdmin(url(plane)) as admin:
        await asyncio.to_thread(admin.begin_update, "u-1", to=1)
        idle = await asyncio.to_thread(admin.drain, "u-1", timeout=30)
        assert (idle["phase"], idle["engines"]) == ("updating", [])
        await asyncio.to_thread(admin.end_server_pause, "u-1")
        await asyncio.to_thread(admin.publish, "u-1", 1)
        for server in sglang_pair:
            server.call("/pause_generation", {"mode": "abort"})
        await asyncio.to_thread(admin.begin_update, "u-2", to=2)
        paused = await asyncio.to_thread(admin.drain, "u-2", timeout=30)
        assert (paused["phase"], paused["engines"]) == ("updating", [])
        for server in sglang_pair:
            server.call("/continue_generation", {})
        await asyncio.to_thread(admin.end_server_pause, "u-2")
        await asyncio.to_thread(admin.publish, "u-2", 2)
        async with in_background(post(http, f"{sglang_pair[1].url}/generate", rogue)):
            await eventually(lambda: at_work(sglang_pair), 1, "it runs")
            await asyncio.to_thread(admin.begin_update, "u-3", to=3)
            with pytest.raises(DrainTimeout) as refused:
                await asyncio.to_thread(admin.drain, "u-3", timeout=1.0)
    assert refused.value.detail["engines"] == [f"{sglang_pair[1].authority} (1 running, 0 waiting)"]
    sglang_pair[1].call("/abort_request", {"rid": rogue["rid"]})


async def at_work(servers: Pair) -> int:
    """Requests that the engines have."""
    return sum(server.requests_in_flight() for server in servers)


async def counted(pool: Pool, outcome: str) -> int:
    """Leases that ended so."""
    return {**pool.statistics().outcomes}[outcome]
