"""In-process acquires that wait: by a future of the event loop, or by an event of a thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import trimtab
from tests.support.waiting import wait_until
from trimtab import ParkedAcquire, Pool, Router

LONG = 30.0


@pytest.fixture
def pool() -> Pool:
    """A pool with room for one execution, so that a held lease makes others wait."""
    pool = Pool(max_concurrent=1)
    pool.add_backend("127.0.0.1:1")
    return pool


async def until_waiting(pool: Pool, count: int) -> None:
    """Returns when ``count`` acquires wait."""
    await wait_until(lambda: pool.statistics().waiters == count, f"{count} acquires wait")


async def test_a_coroutine_waits_and_the_loop_goes_on(pool: Pool) -> None:
    """The lease comes when there is room; meanwhile other coroutines run."""
    router = Router(pool)
    with router.lease("a"):

        async def one() -> str:
            async with router.lease("b", wait=LONG) as lease:
                return lease.backend_id

        waiting = asyncio.create_task(one())
        await until_waiting(pool, 1)
        assert pool.statistics().parked["at_capacity"] == 1
    assert await waiting == "127.0.0.1:1"
    assert (pool.statistics().waiters, pool.statistics().outstanding) == (0, 0)


async def test_a_fence_is_waited_through_in_order() -> None:
    """Whoever came first is served first when the fence is lifted, and nobody before."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with Router(pool, sender="rollout/0", owner="train") as router:
        pool.fence("train", "pause")
        order: list[int] = []

        async def one(number: int) -> None:
            async with router.lease(wait=LONG):
                order.append(number)

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(one(number)))
            await until_waiting(pool, number + 1)
        assert order == []
        pool.unfence("train", "pause")
        await asyncio.gather(*tasks)
        assert order == list(range(20))
    assert pool.statistics().senders == []


async def test_time_is_up(pool: Pool) -> None:
    """After ``wait`` seconds it is the reason of the wait, and nothing is left in the queue."""
    router = Router(pool)
    with router.lease():
        with pytest.raises(trimtab.AtCapacity):
            async with router.lease(wait=0.01):
                pass
        with pytest.raises(trimtab.AtCapacity), router.lease(wait=0.01):
            pass
    assert (pool.statistics().waiters, pool.statistics().outstanding) == (0, 0)


