"""An update of weights on simulated engines: what is published, and who is routable afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_until
from trimtab import InvalidRequest, UnknownUpdate, UpdateInProgress, VersionRegression
from trimtab_manager.sim import Fault
from trimtab_manager.weights import FromDisk, Label, UpdateCancelled, UpdateFailed

if TYPE_CHECKING:
    from tests.manager.weights.conftest import Fleet

NEW = FromDisk("sim://weights/2")


async def test_every_engine_gets_the_weights_and_the_version_is_published(fleet: Fleet) -> None:
    """All engines run the new weights, none is paused, all are routable, and the result has a row for each."""
    result = await fleet.updates.update(NEW, 2)
    assert result.ok
    assert (result.operation, result.role, result.model, result.weight_version) == (
        "update_weights",
        "rollout",
        "tiny",
        2,
    )
    assert [(row.engine, row.status, row.state) for row in result.engines] == [
        (f"e{number}", "ok", "ready") for number in range(3)
    ]
    assert {"drain", "idle", "prime", "pause", "transfer", "flush", "read_back", "resume", "verify", "conclude"} == set(
        result.detail["steps_s"]
    )
    assert fleet.versions == ["2", "2", "2"]
    assert [engine.weights.model_path for engine in fleet.engines] == [NEW.path] * 3
    assert not any(fleet.paused)
    assert set(fleet.scope.states().values()) == {"eligible"}
    assert fleet.scope.pool.weight_version == 2
    assert fleet.scope.history == [(2, NEW)]
    assert fleet.updates.progress is None


async def test_b21_an_engine_whose_update_failed_gets_no_request_until_it_was_reloaded(fleet: Fleet) -> None:
    """e1 answers 500 after the load was asked for: it is tainted. The next update that succeeds brings it back."""
    fleet.engines[1].arm(Fault(kind="status", path="/update_weights_from_disk", status=500, times=1))
    result = await fleet.updates.update(NEW, 2)
    assert not result.ok
    assert [row.status for row in result.engines] == ["ok", "error", "ok"]
    assert fleet.scope.states() == {"e0": "eligible", "e1": "tainted", "e2": "eligible"}
    assert fleet.scope.pool.weight_version == 2
    leases = [fleet.scope.pool.acquire(f"s{number}") for number in range(20)]
    assert {lease.backend_id for lease in leases} == {"e0", "e2"}
    for lease in leases:
        lease.settle("completed")
    assert not any(fleet.paused)

    assert (await fleet.updates.update(FromDisk("sim://weights/3"), 3)).ok
    assert set(fleet.scope.states().values()) == {"eligible"}


async def test_b21_an_engine_that_says_yes_and_keeps_the_old_version_is_tainted(fleet: Fleet) -> None:
    """e2 answers 200 to the transfer and still names the old version: not proved, hence not routable."""
    fleet.engines[2].weights.announce = lambda path, version: None  # type: ignore[method-assign]  # a lying engine
    result = await fleet.updates.update(NEW, 2)
    assert [row.status for row in result.engines] == ["ok", "ok", "error"]
    assert "names version '1' after the update to 2" in str(result.engines[2].error)
    assert fleet.scope.states()["e2"] == "tainted"


async def test_the_same_version_again_repairs_a_tainted_engine(fleet: Fleet) -> None:
    """An operator loads the published version once more: the engine that failed joins the others."""
    fleet.engines[0].arm(Fault(kind="status", path="/update_weights_from_disk", status=500, times=1))
    assert not (await fleet.updates.update(NEW, 2)).ok
    assert (await fleet.updates.update(NEW, 2)).ok
    assert set(fleet.scope.states().values()) == {"eligible"}


async def test_a_path_that_does_not_exist_changes_nothing(fleet: Fleet) -> None:
    """All engines refuse before they touch a weight: the old version stays published, and every engine serves on."""
    with pytest.raises(UpdateFailed, match="version 1 stays published") as failure:
        await fleet.updates.update(FromDisk("/no/such/folder"), 2)
    assert [row.status for row in failure.value.result.engines] == ["error"] * 3
    assert fleet.scope.pool.weight_version == 1
    assert set(fleet.scope.states().values()) == {"eligible"}
    assert not any(fleet.paused)
    assert fleet.scope.history == []
    assert (await fleet.updates.update(NEW, 2)).ok


async def test_a_first_version_that_nobody_confirms_is_not_published(fleet: Fleet) -> None:
    """In a pool without any version, too, a path that does not exist changes nothing."""
    from tests.support.update_scope import small_scope
    from trimtab_manager.weights import WeightUpdates

    async with small_scope([server.url for server in fleet.servers], weight_version=None) as scope:
        updates = WeightUpdates(scope)
        with pytest.raises(UpdateFailed, match="version None stays published"):
            await updates.update(FromDisk("/no/such/folder"), 1)
        assert scope.pool.weight_version is None
        assert set(scope.states().values()) == {"eligible"}
        assert (await updates.update(NEW, 1)).ok
        assert scope.pool.weight_version == 1


async def test_a_lost_answer_is_settled_by_the_label(fleet: Fleet) -> None:
    """The engine loads, and its answer breaks off: it names the new version, which it can have from nowhere else."""
    fleet.engines[1].arm(Fault(kind="reset", path="/update_weights_from_disk", at_bytes=1, times=1))
    result = await fleet.updates.update(NEW, 2)
    assert result.ok
    assert set(fleet.scope.states().values()) == {"eligible"}


async def test_a_lost_answer_proves_nothing_when_the_version_is_the_published_one(fleet: Fleet) -> None:
    """A repair at the same version whose answer is lost: the label was there before, so the engine stays out."""
    fleet.engines[1].arm(Fault(kind="reset", path="/update_weights_from_disk", at_bytes=1, times=1))
    result = await fleet.updates.update(FromDisk("sim://weights/1"), 1)
    assert [row.status for row in result.engines] == ["ok", "timeout", "ok"]
    assert fleet.scope.states()["e1"] == "tainted"


async def test_versions_grow_within_an_epoch(fleet: Fleet) -> None:
    """A lower version is refused before anything happens; a new epoch may begin anywhere."""
    assert (await fleet.updates.update(NEW, 5)).ok
    with pytest.raises(VersionRegression, match="version 4 is below the published 5"):
        await fleet.updates.update(NEW, 4)
    assert fleet.scope.pool.statistics().generation == 1
    assert (await fleet.updates.update(NEW, 3, epoch=1)).ok
    assert fleet.scope.pool.weight_version == 3
    assert set(fleet.scope.states().values()) == {"eligible"}


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (4, 1, VersionRegression),
        (9, 0, VersionRegression),
        (9, -1, InvalidRequest),
        (9, True, InvalidRequest),
        (2**64, None, InvalidRequest),
    ],
)
async def test_what_could_not_be_published_is_not_begun(
    fleet: Fleet, version: int, epoch: int | None, error: type[Exception]
) -> None:
    """A version below the published one of its epoch, an epoch below the current one, numbers that nobody holds."""
    assert (await fleet.updates.update(NEW, 5, epoch=1)).ok
    with pytest.raises(error):
        await fleet.updates.update(NEW, version, epoch=epoch)
    assert fleet.versions == ["5"] * 3
    assert (await fleet.updates.update(NEW, 6)).ok


async def test_a_version_that_the_router_refuses_leaves_it_free_for_the_next(fleet: Fleet) -> None:
    """The engines have weights that nobody may ask for: they are out, and an update brings them back."""
    assert (await fleet.updates.update(NEW, 5)).ok
    # As if somebody else had published between the check and the end.
    fleet.updates._check_version = lambda plan: None  # type: ignore[method-assign]
    with pytest.raises(UpdateFailed, match="version 5 stays published: version 4 is refused"):
        await fleet.updates.update(NEW, 4, epoch=0)
    assert fleet.scope.pool.statistics().census["eligible"] == 0
    assert (await fleet.updates.update(NEW, 6)).ok
    assert fleet.scope.pool.statistics().census["eligible"] == 3


async def test_static_models_refuse_updates(fleet: Fleet) -> None:
    """Nothing is sent, nothing is fenced."""
    fleet.scope.static = True
    with pytest.raises(InvalidRequest, match="rollout/tiny is static"):
        await fleet.updates.update(NEW, 2)
    assert fleet.scope.pool.statistics().generation == 0
    assert fleet.versions == ["1"] * 3


async def test_b80_a_second_update_is_told_who_runs_and_since_when(fleet: Fleet) -> None:
    """One of two concurrent updates runs; the other is refused with the id, step and age of the first."""
    for engine in fleet.engines:
        engine.arm(Fault(kind="delay", path="/update_weights_from_disk", delay_s=0.3, times=1))
    first = asyncio.ensure_future(fleet.updates.update(NEW, 2, update_id="mine"))
    await wait_until(lambda: fleet.updates.progress is not None and fleet.updates.progress.step == "transfer", "sent")
    with pytest.raises(UpdateInProgress, match=r"update mine to version 2 runs since \d+\.\d s, in step transfer"):
        await fleet.updates.update(NEW, 3)
    with pytest.raises(UnknownUpdate, match="no update other runs"):
        fleet.updates.cancel("other")
    assert (await first).ok
    assert fleet.scope.pool.weight_version == 2


async def test_b80_an_update_of_somebody_else_in_the_pool_is_respected(fleet: Fleet) -> None:
    """A controller that works over the router's own API holds the pool: ours is refused, and nothing is left of it."""
    fleet.scope.pool.begin_update("theirs", kind="offload")
    with pytest.raises(UpdateInProgress, match="theirs"):
        await fleet.updates.update(NEW, 2)
    assert fleet.updates.progress is None
    fleet.scope.pool.end_server_pause("theirs")
    fleet.scope.pool.cancel_update("theirs")
    assert (await fleet.updates.update(NEW, 2)).ok


