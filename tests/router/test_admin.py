"""``RouterAdmin`` against a real router: a controller drives an update."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import trimtab
from tests.router.conftest import FAST, KEY, RunningRouter
from tests.support.relay import Relay, lose_reply
from tests.support.waiting import wait_until
from trimtab import RouterAdmin, RouterClient, SyncRouterClient


@pytest.fixture
def admin(router: RunningRouter) -> Iterator[RouterAdmin]:
    """The controller's side."""
    with RouterAdmin(router.url, key=KEY, retry=FAST) as admin:
        admin.attach_owner("train")
        yield admin


async def test_a_training_step(router: RunningRouter, admin: RouterAdmin) -> None:
    """The order of an update: what runs finishes on the old version, what waits starts on the new one."""
    async with RouterClient(router.url, sender="rollout/0", owner="train", key=KEY, retry=FAST) as api:
        release = asyncio.Event()
        versions: list[int | None] = []

        async def one(*, hold: bool) -> None:
            async with api.lease("traj", wait=30) as lease:
                versions.append(lease.weight_version)
                if hold:
                    await release.wait()

        running = asyncio.create_task(one(hold=True))
        await wait_until(lambda: versions == [1], "the first execution runs")
        assert admin.fence("train", "sender_pause")["fences"] == ["sender_pause"]
        assert admin.begin_update("u-2", to=2)["phase"] == "quiescing"
        waiting = asyncio.create_task(one(hold=False))
        await wait_until(lambda: router.pool.statistics().waiters == 1, "the second waits")
        draining = asyncio.create_task(asyncio.to_thread(admin.drain, "u-2", timeout=30))
        release.set()
        assert (await draining)["phase"] in {"drained", "updating"}
        await running
        await asyncio.to_thread(admin.end_server_pause, "u-2")
        assert (await asyncio.to_thread(admin.publish, "u-2", 2))["phase"] == "published"
        await asyncio.to_thread(admin.ack, "train", 2)
        assert router.pool.statistics().waiters == 1
        assert (await asyncio.to_thread(admin.unfence, "train", "sender_pause"))["fences"] == []
        await waiting
        assert versions == [1, 2]


def test_a_drain_that_does_not_end(router: RunningRouter, admin: RouterAdmin) -> None:
    """The deadline is the router's; the error names what is in the way."""
    with (
        SyncRouterClient(router.url, sender="rollout/0", owner="train", key=KEY, retry=FAST) as api,
        api.lease("traj") as lease,
    ):
        admin.begin_update("u-2")
        with pytest.raises(trimtab.DrainTimeout, match=lease.id) as caught:
            admin.drain("u-2", timeout=0.05)
        assert not caught.value.retryable
        assert "blockers" in caught.value.detail
        assert admin.status()["state"] == "failed"
        with pytest.raises(trimtab.PoolFailed):
            admin.publish("u-2", 2)


async def test_lost_replies_have_one_effect(router: RunningRouter, relay: Relay) -> None:
    """Every reply of an update is lost once: the controller sees one update, and so does the pool."""

    def drive() -> None:
        with RouterAdmin(relay.url, key=KEY, retry=FAST) as admin:
            admin.attach_owner("train")
            for path in ("/fence", "/updates", "/drain", "/resume", "/publish", "/ack", "/unfence"):
                relay.next(path, lose_reply)
            admin.fence("train", "pause")
            admin.begin_update("u-2", to=2)
            admin.drain("u-2", timeout=10)
            admin.end_server_pause("u-2")
            admin.publish("u-2", 2)
            admin.ack("train", 2)
            admin.unfence("train", "pause")

    await asyncio.to_thread(drive)
    statistics = router.pool.statistics()
    assert (statistics.state, statistics.weight_version) == ("serving", 2)
    assert [update.id for update in statistics.last_updates] == ["u-1", "u-2"]
    assert statistics.owners[1].fences == []


