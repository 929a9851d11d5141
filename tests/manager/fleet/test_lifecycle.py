"""Pause, resume, flush, drain, sleep and wake of a whole model: rows, fences, joining, and who fails alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.manager.fleet.conftest import running_fleet
from tests.support.waiting import wait_until
from trimtab.errors import InvalidRequest, InvalidTransition, NoEligibleBackend, NotServing, UnknownBackend
from trimtab_manager.sim import Fault

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet
    from trimtab.fleet import OperationResult

E0, E1, E2 = "policy/0", "policy/1", "policy/2"


def statuses(result: OperationResult) -> dict[str, str]:
    """Status of each row."""
    return {row.engine: row.status for row in result.engines}


def arm(fleet: Fleet, engine: str, **fault: object) -> None:
    """Give an engine a fault."""
    fleet.launcher.handles[engine].server.engine.arm(Fault(**fault))  # type: ignore[arg-type]  # its fields


def state(fleet: Fleet) -> str:
    """The model's, as the gateway shows it."""
    return fleet.pool.statistics().model_state


async def test_a_pause_fences_and_a_resume_lifts(fleet: Fleet) -> None:
    """Between them nothing is granted; a second pause and a second resume change nothing."""
    for _ in range(2):
        result = await fleet.manager.pause("rollout", mode="in_place")
        assert result.ok, result
        with pytest.raises(NotServing):
            fleet.pool.acquire()
    assert [*fleet.fleet.monitor.suspensions.owners] == ["paused"]
    for _ in range(2):
        assert (await fleet.manager.resume("rollout")).ok
        assert fleet.lease_ids() == {E0, E1, E2}
    assert [*fleet.fleet.monitor.suspensions.owners] == []
    with pytest.raises(InvalidRequest, match="'soft' is no pause mode; there are abort, in_place, retract"):
        await fleet.manager.pause("rollout", mode="soft")


async def test_what_does_not_fit_together_is_refused_with_the_way_out(fleet: Fleet) -> None:
    """A paused model is resumed, a sleeping one is woken, and neither is updated or scaled in that state."""
    await fleet.manager.pause("rollout")
    with pytest.raises(InvalidTransition, match="rollout/policy is paused: a wake is refused; resume it first"):
        await fleet.manager.wake("rollout")
    with pytest.raises(InvalidTransition, match="resume it first"):
        await fleet.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
    with pytest.raises(InvalidTransition, match="is paused: scale of all to 4 is refused; resume it first"):
        await fleet.manager.scale("rollout", replicas=4)
    await fleet.manager.resume("rollout")
    await fleet.manager.sleep("rollout")
    with pytest.raises(InvalidTransition, match="is sleeping: a pause is refused; wake it first"):
        await fleet.manager.pause("rollout")
    with pytest.raises(InvalidTransition, match="wake the tag 'weights' first"):
        await fleet.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
    await fleet.manager.wake("rollout")
    await fleet.publish_from_disk("sim://weights/7", 7)


async def test_sleep_and_wake_are_idempotent_and_joined(fleet: Fleet) -> None:
    """Any number of concurrent orders is one; SGLang would die of a second release or a second resume."""
    results = await asyncio.gather(*(fleet.manager.sleep("rollout") for _ in range(4)))
    assert all(result is results[0] for result in results)
    assert results[0].ok, results[0]
    assert state(fleet) == "sleeping"
    assert (await fleet.manager.sleep("rollout")).ok
    assert {row.state for row in results[0].engines} == {"sleeping"}
    woken = await asyncio.gather(*(fleet.manager.wake("rollout") for _ in range(4)))
    assert woken[0].ok, woken[0]
    assert (await fleet.manager.wake("rollout")).ok
    assert (state(fleet), fleet.lease_ids()) == ("ready", {E0, E1, E2})
    assert all(handle.exit() is None for handle in fleet.launcher.handles.values())


async def test_a_model_that_wakes_in_parts_serves_when_all_is_in(fleet: Fleet) -> None:
    """Between weights and cache it can be updated, and nothing is granted at any time."""
    await fleet.publish_from_disk("sim://weights/7", 7)
    await fleet.manager.sleep("rollout")
    result = await fleet.manager.wake("rollout", tags=["weights"])
    assert {row.state for row in result.engines} == {"onloading"}
    with pytest.raises((NotServing, NoEligibleBackend)):
        fleet.pool.acquire()
    await fleet.publish_from_disk("sim://weights/8", 8)
    with pytest.raises((NotServing, NoEligibleBackend)):
        fleet.pool.acquire()
    assert state(fleet) == "sleeping"
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.lease_ids() == {E0, E1, E2}
    assert fleet.pool.weight_version == 8
    for replica in fleet.fleet.replicas:
        assert (await replica.client.model_info()).weight_version == "8"
    with pytest.raises(InvalidRequest, match="gpu: no such memory"):
        await fleet.manager.wake("rollout", tags=["gpu"])


async def test_b53_passing_errors_of_a_control_call_are_outlived(fleet: Fleet) -> None:
    """Two answers of 502 to a release, then one that works: one effective release, and nobody is replaced."""
    arm(fleet, E2, kind="status", path="/release_memory_occupation", status=502, times=2)
    result = await fleet.manager.sleep("rollout")
    assert result.ok, result
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.published() == {E0: 1, E1: 1, E2: 1}


