"""What follows the death of an engine: the fence, the kill, the replacement, and its weights."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.fleet.conftest import QUICK, running_fleet
from tests.support.manual_time import ManualTime
from tests.support.sim_launcher import SimLauncher
from tests.support.waiting import wait_until
from trimtab.errors import NoEligibleBackend, UpdateInProgress
from trimtab_manager.engine.errors import Refused
from trimtab_manager.sim import Fault
from trimtab_manager.weights import Label

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet
    from trimtab_manager.fleet import Replica
    from trimtab_manager.launch.types import LaunchRequest
    from trimtab_manager.sim import SimConfig

E1, E2 = "policy/1", "policy/2"


async def test_b2_a_replacement_gets_nothing_until_it_has_the_published_weights(fleet: Fleet) -> None:
    """Fleet at v7, loaded from disk; E2 dies; its next incarnation says `default`, loads v7, and only then serves."""
    await fleet.publish_from_disk("sim://weights/7", 7)
    reload = asyncio.Event()
    bring = fleet.fleet.catch_up.bring

    async def bring_when_told(replica: Replica) -> int | None:
        assert (await replica.client.model_info()).weight_version == "default"
        await reload.wait()
        return await bring(replica)

    fleet.fleet.catch_up.bring = bring_when_told  # type: ignore[method-assign]  # to stop in the middle
    fleet.launcher.handles[E2].kill()
    await wait_until(lambda: fleet.launcher.handles[E2].request.generation == 2, "E2 is launched anew")
    assert E2 not in fleet.lease_ids()
    reload.set()
    await fleet.replaced(E2, 2)
    assert E2 in fleet.lease_ids()
    leases = [fleet.pool.acquire() for _ in range(3)]
    assert {(lease.backend_id, lease.weight_version) for lease in leases} >= {(E2, 7)}
    for lease in leases:
        lease.settle("cancelled")
    info = await fleet.fleet.slot(E2).replica.client.model_info()  # type: ignore[union-attr]  # it is published
    assert (info.weight_version, info.model_path) == ("7", "sim://weights/7")


async def test_b2_a_replacement_whose_update_fails_stays_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Not one request, a warning that names engine, version and next step, and the next update brings it in."""
    launcher = SimLauncher()

    def refuse_updates(request: LaunchRequest, config: SimConfig) -> SimConfig:
        fault = Fault(kind="status", path="/update_weights_from_disk", status=400, times=1)
        return replace(config, faults=(fault,)) if request.generation == 2 else config

    launcher.configure = refuse_updates
    async with running_fleet(launcher=launcher) as fleet:
        await fleet.publish_from_disk("sim://weights/7", 7)
        with caplog.at_level(logging.INFO, logger="trimtab.manager.fleet"):
            launcher.handles[E2].kill()
            await fleet.replaced(E2, 2)
        assert E2 not in fleet.lease_ids(20)
        (failed,) = [record for record in caplog.records if "did not get the published weights" in record.message]
        assert (failed.engine, failed.levelname) == (E2, "WARNING")  # type: ignore[attr-defined]  # a field
        assert "version 7 could not be loaded" in failed.error  # type: ignore[attr-defined]  # a field
        assert any("out of routing until" in record.message for record in caplog.records)
        await fleet.publish_from_disk("sim://weights/8", 8)
        assert E2 in fleet.lease_ids()


async def test_b2_weights_that_cannot_be_loaded_again_are_waited_for(fleet: Fleet) -> None:
    """What a trainer sent is not on any disk: the replacement is published, pending, until the next update."""
    await fleet.manager.update_weights(Label(), 7, role="rollout")
    fleet.launcher.handles[E2].kill()
    await fleet.replaced(E2, 2)
    assert E2 not in fleet.lease_ids(20)
    view = {engine.id: engine for engine in fleet.manager.view()[0].models[0].engines}
    assert (view[E1].is_pending, view[E2].is_pending) == (False, True)
    await fleet.publish_from_disk("sim://weights/8", 8)
    assert E2 in fleet.lease_ids()


async def test_b2_a_trainer_that_can_send_to_one_engine_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    """The resync hook gets the engine and the version, and the engine is read back like any other."""
    asked = []

    async def resync(replica: Replica, version: int) -> None:
        asked.append((replica.id, replica.generation, version))
        if len(asked) == 1:
            raise Refused(replica.id, "POST /update_weights_from_tensor", 400, "no")
        await replica.client.update_version(str(version))

    async with running_fleet(resync=resync) as fleet:
        await fleet.manager.update_weights(Label(), 7, role="rollout")
        fleet.launcher.handles[E2].kill()
        await fleet.replaced(E2, 2)
        assert E2 not in fleet.lease_ids(20)
        fleet.launcher.handles[E1].kill()
        await fleet.replaced(E1, 2)
        assert E1 in fleet.lease_ids()
    assert asked == [(E2, 2, 7), (E1, 2, 7)]


