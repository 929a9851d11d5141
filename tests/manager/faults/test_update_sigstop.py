"""An engine whose process is stopped in a step of an update: it holds its connections and answers nothing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.manager.faults.conftest import DRAIN_S, STEP_S, Fleet
from tests.manager.faults.test_update_matrix import LATER, NEW, RUNNING_STEP_S, STEPS, step_of
from tests.support.faults import Traffic, Watch
from tests.support.sim_process import SimProcess, sim_process
from tests.support.trajectories import call
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow

LIMIT_S = DRAIN_S + 4 * STEP_S
HOLD_S = 0.4
"""The victim takes so long for the call of the step, so that it is stopped in the middle of it."""


@pytest.fixture
async def stopped(fleet: Fleet) -> AsyncIterator[SimProcess]:
    """A fourth engine ``e3``, a process of its own on version 1; condemned, it is killed."""
    async with sim_process("--model-path", "sim://weights/1", "--time-scale", "0.05") as victim:
        async with aiohttp.ClientSession() as http:
            await call(http, f"{victim.url}/update_weight_version", {"new_version": "1", "abort_all_requests": False})
        fleet.scope.add("e3", victim.url, weight_version=1)

        async def condemn(engine: str) -> None:
            assert engine == "e3"
            victim.kill()

        fleet.scope.on_condemn = condemn
        yield victim


@pytest.mark.parametrize("step", [*STEPS, "publish"])
async def test_b6_an_engine_that_is_stopped(fleet: Fleet, stopped: SimProcess, step: str) -> None:
    """The survivors are updated within their deadlines and serve; the stopped one is out, until it is replaced.

    One that is stopped only when all is proved is published with the others: its silence is for the health check.
    """
    watch, traffic = Watch(fleet.scope, fleet.engines), Traffic(fleet.scope, sessions=8)
    async with watch.looking(), traffic.running(), aiohttp.ClientSession() as http:
        await wait_until(lambda: traffic.completed > 8, "sessions run")
        if step == "drain":
            await call(http, f"{stopped.url}/slow_down", {"forward_sleep_time": RUNNING_STEP_S * 5})
        if step != "publish":
            fault = {"kind": "delay", "path": STEPS[step], "delay_s": HOLD_S}
            await call(http, f"{stopped.url}/sim/faults", fault)
        began = time.monotonic()
        update = asyncio.ensure_future(fleet.updates.update(NEW, 2))
        await wait_until(
            lambda: step_of(fleet) == ("conclude" if step == "publish" else step) or update.done(), "there"
        )
        stopped.stop()
        result = await update
        assert time.monotonic() - began < LIMIT_S
        assert fleet.scope.pool.weight_version == 2
        states = fleet.scope.states()
        assert [states[engine] for engine in ("e0", "e1", "e2")] == ["eligible"] * 3
        assert states["e3"] == ("eligible" if result.ok else "tainted")
        assert result.ok == (step == "publish")
        if result.ok:
            fleet.scope.pool.remove_backend("e3")  # what a health check would do
            stopped.kill()
        served = traffic.completed
        await wait_until(lambda: traffic.completed > served + 8, "the survivors serve")
        if not stopped.dead:
            stopped.kill()
        await fleet.scope.fleet.pop("e3").client.close()
        assert (await fleet.updates.update(LATER, 3)).ok
    assert (watch.violations, traffic.wrong) == ([], [])
