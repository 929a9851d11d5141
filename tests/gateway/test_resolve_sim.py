"""``on_ambiguous = "resolve"`` and drains that ask the engines, over simulated engines behind a whole gateway."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
import pytest

from tests.support.sglang_traffic import greedy
from tests.support.trajectories import call, everywhere
from tests.support.waiting import wait_until
from trimtab import DrainTimeout, InvalidRequest, Pool, RouterAdmin, RouterClient
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimEngine

GIVE_UP_S = 0.4


@dataclass(frozen=True)
class Bench:
    """Two slow simulated engines behind a gateway that waits for an answer for a moment only, and resolves."""

    engines: tuple[SimEngine, ...]
    urls: tuple[str, ...]
    gateway: Gateway
    http: aiohttp.ClientSession

    @property
    def pool(self) -> Pool:
        """The only pool."""
        return self.gateway.pool("rollout", "tiny")

    def taken(self) -> int:
        """Requests that the engines ever took."""
        return sum(engine.statistics().requests_received for engine in self.engines)

    def in_flight(self) -> int:
        """Requests that the engines have, at the gate or behind it."""
        now = [engine.statistics() for engine in self.engines]
        return sum(each.running + each.waiting + each.at_gate for each in now)

    async def generate(self) -> int:
        """The status of a generation through the gateway that takes far longer than the gateway waits."""
        async with self.http.post(f"{self.gateway.url}/rollout/generate", json=greedy((1, 2), 2000)) as answer:
            await answer.read()
            return answer.status


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """It ends with the test, with nothing outstanding."""
    async with AsyncExitStack() as stack:
        config = SimConfig(time_scale=0.05)
        servers = [await stack.enter_async_context(running_engine(config)) for _ in range(2)]
        urls = tuple(server.url for server in servers)
        model = ModelConfig("tiny", tuple(map(EngineConfig, urls)), on_ambiguous="resolve", on_drain_timeout="report")
        whole = GatewayConfig((RoleConfig("rollout", (model,)),), port=0, total_timeout_s=GIVE_UP_S)
        gateway = await stack.enter_async_context(Gateway(whole))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        bench = Bench(tuple(server.engine for server in servers), urls, gateway, http)
        await wait_until(lambda: bench.pool.statistics().census["eligible"] == 2, "both engines are reached")
        await everywhere(http, urls, "/slow_down", {"forward_sleep_time": 0.02})
        yield bench
        assert bench.pool.statistics().outstanding == 0


def outcomes(pool: Pool) -> dict[str, int]:
    """Those that were seen."""
    return {outcome: count for outcome, count in pool.statistics().outcomes.items() if count}


async def test_an_execution_that_was_given_up_is_lost_and_never_replayed(bench: Bench) -> None:
    """504, the engine is told to abort, and the lease is ``lost`` no sooner than the engine has nothing left."""
    assert await bench.generate() == 504
    await wait_until(lambda: outcomes(bench.pool) == {"lost": 1}, "it is lost")
    assert (bench.in_flight(), bench.taken()) == (0, 1)
    assert bench.pool.unresolved() == []
    assert bench.pool.statistics().state == "serving"


async def test_a_client_of_the_lease_api_names_its_request(bench: Bench) -> None:
    """Its end is unknown while the engine runs it for a caller who listens: it is aborted by the id of the lease."""
    rid = uuid4().hex
    async with RouterClient(bench.gateway.url, sender="rollout/0", owner="train") as router:
        async with router.lease(rid=rid) as lease:
            body = {**greedy((1, 2), 2000), "rid": rid}
            listening = asyncio.ensure_future(bench.http.post(lease.url + "/generate", json=body))
            await wait_until(lambda: bench.in_flight() == 1, "it runs")
            lease.settle("ambiguous")
        await wait_until(lambda: outcomes(bench.pool) == {"lost": 1}, "it is lost")
        assert bench.in_flight() == 0
        async with await listening as answer:
            assert (await answer.json())["meta_info"]["finish_reason"]["type"] == "abort"
        with pytest.raises(InvalidRequest, match="a1"):
            async with router.lease(rid="a1"):
                pass


@pytest.mark.slow
async def test_a_paused_engine_resolves_when_it_goes_on(bench: Bench) -> None:
    """A pause in place freezes the execution: it stays counted, holds an update up by name, and ends afterwards."""
    given_up = asyncio.ensure_future(bench.generate())
    await wait_until(lambda: bench.in_flight() == 1, "it runs")
    await everywhere(bench.http, bench.urls, "/pause_generation", {"mode": "in_place"})
    assert await given_up == 504
    await wait_until(lambda: bench.pool.statistics().unresolved == 1, "its end is unknown")
    with RouterAdmin(bench.gateway.url) as admin:
        await asyncio.to_thread(admin.begin_update, "u-1", to=1)
        with pytest.raises(DrainTimeout) as refused:
            await asyncio.to_thread(admin.drain, "u-1", timeout=1.0)
        (blocker,) = refused.value.detail["blockers"]
        ((lease, backend),) = bench.pool.unresolved()
        assert (blocker["lease_id"], blocker["backend"], blocker["ambiguous"]) == (lease, backend.id, True)
        assert bench.in_flight() == 1
        await everywhere(bench.http, bench.urls, "/continue_generation", {})
        drained = await asyncio.to_thread(admin.drain, "u-1", timeout=30)
    assert (drained["phase"], drained["engines"]) == ("updating", [])
    assert outcomes(bench.pool) == {"lost": 1}
    assert (bench.in_flight(), bench.taken()) == (0, 1)


async def test_b59_a_request_past_the_router_holds_an_update_up(bench: Bench) -> None:
    """No lease, but an engine runs something: the drain waits for it, and succeeds when the engine is idle."""
    rid = uuid4().hex
    body: dict[str, Any] = {**greedy((7,), 5000), "rid": rid}
    rogue = asyncio.ensure_future(call(bench.http, f"{bench.urls[1]}/generate", body))
    await wait_until(lambda: bench.in_flight() == 1, "it runs")
    with RouterAdmin(bench.gateway.url) as admin:
        await asyncio.to_thread(admin.begin_update, "u-1", to=1)
        drain = asyncio.ensure_future(asyncio.to_thread(admin.drain, "u-1", timeout=30))
        done, _ = await asyncio.wait({drain}, timeout=0.5)
        assert not done, "the engine is busy"
        assert bench.pool.statistics().state == "drained", "no lease is outstanding"
        await call(bench.http, f"{bench.urls[1]}/abort_request", {"rid": rid})
        answer = await drain
        await rogue
        assert (answer["phase"], answer["outstanding"], answer["engines"]) == ("updating", 0, [])
        assert bench.in_flight() == 0
