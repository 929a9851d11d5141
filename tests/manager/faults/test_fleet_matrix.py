"""Every fault in every step of a fleet's own operations, under traffic: launch, pause, sleep, wake, stop.

Within the deadlines no engine is both paused and eligible, the survivors serve, whoever failed is replaced, a new
update can start and reaches everybody, and nothing is left running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.fleet.conftest import QUICK, running_fleet
from tests.support.faults import FAULTS, HARMLESS, Traffic, Watch
from tests.support.sim_launcher import SimLauncher
from tests.support.waiting import wait_until
from trimtab.errors import TrimtabError
from trimtab_manager.sim import Fault, SimConfig, SimEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.manager.fleet.conftest import Fleet
    from trimtab.fleet import OperationResult
    from trimtab_manager.launch.types import LaunchRequest

VICTIM = "policy/1"
SURVIVORS = {"policy/0", "policy/2"}
SETTINGS = replace(
    QUICK,
    control_timeout_s=1,
    pause_deadline_s=1.5,
    drain_deadline_s=2,
    flush_deadline_s=0.5,
    release_deadline_s=0.5,
    wake_deadline_s=1,
    restart_backoff_s=0.05,
)
LIMIT_S = 15.0
"""Far above the sum of what a step and its repetitions may take, and far below for ever."""

REPLACED_S = 45.0
"""One try that hangs in the probe of its capabilities, which has 20 s for each call, and one that does not."""

STEPS = {
    "pause": ("pause", "/pause_generation"),
    "resume": ("resume", "/continue_generation"),
    "sleep: pause": ("sleep", "/pause_generation"),
    "sleep: drain": ("sleep", "/v1/loads"),
    "sleep: flush": ("sleep", "/flush_cache"),
    "sleep: release": ("sleep", "/release_memory_occupation"),
    "sleep: identity": ("sleep", "/server_info"),
    "wake: resume memory": ("wake", "/resume_memory_occupation"),
    "wake: continue": ("wake", "/continue_generation"),
    "wake: health": ("wake", "/health"),
}
"""The operation, and the call of it that goes wrong."""


class Engines(Mapping[str, SimEngine]):
    """The newest incarnation of each engine."""

    def __init__(self, launcher: SimLauncher) -> None:
        self._launcher = launcher

    def __getitem__(self, engine: str) -> SimEngine:
        return self._launcher.handles[engine].server.engine

    def __iter__(self) -> Iterator[str]:
        return iter(self._launcher.handles)

    def __len__(self) -> int:
        return len(self._launcher.handles)


async def everybody_serves(fleet: Fleet) -> None:
    """All three are back, whoever was replaced, with the weights of a new update."""
    await wait_until(lambda: set(fleet.published()) == {*SURVIVORS, VICTIM}, "everybody is published")
    result = await fleet.manager.undrain("rollout")
    assert result.ok, [row.error for row in result.engines]
    result = await fleet.manager.update_from_disk("rollout", path="sim://weights/8", version=8)
    assert result.ok, result
    assert fleet.eligible() == {*SURVIVORS, VICTIM}
    assert sorted(fleet.launcher.alive) == sorted(fleet.published())


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_fault_of_one_engine_in_one_step(step: str, fault: str) -> None:
    """The victim meets the fault at one call of the operation; what undoes the operation then works for the others."""
    operation, path = STEPS[step]
    async with running_fleet(3, settings=SETTINGS) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(fleet.launcher)), Traffic(fleet)
        orders: dict[str, Callable[[], Coroutine[None, None, OperationResult]]] = {
            "pause": lambda: fleet.manager.pause("rollout"),
            "resume": lambda: fleet.manager.resume("rollout"),
            "sleep": lambda: fleet.manager.sleep("rollout"),
            "wake": lambda: fleet.manager.wake("rollout"),
        }
        before, undo = {"resume": ("pause", None), "wake": ("sleep", None)}.get(
            operation, (None, "resume" if operation == "pause" else "wake")
        )
        async with watch.looking(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            if before is not None:
                assert (await orders[before]()).ok
            fleet.launcher.handles[VICTIM].server.engine.arm(FAULTS[fault](path))
            began = time.monotonic()
            result = await orders[operation]()
            assert time.monotonic() - began < LIMIT_S
            rows = {row.engine: row for row in result.engines}
            assert all(rows[engine].status == "ok" for engine in SURVIVORS), result
            if fault in HARMLESS:
                assert result.ok, result
            if not result.ok:
                assert VICTIM in (rows[VICTIM].error or "")
            fleet.launcher.handles[VICTIM].server.engine.disarm()
            if undo is not None:
                await orders[undo]()
            assert fleet.eligible() >= SURVIVORS
            served = traffic.completed
            await wait_until(lambda: traffic.completed > served + 6, "the survivors serve")
        await everybody_serves(fleet)
        assert watch.violations == []
        assert traffic.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", ["/model_info", "/server_info", "/health", "/update_weights_from_disk"])
async def test_a_fault_of_a_replacement_while_it_comes_up(path: str, fault: str) -> None:
    """Its first incarnation after a death meets the fault; the survivors do not notice, and a later one serves."""

    def configure(request: LaunchRequest, config: SimConfig) -> SimConfig:
        first = request.engine_id == VICTIM and request.generation == 2
        return replace(config, faults=(FAULTS[fault](path),)) if first else config

    launcher = SimLauncher()
    launcher.configure = configure
    settings = replace(SETTINGS, transfer_deadline_s=1)
    async with running_fleet(3, settings=settings, launcher=launcher) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        watch, traffic = Watch(fleet, Engines(launcher)), Traffic(fleet)
        async with watch.looking(), traffic.running():
            launcher.handles[VICTIM].kill()
            await wait_until(lambda: VICTIM not in fleet.published(), "it is fenced")
            served = traffic.completed
            await wait_until(lambda: VICTIM in fleet.published(), "it is replaced", deadline_s=REPLACED_S)
            assert traffic.completed > served
            launcher.handles[VICTIM].server.engine.disarm()
        await everybody_serves(fleet)
        assert watch.violations == []
        assert traffic.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "500", "kill"])
async def test_a_fault_in_the_stop_of_a_paused_engine(fault: str) -> None:
    """A removal and a shutdown end in time, whatever the engine says to their last calls."""
    async with running_fleet(3, settings=SETTINGS) as fleet:
        assert (await fleet.manager.pause("rollout")).ok
        fleet.launcher.handles[VICTIM].server.engine.arm(FAULTS[fault]("/continue_generation"))
        began = time.monotonic()
        try:
            await asyncio.wait_for(fleet.manager.remove_engine(VICTIM, "rollout"), LIMIT_S)
        except TrimtabError as error:
            pytest.fail(str(error))
        await asyncio.wait_for(fleet.manager.shutdown(), LIMIT_S)
        assert time.monotonic() - began < LIMIT_S
        assert fleet.launcher.alive == []


@pytest.mark.slow
async def test_an_engine_that_hangs_is_found_by_its_health() -> None:
    """Its scheduler is stuck behind a server that answers: it is fenced, killed and replaced."""
    settings = replace(SETTINGS, health_interval_s=0.05, health_timeout_s=0.2)
    async with running_fleet(3, settings=settings) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        fleet.launcher.handles[VICTIM].server.engine.arm(Fault(kind="wedge"))
        await fleet.replaced(VICTIM, 2)
        await everybody_serves(fleet)
