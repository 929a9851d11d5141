"""The in-process router and its leases, through the Python binding."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

import trimtab
from trimtab import Lease, Outcome, Pool, Router


def engines(count: int) -> list[str]:
    """Addresses of engines that nobody contacts."""
    return [f"http://127.0.0.1:{20_000 + number}" for number in range(count)]


def outstanding(pool: Pool) -> list[int]:
    """Outstanding executions per backend, in registration order."""
    return [backend.outstanding for backend in pool.statistics().backends]


def test_lease_is_a_plain_context_manager() -> None:
    """A lease is counted inside the block and settled ``completed`` at its end."""
    router = Router.from_engines(engines(2))
    with router.lease(session="s") as lease:
        assert lease.url.startswith("http://127.0.0.1:2000")
        assert (lease.session, lease.reason, lease.sticky, lease.outcome) == ("s", "new", False, None)
        assert router.statistics().outstanding == 1
    assert lease.outcome == "completed"
    assert router.statistics().outstanding == 0


async def test_lease_is_an_async_context_manager() -> None:
    """The async form gives the same lease, and a session stays where it is."""
    router = Router.from_engines(engines(4))
    async with router.lease(session="s") as first:
        pass
    async with router.lease(session="s") as second:
        second.settle("completed", output_tokens=7)
    assert second.backend == first.backend
    assert (second.reason, second.sticky) == ("sticky", True)
    assert router.statistics().output_tokens == 7


@pytest.mark.parametrize(
    ("exc", "outcome"),
    [(asyncio.CancelledError(), "cancelled"), (KeyboardInterrupt(), "cancelled"), (OSError("reset"), "ambiguous")],
)
def test_exit_by_exception_settles_what_is_known(exc: BaseException, outcome: Outcome) -> None:
    """A cancellation is ``cancelled``; an error leaves it open whether the engine ran: ``ambiguous``."""
    router = Router.from_engines(engines(1))
    context = router.lease()
    with pytest.raises(type(exc)), context as lease:
        raise exc
    assert lease.outcome == outcome
    assert router.statistics().outcomes[outcome] == 1
    assert router.statistics().outstanding == 0


def test_errors_of_the_caller_never_take_an_engine_out() -> None:
    """A bug in the caller's own code says nothing about the engine's health."""
    router = Router.from_engines(engines(1))
    for _ in range(10):
        with pytest.raises(KeyError), router.lease("s"):
            raise KeyError("meta_info")
    (backend,) = router.statistics().backends
    assert (backend.health, backend.failures, backend.outcomes["ambiguous"]) == ("up", 0, 10)


def test_connection_errors_count_against_the_engine() -> None:
    """Three broken connections in a row take it out."""
    router = Router.from_engines(engines(1))
    for _ in range(3):
        with pytest.raises(ConnectionResetError), router.lease("s"):
            raise ConnectionResetError
    assert router.statistics().backends[0].health == "down"
    with pytest.raises(trimtab.NoEligibleBackend, match="1 down"), router.lease("s"):
        pass


def test_an_abandoned_lease_is_ambiguous_once() -> None:
    """Abandoning is what dropping does; on a settled lease it changes nothing."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    lease, settled = pool.acquire(), pool.acquire()
    settled.settle("completed")
    for held in (lease, settled):
        held.abandon()
        held.abandon()
    assert (lease.outcome, settled.outcome) == ("ambiguous", "completed")
    assert (pool.statistics().outstanding, pool.statistics().outcomes["ambiguous"]) == (0, 1)


def test_settling_twice_is_an_error_and_changes_nothing() -> None:
    """A lease is settled exactly once."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    lease = pool.acquire("s")
    lease.settle("rejected")
    with pytest.raises(trimtab.UnknownLease):
        lease.settle("completed")
    assert lease.outcome == "rejected"
    assert pool.statistics().outcomes["completed"] == 0


def test_a_lease_that_is_dropped_is_ambiguous() -> None:
    """Losing a lease never leaks a count and never claims to know what happened."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    lease: Lease | None = pool.acquire("s")
    assert lease is not None
    assert pool.statistics().outstanding == 1
    del lease
    gc.collect()
    assert pool.statistics().outstanding == 0
    assert pool.statistics().outcomes["ambiguous"] == 1


