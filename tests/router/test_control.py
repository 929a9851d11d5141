"""Fences, updates, versions and senders of a pool, through the Python binding."""

from __future__ import annotations

import pytest

import trimtab
from trimtab import Pool, UpdateStatus


def serving_pool(version: int | None = 1, backends: int = 2) -> Pool:
    """A pool of a controller that published its first version."""
    pool = Pool("rollout/default", await_version=True, on_ambiguous="fail_pool")
    for number in range(backends):
        pool.add_backend(f"127.0.0.1:{20_000 + number}")
    if version is not None:
        pool.publish("u-first", version)
    pool.attach_owner("train", version)
    return pool


def attach(pool: Pool, sender: str = "rollout/0", owner: str = "train") -> str:
    """Attaches a sender, whose name serves as its incarnation."""
    pool.attach_sender(sender, sender, owner)
    return sender


def drained(pool: Pool, update: str) -> UpdateStatus:
    """A drain that must succeed at once."""
    status = pool.drain(update, timeout_s=10)
    assert status.phase != "quiescing"
    return status


def test_nothing_is_granted_before_the_first_version() -> None:
    """A pool that awaits a version is ``init`` until one is published."""
    pool = serving_pool(version=None)
    assert (pool.state, pool.weight_version) == ("init", None)
    with pytest.raises(trimtab.NotServing) as caught:
        pool.acquire()
    assert (caught.value.code, caught.value.retryable) == ("not_serving", True)
    assert pool.publish("u1", 7).version == 7
    lease = pool.acquire("s")
    assert (pool.state, lease.weight_version) == ("serving", 7)
    lease.settle("completed")


def test_a_fence_is_a_set_of_reasons_of_one_owner() -> None:
    """A reason given twice is lifted once; another owner is served meanwhile."""
    pool = serving_pool()
    train, evaluation = attach(pool), attach(pool, "eval-rollout/0", "eval")
    for _ in range(2):
        assert pool.fence("train", "pause").fences == ["pause"]
    with pytest.raises(trimtab.Fenced, match="pause"):
        pool.acquire(key=(train, train, 1))
    pool.acquire(key=(evaluation, evaluation, 1)).settle("completed")
    pool.fence("train", "checkpoint")
    assert pool.unfence("train", "pause").fences == ["checkpoint"]
    assert pool.unfence("train", "checkpoint").fences == []
    lease = pool.acquire(key=(train, train, 2))
    assert pool.owner_status("train").per_backend == {lease.backend_id: 1}
    lease.settle("completed")


def test_a_late_duplicate_of_a_fence_changes_nothing() -> None:
    """``op_id`` names one call: its repetition after the unfence does not fence again."""
    pool = serving_pool()
    pool.fence("train", "pause", op_id="op-1")
    pool.unfence("train", "pause", op_id="op-2")
    assert pool.fence("train", "pause", op_id="op-1").fences == []
    with pytest.raises(trimtab.IdempotencyConflict):
        pool.fence("train", "another", op_id="op-1")


def test_an_unknown_owner_cannot_be_fenced() -> None:
    """A fence that fences nobody would be taken for one."""
    with pytest.raises(trimtab.InvalidRequest, match="nobody"):
        serving_pool().fence("nobody", "pause")


def test_an_update_from_begin_to_acknowledgement() -> None:
    """The order of a training step: nothing is granted between begin and publish, nor before the acknowledgement."""
    pool = serving_pool(version=1)
    sender = attach(pool)
    held = pool.acquire("s", key=(sender, sender, 1))
    generation = pool.statistics().generation
    begun = pool.begin_update("u-2", to=2)
    assert (begun.kind, begun.to_version, begun.phase, begun.outstanding) == ("weights", 2, "quiescing", 1)
    assert pool.statistics().generation > generation
    assert pool.begin_update("u-2", to=2).replayed
    with pytest.raises(trimtab.UpdateInProgress, match="u-2"):
        pool.begin_update("u-3", to=3)
    with pytest.raises(trimtab.NotServing, match="u-2"):
        pool.acquire("s", key=(sender, sender, 2))
    assert pool.drain("u-2", timeout_s=10).phase == "quiescing"
    with pytest.raises(trimtab.InvalidTransition):
        pool.publish("u-2", 2)
    held.settle("aborted")
    drained(pool, "u-2")
    pool.end_server_pause("u-2")
    with pytest.raises(trimtab.NotServing):
        pool.acquire("s", key=(sender, sender, 2))
    assert pool.publish("u-2", 2).phase == "published"
    with pytest.raises(trimtab.VersionNotAcked, match="train"):
        pool.acquire("s", key=(sender, sender, 2))
    pool.ack("train", 2)
    lease = pool.acquire("s", key=(sender, sender, 2))
    assert (lease.weight_version, lease.sticky) == (2, True)
    lease.settle("completed")
    assert pool.update_status("u-2").phase == "published"
    assert [update.id for update in pool.statistics().last_updates] == ["u-first", "u-2"]