@pytest.mark.slow
async def test_b53_an_engine_whose_control_fails_for_ever_is_dropped_and_the_others_go_on(fleet: Fleet) -> None:
    """502 for ever: an error that names it; it is fenced and killed, and its replacement waits for the wake."""
    arm(fleet, E2, kind="status", path="/release_memory_occupation", status=502)
    result = await fleet.manager.sleep("rollout")
    assert statuses(result) == {E0: "ok", E1: "ok", E2: "error"}
    (row,) = (row for row in result.engines if row.status == "error")
    assert f"engine {E2} is quarantined" in (row.error or "")
    assert "502" in (row.error or "")
    await wait_until(lambda: not fleet.fleet.recovery.busy, "E2 is buried")
    assert sorted(fleet.launcher.alive) == [E0, E1]
    assert (await fleet.manager.wake("rollout")).ok
    await fleet.replaced(E2, 2)
    assert fleet.lease_ids() == {E0, E1, E2}


async def test_a_drained_engine_finishes_what_it_runs(fleet: Fleet) -> None:
    """It is fenced at once; the drain is over when its running request is; the others serve."""
    leases = {lease.backend_id: lease for lease in [fleet.pool.acquire() for _ in range(3)]}
    task = asyncio.create_task(fleet.manager.drain("rollout", engine=E1))
    await wait_until(lambda: E1 not in fleet.eligible(), "it is fenced")
    for engine in (E0, E2):
        leases[engine].settle("completed")
    assert fleet.lease_ids(9) == {E0, E2}
    assert not task.done()
    leases[E1].settle("completed")
    assert statuses(await task) == {E1: "ok"}
    assert fleet.lease_ids(9) == {E0, E2}


async def test_a_drain_survives_update_sleep_and_wake(fleet: Fleet) -> None:
    """Who took an engine out has to take it back; nothing else does."""
    assert (await fleet.manager.drain("rollout", engine=E1)).ok
    assert (await fleet.manager.wake("rollout")).ok
    await fleet.publish_from_disk("sim://weights/7", 7)
    assert fleet.lease_ids(9) == {E0, E2}
    assert (await fleet.manager.sleep("rollout")).ok
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.lease_ids(9) == {E0, E2}
    assert (await fleet.manager.undrain("rollout", engine=E1)).ok
    assert fleet.lease_ids(9) == {E0, E1, E2}
    assert (await fleet.manager.undrain("rollout")).ok


async def test_engines_that_are_not_there_are_named(fleet: Fleet) -> None:
    """An unknown engine, and one that is being replaced."""
    with pytest.raises(UnknownBackend, match="rollout/policy has no engine 'policy/9' \\(it has: policy/0, policy/1"):
        await fleet.manager.drain("rollout", engine="policy/9")
    fleet.launcher.gate.clear()
    fleet.launcher.handles[E2].kill()
    await wait_until(lambda: E2 not in fleet.published(), "it is fenced")
    with pytest.raises(InvalidTransition, match="engine policy/2 is not there: generation 1 died"):
        await fleet.manager.drain("rollout", engine=E2)
    fleet.launcher.gate.set()


async def test_a_flush_reports_each_engine() -> None:
    """Idle engines are flushed."""
    async with running_fleet(2) as fleet:
        result = await fleet.manager.flush("rollout")
        assert statuses(result) == {E0: "ok", E1: "ok"}


async def test_a_wake_that_one_engine_fails_wakes_the_others(fleet: Fleet) -> None:
    """The one that dies of it is replaced."""
    await fleet.manager.sleep("rollout")
    arm(fleet, E2, kind="crash", path="/resume_memory_occupation")
    result = await fleet.manager.wake("rollout")
    assert statuses(result)[E0] == statuses(result)[E1] == "ok"
    assert statuses(result)[E2] != "ok"
    assert fleet.lease_ids() >= {E0, E1}
    await fleet.replaced(E2, 2)


async def test_a_drain_that_waits_is_no_reason_to_give_an_engine_up(fleet: Fleet) -> None:
    """Pause and resume reach an engine beside its drain; taken back in between, it serves again with the model."""
    leases = {lease.backend_id: lease for lease in [fleet.pool.acquire() for _ in range(3)]}
    drain = asyncio.create_task(fleet.manager.drain("rollout", engine=E1))
    await wait_until(lambda: fleet.fleet.slot(E1).replica.state == "draining", "it drains")  # type: ignore[union-attr]
    assert (await fleet.manager.pause("rollout", mode="in_place")).ok
    assert (await fleet.manager.resume("rollout")).ok
    assert (await fleet.manager.pause("rollout")).ok
    assert (await fleet.manager.undrain("rollout", engine=E1)).ok
    for lease in leases.values():
        lease.settle("aborted")
    assert (await fleet.manager.resume("rollout")).ok
    await drain
    assert fleet.published() == {E0: 1, E1: 1, E2: 1}
    assert fleet.lease_ids(9) == {E0, E1, E2}


async def test_a_sleep_ends_what_a_drain_waits_for(fleet: Fleet) -> None:
    """A model that goes to sleep aborts what runs, also on an engine that somebody drains in peace."""
    lease = next(lease for lease in [fleet.pool.acquire() for _ in range(3)] if lease.backend_id == E1)
    drain = asyncio.create_task(fleet.manager.drain("rollout", engine=E1))
    await wait_until(lambda: fleet.fleet.slot(E1).replica.state == "draining", "it drains")  # type: ignore[union-attr]
    sleep = asyncio.create_task(fleet.manager.sleep("rollout"))
    await wait_until(lambda: fleet.launcher.handles[E1].server.engine.admission.paused, "it is told to abort")
    lease.settle("aborted")
    assert (await sleep).ok
    await drain
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.lease_ids(9) == {E0, E2}