def test_unknown_outcome_is_refused() -> None:
    """A misspelt outcome names the known ones and leaves the lease open."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    lease = pool.acquire()
    with pytest.raises(trimtab.InvalidRequest, match="not_sent"):
        lease.settle("complete")  # type: ignore[arg-type]
    assert lease.outcome is None
    lease.settle("completed")


def test_b29_sequential_ties_spread_evenly() -> None:
    """B29: 200 executions one after the other give every one of 4 equal engines 50."""
    pool = Router.from_engines(engines(4)).pool
    for _ in range(200):
        pool.acquire().settle("completed")
    assert [backend.picks for backend in pool.statistics().backends] == [50, 50, 50, 50]


def test_b29_new_sessions_that_never_overlap_spread_evenly() -> None:
    """B29: 40 new sessions whose first turns never overlap land 10 per engine."""
    pool = Router.from_engines(engines(4)).pool
    for number in range(40):
        pool.acquire(f"s{number}").settle("completed")
    assert [backend.sessions for backend in pool.statistics().backends] == [10, 10, 10, 10]


def test_b30_concurrent_acquires_never_pile_up() -> None:
    """B30: 1,000 acquires from 8 threads on 8 equal engines differ by at most one."""
    pool = Router.from_engines(engines(8)).pool
    with ThreadPoolExecutor(8) as threads:
        leases = list(threads.map(lambda number: pool.acquire(f"s{number}"), range(1_000)))
    counts = outstanding(pool)
    assert sum(counts) == 1_000
    assert max(counts) - min(counts) <= 1
    for lease in leases:
        lease.settle("completed")
    assert outstanding(pool) == [0] * 8


def test_b83_capacities_are_followed() -> None:
    """B83: capacities 8 and 2 share 1,000 concurrent executions 800 to 200."""
    pool = Router.from_engines({"127.0.0.1:1": 8, "127.0.0.1:2": 2}).pool
    leases = [pool.acquire(f"s{number}") for number in range(1_000)]
    big, small = outstanding(pool)
    assert abs(big - 800) <= 2
    assert abs(small - 200) <= 2
    for lease in leases:
        lease.settle("completed")


def test_b83_loads_are_compared_exactly() -> None:
    """B83: with 3/8 against 1/2 the next execution goes where (outstanding + 1) / capacity is lower."""
    pool = Pool()
    big = pool.add_backend("127.0.0.1:1", 8)
    small = pool.add_backend("127.0.0.1:2", 2)
    held = [pool.acquire(exclude=[small]) for _ in range(3)] + [pool.acquire(exclude=[big])]
    expected = big if Fraction(4, 8) < Fraction(2, 2) else small
    held.append(pool.acquire())
    assert held[-1].backend == expected
    for lease in held:
        lease.settle("completed")


@pytest.mark.parametrize("capacity", [0, -1, float("nan"), float("inf"), 1e-9])
def test_b83_bad_capacity_is_refused(capacity: float) -> None:
    """B83: a capacity that is not finite and positive is refused at registration, and nothing is registered."""
    pool = Pool()
    with pytest.raises(trimtab.InvalidCapacity, match="finite number"):
        pool.add_backend("127.0.0.1:1", capacity)
    assert pool.backends() == []


def test_b83_capacity_defaults_to_one() -> None:
    """B83: a missing capacity is 1.0."""
    assert Pool().add_backend("127.0.0.1:1").capacity == 1.0


def test_b25_a_removed_engine_that_returns_starts_at_zero() -> None:
    """B25: leases on the old incarnation settle there and never touch the new one."""
    pool = Pool()
    old = pool.add_backend("127.0.0.1:1")
    held = [pool.acquire() for _ in range(3)]
    assert pool.remove_backend(old.id) == 3
    new = pool.add_backend("http://127.0.0.1:1/")
    assert (new.id, new == old) == (old.id, False)
    assert new.generation > old.generation
    fresh = [pool.acquire() for _ in range(2)]
    for lease in held:
        lease.settle("completed")
    assert outstanding(pool) == [2]
    for lease in fresh:
        lease.settle("completed")
    assert pool.statistics().outstanding == 0


def test_b13_session_moves_when_its_engine_drains_and_stays_there() -> None:
    """B13: stickiness is checked after eligibility; the reason of the move is counted."""
    pool = Router.from_engines(engines(2)).pool
    first = pool.acquire("s")
    first.settle("completed")
    assert pool.drain_backend(first.backend_id) == 0
    second = pool.acquire("s")
    second.settle("completed")
    assert second.backend != first.backend
    assert second.reason == "repin:draining"
    pool.remove_backend(first.backend_id)
    pool.add_backend(first.url)
    third = pool.acquire("s")
    third.settle("completed")
    assert third.backend == second.backend
    assert pool.statistics().picks["repin:draining"] == 1


def test_a_cancelled_drain_brings_the_same_engine_back() -> None:
    """``resume_backend`` ends a drain without a new generation; an engine that is being retired leaves all the same."""
    pool = Router.from_engines(engines(1)).pool
    running = pool.acquire("s")
    pool.drain_backend(running.backend_id)
    with pytest.raises(trimtab.NoEligibleBackend):
        pool.acquire("s")
    pool.resume_backend(running.backend_id)
    again = pool.acquire("s")
    assert (again.backend.generation, again.reason) == (running.backend.generation, "sticky")
    again.settle("completed")
    with pytest.raises(trimtab.UnknownBackend):
        pool.resume_backend("nobody")
    assert not pool.retire_backend(running.backend)
    with pytest.raises(trimtab.InvalidTransition, match="is being retired"):
        pool.resume_backend(running.backend_id)
    running.settle("completed")
    assert pool.retire_backend(running.backend)


def test_no_backend_counts_why() -> None:
    """Without an eligible backend the error is retryable and counts the causes."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1", proven=False)
    draining = pool.add_backend("127.0.0.1:2")
    pool.drain_backend(draining.id)
    with pytest.raises(trimtab.NoEligibleBackend, match="2 registered, 1 not reached yet, 1 draining") as caught:
        pool.acquire()
    assert caught.value.retryable
    assert caught.value.code == "no_eligible_backend"


