"""Every fault in every step of an update, under traffic (B6).

Within the deadlines no engine is both paused and eligible, the survivors serve what is published, and a new update can
start, which brings everybody back who still lives.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.manager.faults.conftest import DRAIN_S, STEP_S
from tests.support.faults import FAULTS, HARMLESS, Traffic, Watch
from tests.support.waiting import wait_until
from trimtab import PoolFailed, TrimtabError
from trimtab_manager.weights import FromDisk, UpdateFailed

if TYPE_CHECKING:
    from tests.manager.faults.conftest import Fleet

NEW, LATER = FromDisk("sim://weights/2"), FromDisk("sim://weights/3")
STEPS = {
    "drain": "/abort_request",
    "idle": "/v1/loads",
    "pause": "/pause_generation",
    "transfer": "/update_weights_from_disk",
    "flush": "/flush_cache",
    "read_back": "/model_info",
    "resume": "/continue_generation",
}
RUNNING_STEP_S = 0.02
"""A request takes so long for a token while an update begins: every engine has something to abort."""
LIMIT_S = DRAIN_S + 4 * STEP_S
"""A fault costs its own step's deadline, and that of a drain at most."""


def step_of(fleet: Fleet) -> str | None:
    """What the update does now."""
    progress = fleet.updates.progress
    return None if progress is None else progress.step


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
async def test_b6_a_fault_of_one_engine_in_one_step(fleet: Fleet, step: str, fault: str) -> None:
    """The victim meets the fault at the call of the step; the others are updated without it, or with it."""
    watch, traffic = Watch(fleet.scope, fleet.engines), Traffic(fleet.scope)
    async with watch.looking(), traffic.running():
        await wait_until(lambda: traffic.completed > 6, "sessions run")
        for engine in fleet.engines.values():
            engine.scheduler.forward_sleep_s = RUNNING_STEP_S
        await wait_until(lambda: all(engine.scheduler.running for engine in fleet.engines.values()), "all are busy")
        fleet.victim.arm(FAULTS[fault](STEPS[step]))
        began = time.monotonic()
        result = await fleet.updates.update(NEW, 2)
        assert time.monotonic() - began < LIMIT_S
        for engine in fleet.engines.values():
            engine.scheduler.forward_sleep_s = 0
        states = fleet.scope.states()
        assert states["e0"] == states["e2"] == "eligible"
        assert fleet.scope.pool.weight_version == 2
        if fault in HARMLESS:
            assert result.ok, result
        if result.ok:
            assert states["e1"] == "eligible"
        else:
            assert [row.engine for row in result.engines if row.status != "ok"] == ["e1"]
            assert (states["e1"], result.engines[1].state) == ("tainted", "tainted")
        served = traffic.completed
        await wait_until(lambda: traffic.completed > served + 6, "the survivors serve")

        fleet.victim.disarm()
        later = await fleet.updates.update(LATER, 3)
        assert later.ok == (fleet.victim.crashed is None), later
        alive = {engine for engine, sim in fleet.engines.items() if sim.crashed is None}
        assert {engine for engine, state in fleet.scope.states().items() if state == "eligible"} == alive
        assert {fleet.engines[engine].weights.version for engine in alive} == {"3"}
        assert not any(fleet.engines[engine].admission.paused for engine in alive)
        served = traffic.completed
        await wait_until(lambda: traffic.completed > served + 6, "everybody serves")
    assert watch.violations == []
    assert traffic.wrong == []
    assert fleet.scope.pool.statistics().outstanding == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["drain", "idle", "prime", "pause", "transfer", "flush", "read_back", "resume", "verify"]
)
async def test_b6_an_update_that_is_cancelled_in_a_step(fleet: Fleet, step: str) -> None:
    """The controller is gone in the middle: every engine serves, or is out of routing, and none is left paused."""
    watch, traffic = Watch(fleet.scope, fleet.engines), Traffic(fleet.scope)
    paths = {**STEPS, "prime": "/generate", "verify": "/generate"}
    async with watch.looking(), traffic.running():
        await wait_until(lambda: traffic.completed > 6, "sessions run")
        for engine in fleet.engines.values():
            engine.arm(FAULTS["slow"](paths[step]))
        running = asyncio.ensure_future(fleet.updates.update(NEW, 2))
        await wait_until(lambda: step_of(fleet) == step, "it is in the step")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for engine in fleet.engines.values():
            engine.disarm()
        assert not any(engine.admission.paused for engine in fleet.engines.values())
        late = step in {"flush", "read_back", "resume", "verify"}
        assert fleet.scope.pool.weight_version == (2 if late else 1)
        assert set(fleet.scope.states().values()) == {"tainted" if step == "transfer" else "eligible"}

        assert (await fleet.updates.update(LATER, 3)).ok
        served = traffic.completed
        await wait_until(lambda: traffic.completed > served + 6, "everybody serves")
    assert (watch.violations, traffic.wrong) == ([], [])


@pytest.mark.parametrize("how", ["fail", "close"])
async def test_b6_the_pool_is_over_when_it_is_to_publish(fleet: Fleet, how: str) -> None:
    """Somebody fails or closes the pool before the publication: the engines go on, and the caller is told."""
    fleet.victim.arm(FAULTS["slow"]("/continue_generation"))
    running = asyncio.ensure_future(fleet.updates.update(NEW, 2))
    await wait_until(lambda: step_of(fleet) == "resume", "it resumes")
    if how == "fail":
        fleet.scope.pool.fail("an operator said so")
    else:
        fleet.scope.pool.close()
    with pytest.raises(UpdateFailed):
        await running
    assert not any(engine.admission.paused for engine in fleet.engines.values())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["report", "fail"])
async def test_b6_a_drain_that_is_late(fleet: Fleet, policy: str) -> None:
    """A lease is never settled: the update ends at the deadline, the engines go on, and the pool does what it should.

    Under ``on_drain_timeout = "report"`` the old version stays; under ``fail`` the pool fails, as configured.
    """
    from tests.manager.faults.conftest import DEADLINES
    from tests.support.update_scope import small_scope
    from trimtab_manager.weights import WeightUpdates

    urls = [member.client.url for member in fleet.scope.members()]
    async with small_scope(urls, on_drain_timeout=policy) as scope:
        lease = scope.pool.acquire("s")
        with pytest.raises(UpdateFailed, match="DrainTimeout"):
            await WeightUpdates(scope, DEADLINES).update(NEW, 2)
        if policy == "report":
            assert set(scope.states().values()) == {"eligible"}
            lease.settle("completed")
            assert (await WeightUpdates(scope, DEADLINES).update(NEW, 2)).ok
        else:
            with pytest.raises(PoolFailed):
                scope.pool.acquire("t")
            lease.settle("completed")
    assert not any(engine.admission.paused for engine in fleet.engines.values())


async def test_b6_the_scope_refuses_while_somebody_else_changes_engines(fleet: Fleet) -> None:
    """A recovery has the engines: the update waits for it up to a deadline, and nothing is fenced meanwhile."""
    async with fleet.scope.exclusive("recovery"):
        with pytest.raises(TrimtabError, match="something else has changed its engines for"):
            await fleet.updates.update(NEW, 2)
        fleet.scope.pool.acquire("s").settle("completed")
    assert (await fleet.updates.update(NEW, 2)).ok
