"""Every fault in what happens to one engine while its model serves: a health check, a drain, a removal.

The others serve all the while. Whoever failed is replaced, a new update reaches everybody, and nothing is left running.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tests.manager.faults.test_fleet_matrix import (
    LIMIT_S,
    REPLACED_S,
    SETTINGS,
    SURVIVORS,
    VICTIM,
    Engines,
    everybody_serves,
)
from tests.manager.fleet.conftest import running_fleet
from tests.support.faults import FAULTS, HARMLESS, Traffic, Watch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PASSING = HARMLESS | {"lost_reply"}
"""Faults that one health check shows, and the next does not."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_a_health_check(fault: str) -> None:
    """What lasts makes the engine dead: fenced, killed, replaced. What passes is outlived."""
    settings = replace(SETTINGS, health_interval_s=0.1, health_timeout_s=0.5)
    async with running_fleet(3, settings=settings) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(fleet.launcher)), Traffic(fleet)
        async with watch.looking(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            victim = fleet.launcher.handles[VICTIM].server.engine
            victim.arm(FAULTS[fault]("/health"))
            if fault in PASSING:
                await wait_until(lambda: fault != "lost_reply" or not victim.faults.armed(), "a check met it")
                served = traffic.completed
                await wait_until(lambda: traffic.completed > served + 30, "everybody serves")
                assert set(fleet.published().values()) == {1}
            else:
                await wait_until(lambda: fleet.published().get(VICTIM) != 1, "it is fenced")
                served = traffic.completed
                await wait_until(lambda: traffic.completed > served + 6, "the survivors serve")
                await fleet.replaced(VICTIM, 2)
            victim.disarm()
        await everybody_serves(fleet)
        assert (watch.violations, traffic.wrong) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_a_drain(fault: str) -> None:
    """It ends in time with a row; the others have served meanwhile, and the engine comes back, or another one does."""
    async with running_fleet(3, settings=SETTINGS) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(fleet.launcher)), Traffic(fleet)
        async with watch.looking(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            victim = fleet.launcher.handles[VICTIM].server.engine
            victim.arm(FAULTS[fault]("/v1/loads"))
            began, served = time.monotonic(), traffic.completed
            result = await asyncio.wait_for(fleet.manager.drain("rollout", engine=VICTIM), LIMIT_S)
            assert time.monotonic() - began < LIMIT_S
            if fault in HARMLESS:
                assert result.ok, result
            if not result.ok:
                assert VICTIM in (result.engines[0].error or "")
            assert fleet.eligible() == SURVIVORS
            await wait_until(lambda: traffic.completed > served + 6, "the survivors serve")
            victim.disarm()
            await wait_until(lambda: VICTIM in fleet.published(), "it is there", deadline_s=REPLACED_S)
        await everybody_serves(fleet)
        assert (watch.violations, traffic.wrong) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_a_removal(fault: str) -> None:
    """The engine goes in time whatever it answers, and another one can take its place."""
    async with running_fleet(3, settings=SETTINGS) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(fleet.launcher)), Traffic(fleet)
        async with watch.looking(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            fleet.launcher.handles[VICTIM].server.engine.arm(FAULTS[fault]("/v1/loads"))
            began, served = time.monotonic(), traffic.completed
            await asyncio.wait_for(fleet.manager.remove_engine(VICTIM, "rollout"), LIMIT_S)
            assert time.monotonic() - began < LIMIT_S
            assert sorted(fleet.launcher.alive) == sorted(SURVIVORS)
            await wait_until(lambda: traffic.completed > served + 6, "the survivors serve")
            assert (await fleet.manager.scale("rollout", replicas=3)).ok
        result = await fleet.manager.update_from_disk("rollout", path="sim://weights/8", version=8)
        assert result.ok, result
        assert fleet.eligible() == set(fleet.published())
        assert sorted(fleet.launcher.alive) == sorted(fleet.published())
        assert (watch.violations, traffic.wrong) == ([], [])


async def test_an_engine_that_dies_as_its_version_is_published() -> None:
    """A publication is the router's alone, so no call of it can fail: all that may happen is that an engine dies."""
    async with running_fleet(3, settings=SETTINGS) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(fleet.launcher)), Traffic(fleet)
        async with watch.looking(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            update = asyncio.ensure_future(fleet.publish_from_disk("sim://weights/8", 8))
            while fleet.pool.weight_version != 8:  # noqa: ASYNC110 -- it has to die in the turn of the publication
                await asyncio.sleep(0)
            fleet.launcher.handles[VICTIM].kill()
            await update
            await fleet.replaced(VICTIM, 2)
            backend = next(each for each in fleet.pool.statistics().backends if each.id == VICTIM)
            assert (backend.weight_version, backend.weights_fit) == (8, True)
            served = traffic.completed
            await wait_until(lambda: traffic.completed > served + 6, "everybody serves")
        assert fleet.eligible() == {*SURVIVORS, VICTIM}
        assert (watch.violations, traffic.wrong) == ([], [])