def test_an_offload_ends_with_the_version_it_began_with() -> None:
    """An update of kind ``offload`` drains and pauses, and is cancelled."""
    pool = serving_pool(version=1)
    pool.begin_update("nap", kind="offload")
    drained(pool, "nap")
    assert pool.cancel_update("nap").phase == "cancelled"
    pool.end_server_pause("nap")
    assert pool.weight_version == 1
    pool.acquire().settle("completed")


def test_a_lower_version_needs_a_new_epoch() -> None:
    """Versions never decrease within an epoch; a new epoch starts anew, with every backend pending."""
    pool = serving_pool(version=5, backends=1)
    pool.begin_update("u-0")
    drained(pool, "u-0")
    pool.end_server_pause("u-0")
    with pytest.raises(trimtab.VersionRegression):
        pool.publish("u-0", 0)
    epoch = pool.statistics().epoch
    assert epoch is not None
    pool.publish("u-0", 0, epoch=epoch + 1)
    assert pool.statistics().census["pending_version"] == 1
    assert pool.report_weights(pool.backends()[0], 0)
    pool.acquire().settle("completed")


def test_a_drain_past_its_deadline_fails_the_pool() -> None:
    """The blockers are named, the pool is failed for good, and what comes is told so."""
    pool = serving_pool()
    held = pool.acquire("s")
    pool.begin_update("u-2")
    with pytest.raises(trimtab.DrainTimeout, match=held.backend_id) as caught:
        pool.drain("u-2", timeout_s=0)
    assert not caught.value.retryable
    assert pool.state == "failed"
    with pytest.raises(trimtab.PoolFailed, match="u-2"):
        pool.acquire()
    held.settle("completed")
    assert pool.statistics().outstanding == 0


def test_a_drain_past_its_deadline_may_only_report() -> None:
    """With ``on_drain_timeout="report"`` the pool goes on draining, and the error says that asking again can help."""
    pool = Pool(on_drain_timeout="report")
    pool.add_backend("127.0.0.1:1")
    held = pool.acquire()
    pool.begin_update("u")
    with pytest.raises(trimtab.DrainTimeout) as caught:
        pool.drain("u", timeout_s=0)
    assert caught.value.retryable
    held.settle("completed")
    drained(pool, "u")


def test_an_ambiguous_end_fails_a_pool_that_promises_so() -> None:
    """``on_ambiguous="fail_pool"``: the first cause stays, later ones are counted, nothing reopens the pool."""
    pool = serving_pool()
    first, second = pool.acquire(), pool.acquire()
    first.settle("ambiguous")
    second.settle("ambiguous")
    statistics = pool.statistics()
    assert (statistics.state, statistics.later_failures) == ("failed", 1)
    assert first.id in (statistics.failure or "")
    with pytest.raises(trimtab.PoolFailed):
        pool.unfence("train", "pause")
    pool.fail("again")
    assert first.id in (pool.statistics().failure or "")


def test_closing_is_for_good() -> None:
    """A closed pool grants nothing, and what ends badly afterwards is no failure."""
    pool = serving_pool()
    held = pool.acquire()
    pool.close()
    held.settle("ambiguous")
    assert pool.state == "closed"
    with pytest.raises(trimtab.PoolClosed):
        pool.acquire()


