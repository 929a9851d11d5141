"""Engines that come and go: scale, single engines, the end, and models that never change."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.fleet.conftest import QUICK, model_spec, running_fleet
from tests.support.sim_launcher import FAST
from tests.support.waiting import wait_until
from trimtab.errors import InvalidRequest, InvalidTransition, NoEligibleBackend, UnknownModel, UnknownPool
from trimtab.spec import EngineGroupSpec, ParallelSpec
from trimtab_manager.fleet.request import launch_request
from trimtab_manager.sim import running_engine

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet
    from trimtab_manager.fleet import Replica

E0, E1, E2 = "policy/0", "policy/1", "policy/2"


class Load:
    """Callers that hold a lease for a moment, one after another, until they are stopped."""

    def __init__(self, fleet: Fleet, callers: int = 6) -> None:
        self.fleet = fleet
        self.where: list[str] = []
        self.refused = 0
        self._tasks = [asyncio.create_task(self._call(f"s{number}")) for number in range(callers)]

    async def _call(self, session: str) -> None:
        turn = 0
        while True:
            turn += 1
            try:
                lease = self.fleet.pool.acquire(f"{session}-{turn // 5}")
            except NoEligibleBackend:
                self.refused += 1
                await asyncio.sleep(0.005)
                continue
            self.where.append(lease.backend_id)
            try:
                await asyncio.sleep(0.005)
            finally:
                lease.settle("completed")

    async def stop(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_scale_under_load(fleet: Fleet) -> None:
    """Up and down, nobody is refused; each is one revision; what runs on a leaving engine ends before it does."""
    load = Load(fleet)
    revision = fleet.topology.revision
    result = await fleet.manager.scale("rollout", replicas=5)
    assert result.ok
    assert fleet.topology.revision == revision + 1
    await wait_until(lambda: {"policy/3", "policy/4"} <= set(load.where), "the new ones are used")
    result = await fleet.manager.scale("rollout", replicas=1)
    assert result.ok, result
    assert fleet.topology.revision == revision + 2
    assert fleet.published() == {E0: 1}
    assert fleet.launcher.alive == [E0]
    before = len(load.where)
    await wait_until(lambda: len(load.where) > before + 20, "it serves on")
    assert set(load.where[before + 6 :]) == {E0}
    await load.stop()
    assert load.refused == 0
    outcomes = {name: count for name, count in fleet.pool.statistics().outcomes.items() if count}
    assert set(outcomes) <= {"completed", "cancelled"}


async def test_a_scaled_up_engine_has_the_weights_before_it_serves(fleet: Fleet) -> None:
    """It is published with the version confirmed."""
    await fleet.publish_from_disk("sim://weights/7", 7)
    await fleet.manager.scale("rollout", replicas=4)
    backend = next(each for each in fleet.pool.statistics().backends if each.id == "policy/3")
    assert (backend.weight_version, backend.eligible) == (7, True)


async def test_scale_to_zero_and_back(fleet: Fleet) -> None:
    """No engine is a fleet, too."""
    await fleet.manager.scale("rollout", replicas=0)
    with pytest.raises(NoEligibleBackend):
        fleet.pool.acquire()
    assert (await fleet.manager.scale("rollout", replicas=2)).ok
    assert fleet.lease_ids() == {E0, E1}
    with pytest.raises(InvalidRequest, match="at least 0"):
        await fleet.manager.scale("rollout", replicas=-1)


async def test_a_removed_engine_finishes_first(fleet: Fleet) -> None:
    """Unpublished and fenced at once, stopped when its last request has ended."""
    leases = [fleet.pool.acquire() for _ in range(3)]
    task = asyncio.create_task(fleet.manager.remove_engine(E1, "rollout"))
    await wait_until(lambda: E1 not in fleet.published(), "it is unpublished")
    assert E1 not in fleet.eligible()
    await asyncio.sleep(0.05)
    assert not fleet.launcher.handles[E1].stop_calls
    for lease in leases:
        lease.settle("completed")
    assert (await task).ok
    assert sorted(fleet.launcher.alive) == [E0, E2]
    assert [backend.id for backend in fleet.pool.backends()] == [E0, E2]


async def test_an_engine_that_is_being_replaced_can_be_removed(fleet: Fleet) -> None:
    """Its replacement is called off."""
    fleet.launcher.gate.clear()
    fleet.launcher.handles[E2].kill()
    await wait_until(lambda: any(request.generation == 2 for request in fleet.launcher.requests), "it is launched anew")
    assert (await fleet.manager.remove_engine(E2, "rollout")).ok
    fleet.launcher.gate.set()
    assert sorted(fleet.fleet.slots) == [E0, E1]
    assert sorted(fleet.launcher.alive) == [E0, E1]


async def test_engines_of_others_are_attached_and_let_go() -> None:
    """The same URL twice is one engine; removing it leaves it running."""
    async with running_engine(FAST) as foreign, running_fleet(1) as fleet:
        for _ in range(2):
            result = await fleet.manager.add_engine(foreign.url, "rollout")
            assert result.ok, result
        assert fleet.lease_ids() == {E0, E1}
        await fleet.publish_from_disk("sim://weights/7", 7)
        assert fleet.lease_ids() == {E0, E1}
        assert (await fleet.manager.remove_engine(E1, "rollout")).ok
        assert fleet.lease_ids() == {E0}
        assert foreign.engine.crashed is None
        assert foreign.engine.ready


async def test_an_engine_without_lifecycle_rights_is_only_routed_to() -> None:
    """It is in the rows, untouched; a model whose weights are updated refuses it."""
    async with running_engine(FAST) as foreign, running_fleet(1, weight_source="static") as fleet:
        await fleet.manager.add_engine(foreign.url, "rollout", lifecycle=False, capacity=4.0)
        result = await fleet.manager.pause("rollout")
        assert {row.engine: row.status for row in result.engines} == {E0: "ok", E1: "skipped"}
        await fleet.manager.resume("rollout")
        assert fleet.lease_ids() == {E0, E1}
    async with running_fleet(1) as fleet:
        with pytest.raises(InvalidRequest, match="without lifecycle rights"):
            await fleet.manager.add_engine("127.0.0.1:1", "rollout", lifecycle=False)


async def test_late_engines_of_a_trained_model_need_elastic_enabled() -> None:
    """Otherwise nobody would give them the weights."""
    async with running_fleet(1, elastic_enabled=False) as fleet:
        with pytest.raises(InvalidRequest, match="elastic_enabled is off"):
            await fleet.manager.scale("rollout", replicas=2)
        assert (await fleet.manager.scale("rollout", replicas=1)).ok


async def test_shutdown_joins_and_ends_everything() -> None:
    """Twice is once; engines are unpublished before they are stopped; what was being launched is ended, too."""
    async with running_fleet(2) as fleet:
        fleet.launcher.gate.clear()
        scale = asyncio.create_task(fleet.manager.scale("rollout", replicas=4))
        await wait_until(lambda: len(fleet.launcher.requests) == 4, "two more are being launched")
        lease = fleet.pool.acquire()
        first, second = await asyncio.gather(fleet.manager.shutdown(), fleet.manager.shutdown())
        assert first == second == await fleet.manager.shutdown()
        assert first[0].ok, first
        with pytest.raises(InvalidTransition, match="shut down for good"):
            await scale
        with pytest.raises(InvalidTransition, match="shut down for good"):
            await fleet.manager.sleep("rollout")
        assert (fleet.published(), fleet.pool.backends(), fleet.launcher.alive) == ({}, [], [])
        lease.settle("cancelled")


async def test_shutdown_of_a_model_that_sleeps_or_is_paused_or_has_no_engine() -> None:
    """Every state has an end."""
    for order in ("sleep", "pause"):
        async with running_fleet(2) as fleet:
            assert (await getattr(fleet.manager, order)("rollout")).ok
            (result,) = await fleet.manager.shutdown()
            assert result.ok, result
            assert fleet.launcher.alive == []
    async with running_fleet(1, start=False) as fleet:
        assert (await fleet.manager.shutdown())[0].engines == ()


async def test_static_models_are_never_updated_whatever_is_set_globally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole life - start, death, sleep, wake, scale - not one update call reaches a static model's engines."""
    for name in ("TRIMTAB_WEIGHT_SOURCE", "WEIGHT_VERSION", "SGLANG_WEIGHT_VERSION", "UPDATE_WEIGHTS"):
        monkeypatch.setenv(name, "7")
    async with running_fleet(weight_source="static") as fleet:
        handles = [*fleet.launcher.handles.values()]
        with pytest.raises(InvalidRequest, match="is static"):
            await fleet.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
        fleet.launcher.handles[E2].kill()
        await fleet.replaced(E2, 2)
        assert (await fleet.manager.sleep("rollout")).ok
        result = await fleet.manager.wake("rollout")
        assert (result.ok, result.weight_version) == (True, None)
        await fleet.manager.scale("rollout", replicas=4)
        assert fleet.lease_ids() == {E0, E1, E2, "policy/3"}
        for handle in [*handles, *fleet.launcher.handles.values()]:
            weights = handle.server.engine.weights
            assert (weights.version, weights.model_path) == ("default", "sim://weights/0")
        assert fleet.manager.view()[0].models[0].weight_version is None