async def test_b80_the_update_of_a_caller_that_dies_is_over(fleet: Fleet) -> None:
    """Its task is cancelled while the engines load: they are resumed or tainted, and the next update can begin."""
    for engine in fleet.engines:
        engine.arm(Fault(kind="delay", path="/update_weights_from_disk", delay_s=30, times=1))
    first = asyncio.ensure_future(fleet.updates.update(NEW, 2))
    await wait_until(
        lambda: not any(engine.faults.armed() for engine in fleet.engines), "all engines were told to load"
    )
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not any(fleet.paused)
    assert fleet.scope.pool.weight_version == 1
    assert set(fleet.scope.states().values()) == {"tainted"}
    assert (await fleet.updates.update(NEW, 3)).ok
    assert set(fleet.scope.states().values()) == {"eligible"}


async def test_an_update_is_cancelled_by_its_id(fleet: Fleet) -> None:
    """While it waits for requests to end, nothing is lost: the old version serves on."""
    lease = fleet.scope.pool.acquire("s")
    first = asyncio.ensure_future(fleet.updates.update(NEW, 2, update_id="mine", running="wait"))
    await wait_until(lambda: fleet.updates.progress is not None and fleet.updates.progress.step == "drain", "it drains")
    fleet.updates.cancel("mine")
    with pytest.raises(UpdateCancelled, match="update mine was cancelled; version 1 stays published"):
        await first
    assert set(fleet.scope.states().values()) == {"eligible"}
    fleet.scope.pool.acquire("s").settle("completed")
    lease.settle("completed")


async def test_a_label_does_not_reach_engines_that_lack_the_weights(fleet: Fleet) -> None:
    """A tainted engine would only be called new: it is skipped, and stays out."""
    fleet.scope.pool.taint_backend(fleet.scope.fleet["e1"].backend)
    result = await fleet.updates.update(Label(), 2)
    assert [(row.engine, row.status) for row in result.engines] == [("e0", "ok"), ("e2", "ok"), ("e1", "skipped")]
    assert fleet.versions == ["2", "1", "2"]
    assert fleet.scope.states() == {"e0": "eligible", "e1": "tainted", "e2": "eligible"}
