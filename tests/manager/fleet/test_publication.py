"""Publication: a failure at any step leaves topology, revision, router and machine as they were."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.manager.fleet.conftest import running_fleet
from tests.support.sim_launcher import SimLauncher
from tests.support.waiting import wait_until
from trimtab.errors import InvalidRequest, TrimtabError
from trimtab_manager.fleet import CatchUpError
from trimtab_manager.launch.types import LaunchError
from trimtab_manager.sim import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.manager.fleet.conftest import Fleet
    from trimtab_manager.launch.types import LaunchRequest
    from trimtab_manager.sim import SimConfig

NEW = "policy/3"


def with_fault(engine: str, **fault: Any) -> Callable[[LaunchRequest, SimConfig], SimConfig]:
    """A configuration in which one engine has a fault from its start."""

    def configure(request: LaunchRequest, config: SimConfig) -> SimConfig:
        return replace(config, faults=(Fault(**fault),)) if request.engine_id == engine else config

    return configure


def fail_launch(fleet: Fleet) -> None:
    """The process ends as it starts."""
    fleet.launcher.fail.add(NEW)


def fail_health(fleet: Fleet) -> None:
    """It was healthy for the launcher, and is not for us."""
    fleet.launcher.configure = with_fault(NEW, kind="status", path="/model_info", status=400)


def fail_weights(fleet: Fleet) -> None:
    """It refuses the published weights."""
    fleet.launcher.configure = with_fault(NEW, kind="status", path="/update_weights_from_disk", status=400)


def die_in_update(fleet: Fleet) -> None:
    """It dies of them."""
    fleet.launcher.configure = with_fault(NEW, kind="crash", path="/update_weights_from_disk")


def fail_router(fleet: Fleet) -> None:
    """The router has that id already, at another address."""
    fleet.pool.add_backend("10.0.0.1:30000", id="policy/4", proven=False)


def fail_registry(fleet: Fleet) -> None:
    """The last step of all."""
    registry = fleet.fleet.publication._registry
    works = registry.publish

    def publish(*_: object, **__: object) -> None:
        registry.publish = works  # type: ignore[method-assign]  # once is enough
        raise TrimtabError("told so by the test")

    registry.publish = publish  # type: ignore[assignment, method-assign]  # as above


STEPS: dict[Callable[[Fleet], None], type[TrimtabError]] = {
    fail_launch: LaunchError,
    fail_health: TrimtabError,
    fail_weights: CatchUpError,
    die_in_update: CatchUpError,
    fail_router: InvalidRequest,
    fail_registry: TrimtabError,
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_a_failure_changes_nothing_and_leaves_nothing(fleet: Fleet, step: Callable[[Fleet], None]) -> None:
    """Two engines come together, one of them fails: the other one is destroyed with it, and the fleet serves on."""
    await fleet.publish_from_disk("sim://weights/7", 7)
    step(fleet)
    topology, backends = fleet.topology, [backend.id for backend in fleet.pool.backends()]
    with pytest.raises(STEPS[step]):
        await fleet.manager.scale("rollout", replicas=5)
    assert fleet.topology is topology
    assert [backend.id for backend in fleet.pool.backends()] == backends
    assert sorted(fleet.fleet.slots) == ["policy/0", "policy/1", "policy/2"]
    assert sorted(fleet.launcher.alive) == ["policy/0", "policy/1", "policy/2"]
    assert fleet.lease_ids() == {"policy/0", "policy/1", "policy/2"}
    assert fleet.fleet.lock.holder is None


async def test_an_engine_that_dies_between_health_and_publication_is_not_published(fleet: Fleet) -> None:
    """The window is the wait for the lock."""
    async with fleet.fleet.exclusive("an update"):
        task = asyncio.create_task(fleet.manager.scale("rollout", replicas=4))
        await wait_until(lambda: NEW in fleet.launcher.handles, "it is launched")
        await asyncio.sleep(0.05)
        fleet.launcher.handles[NEW].kill()
    with pytest.raises(LaunchError, match="policy/3 died before it could be published"):
        await task
    assert NEW not in fleet.published()


async def test_the_first_start_is_all_or_nothing_where_nothing_is_replaced() -> None:
    """The error names the engine; no other one is left running."""
    launcher = SimLauncher()
    launcher.fail.add("policy/1")
    async with running_fleet(launcher=launcher, start=False, fault_tolerance_enabled=False) as fleet:
        with pytest.raises(LaunchError, match="policy/1 exited"):
            await fleet.manager.activate()
        assert (fleet.published(), launcher.alive) == ({}, [])
        launcher.fail.clear()
        revision = fleet.topology.revision
        (result,) = await fleet.manager.activate()
        assert result.ok
        assert fleet.topology.revision == revision + 1


async def test_a_start_with_replacement_serves_with_what_came_up() -> None:
    """The row of the one that failed says that it is tried again, and it comes."""
    launcher = SimLauncher()
    launcher.fail.add("policy/1")
    async with running_fleet(launcher=launcher, start=False) as fleet:
        (result,) = await fleet.manager.activate()
        rows = {row.engine: row for row in result.engines}
        assert (rows["policy/0"].status, rows["policy/1"].status) == ("ok", "error")
        assert "is tried again" in (rows["policy/1"].error or "")
        assert fleet.lease_ids() == {"policy/0", "policy/2"}
        launcher.fail.clear()
        await wait_until(lambda: "policy/1" in fleet.published(), "it came")