async def test_a_cancelled_wait_leaves_the_queue(pool: Pool) -> None:
    """Nobody is granted a lease for a coroutine that went away."""
    router = Router(pool)
    with router.lease():

        async def one() -> None:
            async with router.lease(wait=LONG):
                pass

        waiting = asyncio.create_task(one())
        await until_waiting(pool, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pool.statistics().waiters == 0
    assert pool.statistics().outstanding == 0


async def test_a_grant_that_races_with_a_cancellation_is_given_back(pool: Pool) -> None:
    """The lease was granted, but its coroutine is cancelled before it could see it: settled ``not_sent``."""
    router = Router(pool)
    held = pool.acquire()

    async def one() -> None:
        async with router.lease(wait=LONG):
            pass

    waiting = asyncio.create_task(one())
    await until_waiting(pool, 1)
    held.settle("completed")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pool.statistics().outstanding == 0
    assert pool.statistics().outcomes["not_sent"] == 1


async def test_a_thread_waits(pool: Pool) -> None:
    """The plain context manager blocks its thread only."""
    router = Router(pool)
    with ThreadPoolExecutor(1) as threads:
        with router.lease("a"):

            def one() -> str:
                with router.lease("b", wait=LONG) as lease:
                    return lease.backend_id

            waiting = threads.submit(one)
            await until_waiting(pool, 1)
        assert await asyncio.wrap_future(waiting) == "127.0.0.1:1"


@pytest.mark.parametrize(("end", "error"), [("fail", trimtab.PoolFailed), ("close", trimtab.PoolClosed)])
async def test_the_end_of_the_pool_ends_every_wait(pool: Pool, end: str, error: type[Exception]) -> None:
    """Waiting in vain ends at once, not at its deadline."""
    router = Router(pool)
    with router.lease():

        async def one() -> None:
            async with router.lease(wait=LONG):
                pass

        waiting = asyncio.create_task(one())
        await until_waiting(pool, 1)
        if end == "fail":
            pool.fail("enough")
        else:
            pool.close()
        with pytest.raises(error):
            await waiting


async def test_a_thousand_wait_and_all_are_served() -> None:
    """An update of weights: a thousand coroutines wait for it, and each gets a lease of the new version."""
    pool = Pool(await_version=True)
    for number in range(8):
        pool.add_backend(f"127.0.0.1:{20_000 + number}")
    router = Router(pool)
    versions: list[int | None] = []

    async def one(number: int) -> None:
        async with router.lease(f"s{number}", wait=LONG) as lease:
            versions.append(lease.weight_version)

    tasks = [asyncio.create_task(one(number)) for number in range(1_000)]
    await until_waiting(pool, 1_000)
    pool.publish("u", 9)
    await asyncio.gather(*tasks)
    assert versions == [9] * 1_000
    assert pool.statistics().outstanding == 0


def test_a_parked_acquire_by_hand(pool: Pool) -> None:
    """``poll`` calls back once, from another thread, when there is an answer; the answer is given once."""
    held = pool.acquire()
    parked = pool.acquire_or_park("s", wait_s=LONG)
    assert isinstance(parked, ParkedAcquire)
    assert parked.reason == "at_capacity"
    woken = threading.Event()
    assert parked.poll(woken.set) is None
    held.settle("completed")
    assert woken.wait(10)
    lease = parked.poll(woken.set)
    assert lease is not None
    with pytest.raises(trimtab.InvalidRequest, match="over"):
        parked.give_up()
    lease.settle("completed")


def test_a_wait_that_is_dropped_is_abandoned(pool: Pool) -> None:
    """Losing a parked acquire leaves nothing in the queue."""
    held = pool.acquire()
    parked: object = pool.acquire_or_park(wait_s=LONG)
    assert pool.statistics().waiters == 1
    del parked
    gc.collect()
    assert pool.statistics().waiters == 0
    held.settle("completed")


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
def test_bad_waits_are_refused(pool: Pool, wait: float) -> None:
    """A wait has an end: nothing waits without a deadline."""
    with pytest.raises(trimtab.InvalidRequest, match="wait"), Router(pool).lease(wait=wait):
        pass


def test_sender_and_owner_belong_together(pool: Pool) -> None:
    """A sender without an owner could not be fenced."""
    with pytest.raises(trimtab.InvalidRequest, match="owner"):
        Router(pool, sender="rollout/0")


def test_two_routers_of_one_sender_share_its_numbers() -> None:
    """No number is used twice in a process; the sender is detached with the last router."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with Router(pool, sender="s", owner="o") as one:
        with Router(pool, sender="s", owner="o") as two, one.lease() as first, two.lease() as second:
            assert first.id != second.id
        (status,) = pool.statistics().senders
        assert (status.held, status.tombstones, status.settled) == (0, 0, [(1, 2)])
    assert pool.statistics().senders == []


def test_a_sender_of_an_ended_wait_leaves_no_gap() -> None:
    """Numbers of acquires that failed are settled too: the pool remembers one interval."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with Router(pool, sender="s", owner="o") as router:
        pool.fence("o", "pause")
        for _ in range(3):
            with pytest.raises(trimtab.Fenced), router.lease():
                pass
        pool.unfence("o", "pause")
        with router.lease():
            pass
        (status,) = pool.statistics().senders
        assert status.settled == [(1, 4)]


def test_sessions_of_a_sender_are_its_own() -> None:
    """The same key of two senders is two sessions; each closes its own."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with Router(pool, sender="a", owner="o") as one, Router(pool, sender="b", owner="o") as two:
        for router in (one, two):
            with router.lease("17:0-0"):
                pass
        assert pool.statistics().sessions == 2
        assert one.close_session("17:0-0") == (True, 0)
        assert pool.statistics().sessions == 1


def test_an_exception_is_classified_at_the_exit() -> None:
    """What the exception says about the execution is how the lease ends."""
    router = Router.from_engines(["127.0.0.1:1"])
    context = router.lease()
    with pytest.raises(ConnectionRefusedError), context as lease:
        raise ConnectionRefusedError
    assert lease.outcome == "not_sent"


def test_a_lease_that_the_pool_gave_up_is_no_success() -> None:
    """Another process came back under the sender's name: whoever has a result is told not to use it."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with Router(pool, sender="s", owner="o") as router:
        context = router.lease()
        lease = context.__enter__()
        pool.attach_sender("s", "another process", "o")
        with pytest.raises((trimtab.OutcomeConflict, trimtab.UnknownLease)):
            context.__exit__(None, None, None)
        assert lease.outcome == "ambiguous"
    pool.detach_sender("s", "another process")
    assert pool.statistics().outstanding == 0
