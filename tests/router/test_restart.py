"""Clients whose router restarts, or loses them, while they hold leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

import trimtab
from tests.router.conftest import FAST, KEY
from tests.support.waiting import wait_until
from trimtab import Pool, RouterClient, SyncRouterClient
from trimtab._core import DataPlane, Role
from trimtab.wire import RetryPolicy

OPTIONS: dict[str, Any] = {"await_version": True, "on_ambiguous": "fail_pool"}


class RestartingRouter:
    """A router on one port; each start of it has a new pool, as a new process has."""

    def __init__(self) -> None:
        self.port = 0
        self.starts = 0
        self.start()

    @property
    def url(self) -> str:
        """Where its lease API is, start after start."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, backends: int = 2, **options: Any) -> None:
        """Begins with nothing but its configuration: nothing is published yet."""
        self.pool = Pool("rollout/default", **{**OPTIONS, **options})
        for number in range(backends):
            self.add_backend(number)
        self.plane = DataPlane.start(
            roles=[Role("rollout", {"default": self.pool})],
            port=self.port,
            admin_key=KEY,
            worker_threads=1,
            probe_interval_s=3600.0,
        )
        self.port = self.plane.port
        self.starts += 1

    def add_backend(self, number: int) -> None:
        """Registers an engine that nobody contacts."""
        self.pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}")

    def restart(self, backends: int = 2, **options: Any) -> None:
        """The process is gone, and another one has its port."""
        self.stop()
        self.start(backends, **options)

    def stop(self) -> None:
        """The process is gone. What its pool counted is nobody's any more."""
        self.plane.shutdown(0.0)
        for sender in self.pool.statistics().senders:
            with suppress(trimtab.PoolFailed):
                self.pool.attach_sender(sender.sender, "nobody", sender.owner)

    def publish(self, version: int) -> None:
        """What a controller does once the engines run: the pool serves the trainer's senders."""
        self.pool.publish(f"start-{version}", version)
        self.pool.attach_owner("train", version)
        self.pool.ack("train", version)


@pytest.fixture
def restarting() -> Iterator[RestartingRouter]:
    """A router that serves version 1 and can be restarted."""
    router = RestartingRouter()
    router.publish(1)
    yield router
    router.plane.shutdown(0.0)


def client(url: str, **options: Any) -> RouterClient:
    """A client of the trainer's owner, quick to ask again."""
    return RouterClient(url, **{"sender": "rollout/0", "owner": "train", "key": KEY, "retry": FAST, **options})


async def hold(api: RouterClient, *meanwhile: Callable[[], object]) -> None:
    """One execution, during which something happens."""
    async with api.lease("s"):
        for happens in meanwhile:
            happens()


async def test_held_leases_are_adopted(restarting: RestartingRouter) -> None:
    """What is held goes on under the new start of the router, and is settled there, once and as it was said."""
    async with client(restarting.url) as api:
        async with api.lease("a") as first, api.lease("b") as second:
            granted = first.id
            restarting.restart()
            assert await api.close_session("nothing") == (False, 0)
            assert restarting.pool.statistics().outstanding == 2
            restarting.publish(1)
            first.settle("completed", output_tokens=7)
            second.settle("aborted")
        assert first.id == granted
        async with api.lease("a") as again:
            assert (again.backend_id, again.sticky) == (first.backend_id, True)
    statistics = restarting.pool.statistics()
    assert statistics.outcomes["completed"] == 2
    assert (statistics.outcomes["aborted"], statistics.output_tokens) == (1, 7)
    assert (statistics.outstanding, statistics.senders, statistics.state) == (0, [], "serving")


def test_held_leases_of_threads_are_adopted(restarting: RestartingRouter) -> None:
    """The same for the client of threads: many settle at once, and one of them makes the sender known again."""
    with SyncRouterClient(restarting.url, sender="r/0", owner="train", key=KEY, retry=FAST) as api:
        contexts = [api.lease(f"s{number}") for number in range(8)]
        for context in contexts:
            context.__enter__()
        restarting.restart()
        restarting.publish(1)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda context: context.__exit__(None, None, None), contexts))
        (sender,) = restarting.pool.statistics().senders
        assert sender.held == 0
    assert restarting.pool.statistics().outcomes["completed"] == 8
    assert restarting.pool.statistics().outstanding == 0


def settle(url: str, lease: str) -> int:
    """Settle a lease without saying of which start of the router it is; the status of the answer."""
    target = f"{url}/v1/router/pools/rollout/default/leases/{lease}/settle"
    body = {"outcome": "completed"}
    return httpx.post(target, json=body, headers={"authorization": f"Bearer {KEY}"}, trust_env=False).status_code