async def test_b35_the_fence_comes_before_the_kill_and_a_kill_that_hangs_holds_up_nobody() -> None:
    """Health says dead, the kill hangs: fenced before it begins, and no request reaches the engine afterwards."""
    time = ManualTime()
    launcher = SimLauncher()
    settings = replace(QUICK, health_interval_s=5)
    async with running_fleet(settings=settings, launcher=launcher, clock=time.clock) as fleet:
        remove_backend = fleet.fleet.slot(E2).replica.gate.remove  # type: ignore[union-attr]  # it is published
        handle = launcher.handles[E2]
        handle.may_stop.clear()
        handle.server.engine.arm(Fault(kind="status", path="/health", status=503))

        def remove() -> None:
            launcher.log.append("fence")
            remove_backend()

        fleet.fleet.slot(E2).replica.gate.remove = remove  # type: ignore[union-attr, method-assign]  # to see the order
        held = fleet.pool.acquire("a session")
        for _ in range(3):
            await time.advance(5)
            await asyncio.sleep(0.05)
        await wait_until(lambda: handle.stop_calls, "the kill began")
        assert launcher.log[-2:] == ["fence", f"stop {E2}#1"]
        assert handle.stop_calls == [0.0]
        assert E2 not in fleet.lease_ids(50)
        assert E2 not in fleet.published()
        held.settle("completed")
        assert fleet.fleet.recovery.busy == (E2,)
        handle.may_stop.set()
        await fleet.replaced(E2, 2)


async def test_b34_an_engine_that_sleeps_is_not_restarted_and_one_that_dies_asleep_is_when_it_wakes() -> None:
    """Ten probe periods of silence are nothing. A process that ends is noticed, and replaced once the GPUs are back."""
    time = ManualTime()
    settings = replace(QUICK, health_interval_s=5)
    async with running_fleet(settings=settings, clock=time.clock) as fleet:
        task = asyncio.create_task(fleet.manager.sleep("rollout"))
        while not task.done():
            await time.advance(0.1)
            await asyncio.sleep(0.01)
        assert task.result().ok, task.result()
        before = fleet.topology
        await time.advance(10 * 5)
        assert fleet.topology is before
        assert len(fleet.launcher.requests) == 3
        fleet.launcher.handles[E2].kill()
        await wait_until(lambda: E2 not in fleet.published(), "E2 is fenced")
        await wait_until(lambda: not fleet.fleet.recovery.busy, "E2 is buried")
        assert len(fleet.launcher.requests) == 3
        task = asyncio.create_task(fleet.manager.wake("rollout"))
        while not task.done():
            await time.advance(0.1)
            await asyncio.sleep(0.01)
        assert {row.engine for row in task.result().engines} == {"policy/0", E1}
        await fleet.replaced(E2, 2)
        assert fleet.lease_ids() == {"policy/0", E1, E2}
        assert fleet.fleet.monitor.suspensions.owners == ()


async def test_b34_recovery_waits_for_an_update_and_the_snapshot_is_old_or_new(fleet: Fleet) -> None:
    """The replacement is launched meanwhile, and is published after the update, in one step, with its weights."""
    seen = [fleet.topology]
    async with fleet.fleet.exclusive("an update"):
        fleet.launcher.handles[E2].kill()
        await wait_until(lambda: fleet.launcher.handles[E2].request.generation == 2, "E2 is launched anew")
        for _ in range(20):
            await asyncio.sleep(0.01)
            if fleet.topology is not seen[-1]:
                seen.append(fleet.topology)
        assert fleet.fleet.monitor.suspensions.owners == ("an update",)
    await fleet.replaced(E2, 2)
    seen.append(fleet.topology)
    assert [sorted(engine.id for engine in topology.models["policy"]) for topology in seen] == [
        ["policy/0", E1, E2],
        ["policy/0", E1],
        ["policy/0", E1, E2],
    ]
    assert [topology.revision for topology in seen] == [2 + 2, 5, 6]


async def test_b34_an_update_that_raises_gives_the_token_back(fleet: Fleet) -> None:
    """And the lock with it."""
    with pytest.raises(ValueError, match="in the middle"):
        async with fleet.fleet.exclusive("an update"):
            raise ValueError("in the middle")
    assert fleet.fleet.monitor.suspensions.owners == ()
    await fleet.publish_from_disk("sim://weights/7", 7)


