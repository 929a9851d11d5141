"""Updates of weights through the manager: what they mean to a fleet that sleeps, loses engines and gets new ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_until
from trimtab import NotServing, UnknownUpdate
from trimtab_manager.sim import Fault
from trimtab_manager.weights import FromDisk, Label, UpdateCancelled

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet

E0, E1, E2 = "policy/0", "policy/1", "policy/2"


async def test_weights_are_replaced_while_engines_wake(fleet: Fleet) -> None:
    """A colocated step: weights come back, are updated, and then the KV cache: nothing is generated in between."""
    await fleet.manager.sleep("rollout")
    await fleet.manager.wake("rollout", tags=["weights"])
    engines = [handle.server.engine for handle in fleet.launcher.handles.values()]
    before = [engine.statistics().requests_received for engine in engines]
    result = await fleet.manager.update_weights(FromDisk("sim://weights/7"), 7, role="rollout")
    assert result.ok, result
    assert [engine.statistics().requests_received for engine in engines] == before
    with pytest.raises(NotServing):
        fleet.pool.acquire()
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.lease_ids() == {E0, E1, E2}
    assert {engine.weights.version for engine in engines} == {"7"}
    assert [engine.crashed for engine in engines] == [None] * 3
    assert fleet.pool.weight_version == 7


async def test_an_update_has_a_progress_and_can_be_cancelled_by_its_id(fleet: Fleet) -> None:
    """The id is needed: nobody breaks off an update by chance."""
    assert fleet.manager.update_progress("rollout") is None
    lease = fleet.pool.acquire("s")
    update = asyncio.ensure_future(
        fleet.manager.update_weights(Label(), 7, role="rollout", running="wait", update_id="mine")
    )
    await wait_until(lambda: fleet.manager.update_progress("rollout") is not None, "it runs")
    progress = fleet.manager.update_progress("rollout")
    assert progress is not None
    assert (progress.id, progress.version, progress.kind) == ("mine", 7, "none")
    with pytest.raises(UnknownUpdate, match="no update other runs"):
        fleet.manager.cancel_update("rollout", update_id="other")
    fleet.manager.cancel_update("rollout", update_id="mine")
    with pytest.raises(UpdateCancelled):
        await update
    assert fleet.manager.update_progress("rollout") is None
    lease.settle("completed")
    assert fleet.lease_ids() == {E0, E1, E2}


async def test_an_engine_that_dies_of_an_update_is_replaced_and_catches_up(fleet: Fleet) -> None:
    """Two engines are updated, the third is replaced: its new incarnation loads what is published before it serves."""
    victim = fleet.launcher.handles[E1].server.engine
    victim.arm(Fault(kind="crash", path="/update_weights_from_disk"))
    result = await fleet.manager.update_weights(FromDisk("sim://weights/7"), 7, role="rollout")
    assert {row.engine: row.status == "ok" for row in result.engines} == {E0: True, E1: False, E2: True}
    await fleet.replaced(E1, 2)
    await wait_until(lambda: fleet.eligible() == {E0, E1, E2}, "all serve again")
    assert fleet.launcher.handles[E1].server.engine.weights.version == "7"


@pytest.mark.parametrize("survivors", [0, 1], ids=["all lost", "one lost"])
async def test_a_label_brings_back_no_weights_that_a_sleep_took(fleet: Fleet, survivors: int) -> None:
    """An engine whose weights are gone gets a new label while it wakes: it does not serve what is in its memory."""
    await fleet.manager.update_weights(FromDisk("sim://weights/7"), 7, role="rollout")
    fleet.fleet.catch_up.note(7, Label())  # version 7 was sent by a trainer, and nobody can send it again
    lost = fleet.fleet.replicas[survivors:]
    for replica in lost:
        raw = {**replica.engine.capabilities.server.raw, "enable_memory_saver": True}
        server = replace(replica.engine.capabilities.server, raw=raw)
        replica.engine.capabilities = replace(replica.engine.capabilities, server=server)
    await fleet.manager.sleep("rollout")
    await fleet.manager.wake("rollout", tags=["weights"])
    await fleet.manager.update_weights(Label(), 8, role="rollout")
    result = await fleet.manager.wake("rollout")
    assert {row.engine for row in result.engines if row.status == "error"} == {replica.id for replica in lost}
    if survivors:
        assert fleet.lease_ids() == fleet.eligible() == {E0}
    else:
        with pytest.raises(NotServing):
            fleet.pool.acquire()
    # An update that brings everything, in the same place, does bring them back.
    await fleet.manager.update_weights(FromDisk("sim://weights/9"), 9, role="rollout")
    assert (await fleet.manager.wake("rollout")).ok
    assert fleet.lease_ids() == {E0, E1, E2}