def test_backends_are_registered_together_or_not_at_all(router: RunningRouter, admin: RouterAdmin) -> None:
    """A list with one bad address changes nothing."""
    good = {"address": "http://127.0.0.1:7/", "capacity": 2, "id": "e7", "weight_version": 1}
    with pytest.raises(trimtab.InvalidAddress):
        admin.add_backends([good, {"address": "nowhere", "capacity": 1}])
    assert len(router.pool.backends()) == 2
    (added,) = admin.add_backends([good])
    assert (added["id"], added["authority"]) == ("e7", "127.0.0.1:7")
    with pytest.raises(trimtab.IdempotencyConflict):
        admin.add_backends([{**good, "capacity": 3}])
    assert admin.add_backends([{**good, "capacity": 3}], replace=True)[0]["capacity"] == 3


async def test_a_backend_leaves_when_it_is_idle(router: RunningRouter, admin: RouterAdmin) -> None:
    """Removal waits for what runs; a busy backend is an error at the end of the time."""
    held = router.pool.acquire()
    with pytest.raises(trimtab.BackendBusy):
        await asyncio.to_thread(admin.remove_backend, held.backend_id)
    with ThreadPoolExecutor(1) as threads:
        removing = threads.submit(admin.remove_backend, held.backend_id, timeout=30)
        held.settle("completed")
        assert (await asyncio.wrap_future(removing))["removed"]
    assert held.backend not in router.pool.backends()
    with pytest.raises(trimtab.UnknownBackend):
        await asyncio.to_thread(admin.remove_backend, "nobody")


def test_an_offload_is_cancelled(admin: RouterAdmin) -> None:
    """An update of kind ``offload`` ends with the version it began with."""
    admin.begin_update("nap", kind="offload")
    admin.drain("nap", timeout=10)
    assert admin.cancel_update("nap")["phase"] == "cancelled"
    assert admin.status()["version"] == 1


def test_a_failed_update_is_the_end_of_the_pool(admin: RouterAdmin) -> None:
    """The reason is kept, and a second cause does not replace it."""
    admin.begin_update("u-2")
    admin.fail_update("u-2", "NCCL timeout")
    admin.fail_pool("and more")
    (pool,) = admin.pools()
    assert pool["state"] == "failed"
    assert "NCCL timeout" in str(pool["failure"])


def test_closing_a_pool(router: RunningRouter, admin: RouterAdmin) -> None:
    """A closed pool is closed for good."""
    admin.close_pool("the run is over")
    assert router.pool.state == "closed"
    with pytest.raises(trimtab.PoolClosed):
        admin.begin_update("u-2")


async def test_watching_for_a_change(router: RunningRouter, admin: RouterAdmin) -> None:
    """``since`` waits for the next change; without one the answer comes when ``wait`` is over."""
    before = admin.status()["revision"]
    # The first probes of its backends, at which nobody listens, are changes as well.
    while (now := admin.status(since=before, wait=0.05)["revision"]) != before:
        before = now
    watching = asyncio.create_task(asyncio.to_thread(admin.status, since=before, wait=30))
    router.pool.fence("train", "pause")
    assert (await watching)["revision"] > before


def test_a_restarted_router_is_noticed(router: RunningRouter, admin: RouterAdmin) -> None:
    """A controller that fenced must not go on with a router that knows nothing of it."""
    port = router.plane.port
    router.plane.shutdown(0.0)
    role = trimtab._core.Role("rollout", {"default": router.pool})
    again = trimtab._core.DataPlane.start(
        roles=[role], port=port, admin_key=KEY, worker_threads=1, probe_interval_s=3600.0
    )
    try:
        with pytest.raises(trimtab.RouterRestarted):
            admin.fence("train", "pause")
    finally:
        again.shutdown(0.0)


@pytest.mark.parametrize(
    ("call", "argument"), [("drain", {"timeout": -1.0}), ("status", {"wait": 31.0})], ids=["drain", "status"]
)
def test_bad_times_are_refused(admin: RouterAdmin, call: str, argument: dict[str, float]) -> None:
    """A time out of its range names itself."""
    names = ["u"] if call == "drain" else []
    with pytest.raises(trimtab.InvalidRequest, match=next(iter(argument))):
        getattr(admin, call)(*names, **argument)


def test_the_key_shows_nowhere(admin: RouterAdmin) -> None:
    """Neither a text of the client nor one of its parts has the key."""
    assert KEY not in repr(admin) + repr(vars(admin))