def test_an_engine_over_nodes_asks_for_its_share_on_each() -> None:
    """GPUs are counted over the whole engine in the specification, and per node by launchers."""
    wide = EngineGroupSpec(name="wide", gpus_per_engine=16, nodes_per_engine=2, parallel=ParallelSpec(tp=16))
    request = launch_request(
        model_spec(group=wide), wide, engine_id=E0, generation=1, url=None, deadline_s=1, api_key=None
    )
    assert (request.nodes, request.gpus) == (2, 8)


def test_poisoned_globals_do_not_leak_into_server_args(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine is started with follows from its model and its group, whatever the manager's process has."""
    model = model_spec(group=EngineGroupSpec(name="all", server_args={"max-running-requests": 8}), env_vars={"A": "1"})

    def request() -> object:
        return launch_request(
            model, model.engine_groups[0], engine_id=E0, generation=1, url=None, deadline_s=1, api_key=None
        )

    before = request()
    for name in ("MODEL_PATH", "TP_SIZE", "SGLANG_MODEL_PATH", "MEM_FRACTION_STATIC", "LOAD_FORMAT", "WEIGHT_VERSION"):
        monkeypatch.setenv(name, "poison")
    monkeypatch.setattr("sys.argv", ["train.py", "--load-format", "dummy", "--update-weights", "true"])
    assert request() == before
    assert "poison" in os.environ.values()
    assert "poison" not in repr(before)


async def test_names_that_nobody_serves_are_refused(fleet: Fleet) -> None:
    """The message lists what there is."""
    with pytest.raises(UnknownPool, match="no role 'judge' here \\(there are: rollout\\)"):
        await fleet.manager.sleep("judge")
    with pytest.raises(UnknownModel, match="role rollout has no model 'big' \\(it has: policy\\)"):
        await fleet.manager.sleep("rollout", "big")


async def test_a_gateway_can_read_the_count_of_topologies(fleet: Fleet) -> None:
    """Epoch and revision by role, as the registry has them at this moment."""
    before = fleet.manager.topology_count()
    await fleet.manager.scale("rollout", replicas=2)
    after = fleet.manager.topology_count()
    assert before.epoch == after.epoch == fleet.topology.epoch
    assert after.revisions == {"rollout": before.revisions["rollout"] + 1} == {"rollout": fleet.topology.revision}


async def test_orders_that_make_engines_follow_each_other(fleet: Fleet) -> None:
    """A scale down that comes while a scale up launches counts what that one made; what starts cannot be removed."""
    fleet.launcher.gate.clear()
    up = asyncio.create_task(fleet.manager.scale("rollout", replicas=5))
    await wait_until(lambda: len(fleet.launcher.requests) == 5, "two more are being launched")
    with pytest.raises(InvalidTransition, match="engine policy/4 is being started"):
        await fleet.manager.remove_engine("policy/4", "rollout")
    down = asyncio.create_task(fleet.manager.scale("rollout", replicas=1))
    fleet.launcher.gate.set()
    results = await asyncio.gather(up, down)
    assert [result.ok for result in results] == [True, True]
    assert (fleet.published(), fleet.launcher.alive) == ({E0: 1}, [E0])


async def test_a_shutdown_can_be_hurried() -> None:
    """Engines that take their time to stop are killed, although they are published no more."""
    async with running_fleet(2) as fleet:
        handle = fleet.launcher.handles[E1]
        handle.may_stop.clear()
        shutdown = asyncio.create_task(fleet.manager.shutdown())
        await wait_until(lambda: handle.stop_calls, "it is being stopped")
        hurry = asyncio.create_task(fleet.manager.kill())
        await wait_until(lambda: handle.stop_calls[-1] == 0.0, "it is being killed")
        handle.may_stop.set()
        await asyncio.gather(hurry, shutdown)


async def test_an_engine_that_was_given_up_is_started_again_by_a_scale() -> None:
    """Whoever has mended what ailed it has a way to say so over HTTP, too."""
    async with running_fleet(2, settings=replace(QUICK, restart_limit=1)) as fleet:
        fleet.launcher.fail.add(E1)
        fleet.launcher.handles[E1].kill()
        await wait_until(lambda: fleet.published().keys() == {E0}, "it is fenced")
        await wait_until(lambda: not fleet.fleet.recovery.has(fleet.fleet.slot(E1)), "it is given up")
        fleet.launcher.fail.clear()
        result = await fleet.manager.scale("rollout", replicas=2)
        assert {row.engine: row.status for row in result.engines} == {E1: "ok"}
        assert fleet.published().keys() == {E0, E1}


async def test_an_engine_that_was_removed_while_it_was_replaced_does_not_come_in(fleet: Fleet) -> None:
    """Also when its making forgot that it was cancelled: it is not in the router, and its process is ended."""
    await fleet.publish_from_disk("sim://weights/7", 7)
    began, bring = asyncio.Event(), fleet.fleet.catch_up.bring

    async def bring_and_forget(replica: Replica) -> int | None:
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await bring(replica)

    fleet.fleet.catch_up.bring = bring_and_forget  # type: ignore[method-assign]  # as wait_for before Python 3.12
    fleet.launcher.handles[E2].kill()
    await asyncio.wait_for(began.wait(), 5)
    await fleet.manager.remove_engine(E2, "rollout")
    assert {backend.id for backend in fleet.pool.backends()} == {E0, E1}
    assert fleet.published().keys() == {E0, E1}
    assert fleet.launcher.handles[E2].exit() is not None
