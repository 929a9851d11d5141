"""Updates of the label alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from tests.support.sglang_traffic import greedy
from tests.support.waiting import wait_until
from trimtab_manager.sim import Fault
from trimtab_manager.weights import Label

if TYPE_CHECKING:
    from tests.manager.weights.conftest import Fleet


async def test_b3_a_label_aborts_nothing(fleet: Fleet) -> None:
    """Sixteen answers drip out of the engines while the label changes: all complete, and none is aborted.

    SGLang would abort them by default. The router waits for them, since their leases carry the old version.
    """
    for engine in fleet.engines:
        engine.scheduler.forward_sleep_s = 0.01
        engine.arm(Fault(kind="drip", chunk_bytes=100, delay_s=0.01))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def one(number: int) -> str:
            lease = fleet.scope.pool.acquire(f"s{number}")
            async with http.post(f"{lease.url}/generate", json=greedy([number, 30, 40], 30)) as answer:
                meta = (await answer.json())["meta_info"]
            assert meta["weight_version"] == "1"
            lease.settle("completed")
            return str(meta["finish_reason"]["type"])

        running = [asyncio.ensure_future(one(number)) for number in range(16)]
        await wait_until(lambda: sum(e.statistics().running for e in fleet.engines) == 16, "all run")
        result = await fleet.updates.update(Label(), 8)
        assert await asyncio.gather(*running) == ["length"] * 16
    assert result.ok
    assert fleet.versions == ["8"] * 3
    assert fleet.scope.pool.weight_version == 8
    assert sum(engine.statistics().requests_aborted for engine in fleet.engines) == 0
    assert fleet.scope.pool.statistics().outcomes["aborted"] == 0


async def test_a_label_that_one_engine_refuses(fleet: Fleet) -> None:
    """It keeps the old label, so it is out of routing; the others go on with the new one."""
    fleet.engines[0].arm(Fault(kind="status", path="/update_weight_version", status=400))
    result = await fleet.updates.update(Label(), 2)
    assert [row.status for row in result.engines] == ["error", "ok", "ok"]
    assert fleet.scope.states() == {"e0": "tainted", "e1": "eligible", "e2": "eligible"}