def test_a_failed_update_fails_the_pool() -> None:
    """The reason is the controller's."""
    pool = serving_pool()
    pool.begin_update("u-2")
    pool.fail_update("u-2", "NCCL timeout on rank 3")
    assert "NCCL timeout on rank 3" in (pool.statistics().failure or "")


def test_a_repeated_key_is_the_same_request() -> None:
    """Same key and body: same lease. Another body: a conflict. Once settled: refused."""
    pool = serving_pool()
    sender = attach(pool)
    lease = pool.acquire("s", key=(sender, sender, 1))
    again = pool.acquire("s", key=(sender, sender, 1))
    assert (again.id, pool.statistics().outstanding) == (lease.id, 1)
    with pytest.raises(trimtab.IdempotencyConflict):
        pool.acquire("another", key=(sender, sender, 1))
    lease.settle("completed")
    again.settle("completed")
    with pytest.raises(trimtab.RequestSettled, match="completed"):
        pool.acquire("s", key=(sender, sender, 1))
    assert pool.statistics().tombstones == 1
    assert pool.heartbeat(sender, sender, [(1, 1)]).settled == [(1, 1)]
    assert pool.statistics().tombstones == 0
    with pytest.raises(trimtab.StaleRequest):
        pool.acquire("s", key=(sender, sender, 1))


def test_an_expected_version_that_is_gone_is_refused() -> None:
    """``expect_version`` never grants another version."""
    pool = serving_pool(version=3)
    pool.acquire(expect_version=3).settle("completed")
    with pytest.raises(trimtab.StaleRequest, match="version 2"):
        pool.acquire(expect_version=2)


def test_senders_come_and_go() -> None:
    """A late sender learns the version; one that holds leases cannot detach; sessions are its own."""
    pool = serving_pool(version=4)
    attached = pool.attach_sender("proxy/0", "p1", "train")
    assert (attached.weight_version, attached.already, attached.ttl_s) == (4, False, 120.0)
    assert pool.attach_sender("proxy/0", "p1", "train").already
    lease = pool.acquire("17:0-0", key=("proxy/0", "p1", 1))
    with pytest.raises(trimtab.InvalidTransition):
        pool.detach_sender("proxy/0", "p1")
    assert pool.close_session("17:0-0") == (False, 0)
    assert pool.close_sender_session("proxy/0", "17:0-0") == (True, 1)
    lease.settle("completed")
    (status,) = pool.statistics().senders
    assert (status.sender, status.incarnation, status.owner, status.held) == ("proxy/0", "p1", "train", 0)
    pool.detach_sender("proxy/0", "p1")
    with pytest.raises(trimtab.UnknownSender):
        pool.heartbeat("proxy/0", "p1")


def test_a_joining_backend_is_pending_until_it_runs_the_version() -> None:
    """A backend whose weights are not the published version gets nothing, and neither does a tainted one."""
    pool = serving_pool(version=4, backends=0)
    backend = pool.add_backend("127.0.0.1:1")
    with pytest.raises(trimtab.NoEligibleBackend, match="pending version"):
        pool.acquire()
    pool.report_weights(backend, 4)
    pool.acquire().settle("completed")
    pool.taint_backend(backend)
    assert (pool.statistics().backends[0].tainted, pool.statistics().census["tainted"]) == (True, 1)
    pool.report_weights(backend, 4)
    with pytest.raises(trimtab.NoEligibleBackend, match="tainted"):
        pool.acquire()
    pool.report_weights(backend, 4, reloaded=True)
    pool.acquire().settle("completed")
    assert pool.statistics().backends[0].weight_version == 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"on_ambiguous": "retry"},
        {"on_drain_timeout": "wait"},
        {"sender_ttl_s": 0.0},
        {"recovery": "forget"},
        {"unhealthy_budget_s": 0.0},
        {"on_unhealthy": "ignore"},
        {"ramp_s": 0.0},
        {"poison_quarantine_s": 0.0},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_bad_policies_are_refused(arguments: dict[str, object]) -> None:
    """A misspelt policy names the known ones."""
    with pytest.raises(trimtab.InvalidRequest, match=r"known are|above 0"):
        Pool(**arguments)  # type: ignore[arg-type]  # the point of the test