async def test_tries_are_bounded_and_grow_apart(caplog: pytest.LogCaptureFixture) -> None:
    """An engine that never comes back is given up with a word; the others serve on."""
    settings = replace(QUICK, restart_limit=3)
    async with running_fleet(settings=settings) as fleet:
        fleet.launcher.fail.add(E2)
        with caplog.at_level(logging.WARNING, logger="trimtab.manager.fleet"):
            fleet.launcher.handles[E2].kill()
            await wait_until(lambda: any("given up" in record.message for record in caplog.records), "it is given up")
        assert fleet.lease_ids() == {"policy/0", E1}
        assert fleet.fleet.slot(E2).absent.startswith("attempt 3 of 3 to replace it failed: policy/2 exited")


async def test_without_fault_tolerance_a_dead_engine_is_fenced_and_buried_and_that_is_all() -> None:
    """Nothing is launched that nobody asked for."""
    async with running_fleet(fault_tolerance_enabled=False) as fleet:
        fleet.launcher.handles[E2].kill()
        await wait_until(lambda: E2 not in fleet.published(), "E2 is fenced")
        await wait_until(lambda: not fleet.fleet.recovery.busy, "E2 is buried")
        assert len(fleet.launcher.requests) == 3
        for engine in ("policy/0", E1):
            fleet.launcher.handles[engine].kill()
        await wait_until(lambda: not fleet.published(), "all are fenced")
        with pytest.raises(NoEligibleBackend):
            fleet.pool.acquire()


async def test_a_death_is_an_event_with_engine_and_evidence(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """From death to service: four lines that a person can follow, each with the engine's id."""
    with caplog.at_level(logging.INFO, logger="trimtab.manager.fleet"):
        fleet.launcher.handles[E2].kill()
        await fleet.replaced(E2, 2)
    about = [record.message for record in caplog.records if getattr(record, "engine", None) == E2]
    assert about == ["engine died", "dead engine is gone", "engine starts", "engine is up", "engine serves"]
    died = caplog.records[0]
    assert (died.pool, died.detector, died.generation) == ("rollout/policy", "process", 1)  # type: ignore[attr-defined]
    assert "ended by SIGKILL" in died.what  # type: ignore[attr-defined]  # a field
    fenced = next(record for record in caplog.records if record.message == "engine is fenced")
    assert fenced.engines == [E2]  # type: ignore[attr-defined]  # a field


async def test_an_engine_that_dies_over_and_over_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """A replacement that dies young was a failed try: nothing is started for ever, however quickly it comes up."""
    async with running_fleet(settings=replace(QUICK, restart_limit=3)) as fleet:
        with caplog.at_level(logging.WARNING, logger="trimtab.manager.fleet"):
            for generation in (1, 2, 3, 4):
                await fleet.replaced(E2, generation)
                fleet.launcher.handles[E2].kill()
            await wait_until(lambda: any("given up" in record.message for record in caplog.records), "it is given up")
        assert fleet.lease_ids() == {"policy/0", E1}
        (result,) = await fleet.manager.activate()
        assert result.ok
        assert fleet.published()[E2] == 5


async def test_a_sleep_that_the_router_refuses_changes_nothing(fleet: Fleet) -> None:
    """A trainer's own update holds the pool: recovery goes on, and so does everything else."""
    fleet.pool.begin_update("of a trainer")
    with pytest.raises(UpdateInProgress):
        await fleet.manager.sleep("rollout")
    fleet.pool.end_server_pause("of a trainer")
    fleet.pool.cancel_update("of a trainer")
    fleet.launcher.handles[E2].kill()
    await fleet.replaced(E2, 2)
    assert fleet.lease_ids() == {"policy/0", E1, E2}


async def test_an_engine_that_does_not_go_on_after_a_pause_is_not_routed_to(fleet: Fleet) -> None:
    """No engine is both paused and eligible: who refuses to continue is fenced, killed and replaced."""
    assert (await fleet.manager.pause("rollout")).ok
    fault = Fault(kind="status", path="/continue_generation", status=400)
    fleet.launcher.handles[E2].server.engine.arm(fault)
    result = await fleet.manager.resume("rollout")
    assert [row.status for row in result.engines] == ["ok", "ok", "error"]
    assert fleet.lease_ids() >= {"policy/0", E1}
    await fleet.replaced(E2, 2)
    assert fleet.lease_ids() == {"policy/0", E1, E2}