def test_max_concurrent_refuses_more() -> None:
    """``max_concurrent`` bounds the executions outstanding; a settled one makes room."""
    pool = Pool(max_concurrent=1)
    pool.add_backend("127.0.0.1:1")
    held = pool.acquire()
    with pytest.raises(trimtab.AtCapacity):
        pool.acquire()
    held.settle("completed")
    pool.acquire().settle("completed")


@pytest.mark.parametrize("number", [0, -1, 2**32])
@pytest.mark.parametrize("name", ["session_cap", "max_concurrent"])
def test_impossible_counts_are_refused(name: str, number: int) -> None:
    """A count is at least 1; the message names it."""
    with pytest.raises(trimtab.InvalidRequest, match=f"{name} is {number}: it must be a whole number from 1"):
        Pool(**{name: number})  # type: ignore[arg-type]


def test_an_engine_is_listed_once() -> None:
    """Two spellings of one address are a mistake, and one address is no list."""
    with pytest.raises(trimtab.InvalidRequest, match="are the same engine"):
        Router.from_engines(["http://127.0.0.1:1/", "127.0.0.1:1"])
    with pytest.raises(trimtab.InvalidRequest, match="give a list"):
        Router.from_engines("127.0.0.1:1")


@pytest.mark.parametrize("session", ["", "x" * 257])
def test_bad_session_key_is_refused(session: str) -> None:
    """A session key has 1 to 256 bytes."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1")
    with pytest.raises(trimtab.InvalidRequest, match="256"):
        pool.acquire(session)


def test_close_session_says_what_was_open() -> None:
    """Closing forgets the pin; open leases stay valid, and the key may start anew."""
    router = Router.from_engines(engines(1))
    with router.lease(session="s"):
        assert router.close_session("s") == (True, 1)
        assert router.close_session("s") == (False, 0)
    assert router.statistics().sessions == 0


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("HTTP://Node-1:30000/", "node-1:30000"),
        ("node-1:30000", "node-1:30000"),
        ("[::1]:30000", "[::1]:30000"),
        ("http://[FE80::1%eth0]:80", "[fe80::1%eth0]:80"),
    ],
)
def test_addresses_are_normalised(text: str, authority: str) -> None:
    """One function normalises every address."""
    assert trimtab.normalize_address(text) == (authority, f"http://{authority}")


@pytest.mark.parametrize(
    "text",
    ["", "node-1", "node-1:0", "node-1:65536", "http://u:p@h:1", "h:1/v1", "h:1?x", "h:1#x", "ftp://h:1", "h :1"],
)
def test_bad_addresses_name_value_and_rule(text: str) -> None:
    """A refused address names the value, the rule and the expected form."""
    with pytest.raises(trimtab.InvalidAddress, match=r"expected \[http://\]host:port"):
        trimtab.normalize_address(text)


def test_statistics_are_frozen() -> None:
    """A snapshot does not change with the pool, and cannot be changed."""
    pool = Pool("rollout/tiny")
    pool.add_backend("127.0.0.1:1", id="e1")
    before = pool.statistics()
    lease = pool.acquire("s")
    assert (before.outstanding, pool.statistics().outstanding) == (0, 1)
    with pytest.raises(AttributeError):
        before.backends[0].outstanding = 5  # type: ignore[misc]
    lease.settle("completed")
    assert before.name == "rollout/tiny"


def test_events_are_readable_lines() -> None:
    """State changes come out once, as readable lines."""
    pool = Pool()
    pool.add_backend("127.0.0.1:1", id="e1")
    lines, dropped = pool.take_events()
    assert dropped == 0
    assert any("e1" in line for line in lines)
    assert pool.take_events() == ([], 0)