def test_a_settlement_of_another_start_settles_nothing(restarting: RestartingRouter) -> None:
    """Not every sender names the start it means: its late settlement ends no lease of the next one."""
    with SyncRouterClient(restarting.url, sender="r/0", owner="train", key=KEY, retry=FAST) as api:
        with api.lease("s") as lease:
            old = lease.id
        restarting.restart()
        restarting.publish(1)
        with api.lease("s") as lease:
            assert settle(restarting.url, old) == 404
            assert restarting.pool.statistics().outstanding == 1
            assert settle(restarting.url, lease.id) == 200
    assert restarting.pool.statistics().outcomes["completed"] == 1


async def test_numbers_go_on(restarting: RestartingRouter) -> None:
    """The new start of the router learns which numbers are settled; none is used twice, and none is left out."""
    async with client(restarting.url) as api:
        for _ in range(3):
            async with api.lease():
                pass
        async with api.lease():
            restarting.restart()
            restarting.publish(1)
            async with api.lease():
                pass
        async with api.lease():
            pass
        (sender,) = restarting.pool.statistics().senders
        assert sender.settled == [(1, 5)]


async def test_idle_sessions_keep_their_place(restarting: RestartingRouter) -> None:
    """A trajectory between two turns holds nothing; its engine still has its prefix, so its pin is presented too."""
    async with client(restarting.url) as api:
        async with api.lease("a"), api.lease("b") as placed:
            pass
        async with api.lease("closed"):
            pass
        await api.close_session("closed")
        restarting.restart()
        restarting.publish(1)
        async with api.lease("b") as again:
            assert (again.backend_id, again.sticky) == (placed.backend_id, True)
        assert restarting.pool.statistics().sessions == 2


async def test_a_batch_meets_another_start(restarting: RestartingRouter) -> None:
    """Acquires and settlements that go out together are each sent again to the new start."""
    async with client(restarting.url) as api:

        async def one(number: int) -> None:
            async with api.lease(f"s{number}"):
                if number == 0:
                    await asyncio.to_thread(restarting.restart)
                    restarting.publish(1)
                else:
                    await wait_until(lambda: restarting.starts == 2, "the router is back")

        await asyncio.gather(*(one(number) for number in range(16)))
    statistics = restarting.pool.statistics()
    assert (statistics.outcomes["completed"], statistics.outstanding) == (16, 0)


async def test_parked_acquires_wait_on(restarting: RestartingRouter) -> None:
    """Whoever waited when the router went down waits at the new one, and is served by its first version."""
    restarting.pool.fence("train", "pause")
    async with client(restarting.url) as api:
        versions: list[int | None] = []

        async def one(number: int) -> None:
            async with api.lease(f"s{number}", wait=60) as lease:
                versions.append(lease.weight_version)

        waiting = [asyncio.create_task(one(number)) for number in range(4)]
        await wait_until(lambda: restarting.pool.statistics().waiters == 4, "all wait")
        await asyncio.to_thread(restarting.restart)
        await wait_until(lambda: restarting.pool.statistics().waiters == 4, "all wait again")
        restarting.publish(7)
        await asyncio.gather(*waiting)
        assert versions == [7] * 4
    assert restarting.pool.statistics().outstanding == 0


async def test_nothing_is_granted_before_the_first_version(restarting: RestartingRouter) -> None:
    """A lease is adopted before the controller is back, and gives nobody a new one."""
    async with client(restarting.url) as api, api.lease():
        restarting.restart()
        with pytest.raises(trimtab.NotServing):
            await hold(api)
        assert restarting.pool.statistics().outstanding == 1


async def test_another_version_is_no_place_for_a_lease(restarting: RestartingRouter) -> None:
    """The weights changed before the sender was back: its result must not be used, and the pool says so too."""
    async with client(restarting.url) as api:
        with pytest.raises(trimtab.RouterRestarted, match=r"did not adopt it \(unknown_lease.*must not be used"):
            await hold(api, restarting.restart, lambda: restarting.publish(2))
        with pytest.raises(trimtab.PoolFailed, match="presented after a restart"):
            await hold(api)
    assert "presented after a restart" in str(restarting.pool.statistics().failure)


async def test_a_pool_that_settles_goes_on(restarting: RestartingRouter) -> None:
    """With ``on_ambiguous = settle`` the one result is lost, its caller is told, and the others go on."""
    async with client(restarting.url) as api:
        with pytest.raises(trimtab.RouterRestarted, match="must not be used"):
            await hold(api, lambda: restarting.restart(on_ambiguous="settle"), lambda: restarting.publish(2))
        async with api.lease("s") as lease:
            assert lease.weight_version == 2
        assert restarting.pool.statistics().outcomes["ambiguous"] == 1


