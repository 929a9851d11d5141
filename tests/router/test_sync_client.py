"""``SyncRouterClient`` against a real router: the same leases, for threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import trimtab
from tests.router.conftest import FAST, KEY, RunningRouter
from tests.support.relay import Relay, lose_reply
from tests.support.waiting import wait_until
from trimtab import SyncRouterClient


def client(url: str) -> SyncRouterClient:
    """A client of the trainer's owner, quick to ask again."""
    return SyncRouterClient(url, sender="rollout/0", owner="train", key=KEY, retry=FAST)


def test_a_lease_from_acquire_to_settlement(router: RunningRouter) -> None:
    """The lease says where and with which weights; it is counted inside the block and settled at its end."""
    with client(router.url) as api:
        with api.lease("traj-17", wait=10) as lease:
            assert router.pool.statistics().outstanding == 1
            assert (lease.backend_id, lease.weight_version, lease.outcome) == ("e0", 1, None)
            lease.settle("completed", output_tokens=5)
        with api.lease("traj-17", exclude=["e0"]) as moved:
            assert (moved.backend_id, moved.reason) == ("e1", "repin:excluded")
        assert api.close_session("traj-17") == (True, 0)
    statistics = router.pool.statistics()
    assert (statistics.outstanding, statistics.output_tokens, statistics.senders) == (0, 5, [])


def test_an_exception_is_classified(router: RunningRouter) -> None:
    """No settlement and an exception: the lease ends as the exception says."""
    with client(router.url) as api:
        context = api.lease()
        with pytest.raises(KeyboardInterrupt), context:
            raise KeyboardInterrupt
        assert router.pool.statistics().outcomes["cancelled"] == 1


def test_a_context_is_entered_once(router: RunningRouter) -> None:
    """A context that is entered again would be a second execution under one number."""
    with client(router.url) as api:
        context = api.lease()
        with context:
            pass
        with pytest.raises(RuntimeError, match="once"), context:
            pass


def test_a_version_that_is_gone_is_refused(router: RunningRouter) -> None:
    """``expect_version`` never grants another version."""
    with client(router.url) as api:
        with api.lease(expect_version=1):
            pass
        with pytest.raises(trimtab.StaleRequest), api.lease(expect_version=2):
            pass


async def test_threads_wait_through_a_fence(router: RunningRouter) -> None:
    """Many threads wait at the router at once, on one client."""
    router.pool.attach_owner("train")
    router.pool.fence("train", "pause")
    with client(router.url) as api, ThreadPoolExecutor(8) as threads:

        def one(number: int) -> str:
            with api.lease(f"s{number}", wait=30) as lease:
                return lease.backend_id

        waiting = [threads.submit(one, number) for number in range(8)]
        await wait_until(lambda: router.pool.statistics().waiters == 8, "all wait")
        router.pool.unfence("train", "pause")
        backends = await asyncio.gather(*map(asyncio.wrap_future, waiting))
    assert sorted(backends) == ["e0"] * 4 + ["e1"] * 4
    assert router.pool.statistics().outstanding == 0


async def test_a_lost_reply_is_asked_for_again(router: RunningRouter, relay: Relay) -> None:
    """The same key gets the same lease, counted once."""

    def run() -> int:
        with client(relay.url) as api:
            relay.next("/leases", lose_reply)
            with api.lease("s"):
                return router.pool.statistics().outstanding

    assert await asyncio.to_thread(run) == 1
    assert router.pool.statistics().outstanding == 0


def test_a_settlement_that_the_router_refuses_is_an_error(router: RunningRouter) -> None:
    """The router gave the lease up meanwhile: whoever has a result is told not to use it."""
    with client(router.url) as api:
        context = api.lease()
        lease = context.__enter__()
        with pytest.raises(trimtab.PoolFailed, match="held 1 leases"):
            router.pool.attach_sender("rollout/0", "another process", "train")
        lease.settle("completed")
        with pytest.raises(trimtab.RouterRestarted, match="lost this sender"):
            context.__exit__(None, None, None)