async def test_areal_61g_recovery_by_restart(restarting: RestartingRouter) -> None:
    """6.1 (g): with ``recovery = restart`` nothing is adopted, and a restart of the router is the end of the pool."""
    async with client(restarting.url) as api:
        with pytest.raises(trimtab.RouterRestarted, match="must not be used"):
            await hold(api, lambda: restarting.restart(recovery="restart"))
        with pytest.raises(trimtab.PoolFailed):
            await hold(api)


async def test_a_pool_that_failed_meanwhile(restarting: RestartingRouter) -> None:
    """Another sender's loss came first: this one's leases are lost with the pool."""
    async with client(restarting.url) as api:
        with pytest.raises(trimtab.RouterRestarted, match="its pool is over"):
            await hold(api, restarting.restart, lambda: restarting.pool.fail("another one was lost"))


async def test_the_exception_of_the_caller_comes_first(restarting: RestartingRouter) -> None:
    """A lost lease does not hide why the caller's block ended."""

    def reset() -> None:
        raise ConnectionResetError

    async with client(restarting.url) as api:
        with pytest.raises(ConnectionResetError):
            await hold(api, lambda: restarting.restart(recovery="restart"), reset)
        assert restarting.pool.state == "failed"


async def test_backends_are_waited_for(restarting: RestartingRouter) -> None:
    """Engines that a controller registers are announced again after the senders came: their leases are not lost."""
    async with client(restarting.url) as api, api.lease("a"), api.lease("b") as second:
        assert second.backend_id == "e1"
        restarting.restart(backends=1)
        closing = asyncio.create_task(api.close_session("nothing"))
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done
        assert restarting.pool.statistics().senders == []
        restarting.add_backend(1)
        await closing
        assert restarting.pool.statistics().outstanding == 2
    assert restarting.pool.statistics().outcomes["completed"] == 2


async def test_backends_are_not_waited_for_for_ever(restarting: RestartingRouter) -> None:
    """An engine that does not come back within the retry horizon takes its leases with it."""
    retry = RetryPolicy(horizon_s=0.2, first_delay_s=0.01)
    async with client(restarting.url, retry=retry) as api:
        with pytest.raises(trimtab.RouterRestarted, match="unknown_backend"):
            await hold(api, lambda: restarting.restart(backends=0, on_ambiguous="settle"))


async def test_a_sender_that_was_silent_for_too_long(restarting: RestartingRouter) -> None:
    """The same router has lost the sender: what it held is ambiguous there, is not presented again; work goes on."""
    restarting.restart(on_ambiguous="settle")
    restarting.publish(1)

    def lose() -> None:
        # As its TTL would do; another process that came and went is quicker.
        restarting.pool.attach_sender("rollout/0", "another", "train")
        restarting.pool.detach_sender("rollout/0", "another")

    async with client(restarting.url) as api:
        (sender,) = restarting.pool.statistics().senders
        with pytest.raises(trimtab.RouterRestarted, match=r"silent for too long.*must not be used"):
            await hold(api, lose)
        await hold(api)
        (again,) = restarting.pool.statistics().senders
        assert (again.incarnation, again.held) == (sender.incarnation, 0)
    outcomes = restarting.pool.statistics().outcomes
    assert (outcomes["ambiguous"], outcomes["completed"]) == (1, 1)


async def test_two_clients_of_one_sender(restarting: RestartingRouter) -> None:
    """Each presents what it holds, and neither takes the other's for lost."""
    async with client(restarting.url) as one, client(restarting.url) as two:
        async with one.lease("a"), two.lease("b"):
            restarting.restart()
            restarting.publish(1)
        (sender,) = restarting.pool.statistics().senders
        assert sender.held == 0
    statistics = restarting.pool.statistics()
    assert (statistics.outcomes["completed"], statistics.state, statistics.senders) == (2, "serving", [])


async def test_a_settlement_left_behind_finds_the_new_start(restarting: RestartingRouter) -> None:
    """The router was away when the execution ended: the thread behind settles it at the next start.

    Its caller cannot know that yet: had the router lost the lease, other weights could have been published under it.
    """
    retry = RetryPolicy(horizon_s=0.1, first_delay_s=0.01, max_delay_s=0.05)
    async with client(restarting.url, retry=retry) as api:
        context = api.lease("s")
        lease = await context.__aenter__()
        lease.settle("completed", output_tokens=3)
        await asyncio.to_thread(restarting.stop)
        with pytest.raises(trimtab.RouterUnreachable, match="must not be used"):
            await context.__aexit__(None, None, None)
        restarting.start()
        restarting.publish(1)
        await wait_until(lambda: restarting.pool.statistics().output_tokens == 3, "it arrives")
    assert restarting.pool.statistics().outstanding == 0
