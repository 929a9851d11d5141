"""Requests that kill engines, through the binding: reported deaths, refusals, their evidence and their end."""

from __future__ import annotations

import pytest

import trimtab
from trimtab import Backend, Pool
from trimtab.testing import VirtualClock

QUARANTINE_S = 60.0


def fleet(count: int = 4) -> tuple[VirtualClock, Pool]:
    """A pool of ``count`` backends on a clock of its own."""
    clock = VirtualClock()
    pool = Pool("rollout/default", poison_quarantine_s=QUARANTINE_S, clock=clock)
    for number in range(count):
        pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}")
    return clock, pool


def kill(pool: Pool, session: str) -> Backend:
    """A turn of ``session`` whose engine dies under it; which that was."""
    lease = pool.acquire(session)
    assert pool.report_death(lease.backend, "exit code -9")
    lease.settle("ambiguous")
    return lease.backend


def test_a_session_is_refused_after_two_deaths() -> None:
    """The error names the engines and the way out, and says that asking again is in vain; other sessions go on."""
    _, pool = fleet()
    first, second = kill(pool, "s"), kill(pool, "s")
    assert first != second
    with pytest.raises(
        trimtab.PoisonSuspected, match=rf"engines {first.id} .* and {second.id} .*exit code -9"
    ) as caught:
        pool.acquire("s")
    assert not caught.value.retryable
    pool.acquire("other").settle("completed")
    statistics = pool.statistics()
    assert (statistics.engine_deaths, statistics.poison_refusals, statistics.outstanding) == (2, 1, 0)
    assert (statistics.poison_suspects, statistics.poison_refused) == (1, 1)


def test_entries_say_what_happened() -> None:
    """An operator reads which engines, when and how, and until when it is refused."""
    clock, pool = fleet()
    kill(pool, "s")
    clock.advance(10)
    kill(pool, "s")
    clock.advance(5)
    (entry,) = pool.poison_entries()
    assert (entry.kind, entry.session, entry.sender, entry.refused) == ("session", "s", None, True)
    assert (entry.refusals, entry.expires_in_s) == (0, QUARANTINE_S - 5)
    assert [(death.generation, death.age_s, death.weight, death.evidence) for death in entry.deaths] == [
        (1, 15, 1, "exit code -9"),
        (2, 5, 1, "exit code -9"),
    ]
    assert 'session "s" was in flight when engines e0' in str(entry)


def test_the_quarantine_ends() -> None:
    """After ``poison_quarantine_s`` the session runs again, and its past is forgotten."""
    clock, pool = fleet()
    kill(pool, "s")
    kill(pool, "s")
    clock.advance(QUARANTINE_S - 1)
    with pytest.raises(trimtab.PoisonSuspected):
        pool.acquire("s")
    clock.advance(1)
    pool.acquire("s").settle("completed")
    pool.tick()
    assert pool.poison_entries() == []


def test_an_operator_clears_entries() -> None:
    """One by its name, or all; a name of none clears nothing."""
    _, pool = fleet(6)
    for session in ("s", "t"):
        kill(pool, session)
        kill(pool, session)
    names = {entry.session: entry.entry for entry in pool.poison_entries()}
    assert [pool.clear_poison(name) for name in ("", "x" * 16, "0" * 16, "0" * 17)] == [0, 0, 0, 0]
    assert pool.clear_poison(names["s"]) == 1
    pool.acquire("s").settle("completed")
    assert pool.clear_poison() == 1
    pool.acquire("t").settle("completed")
    assert any("cleared" in line for line in pool.take_events()[0])


def test_a_dead_engine_gets_nothing_until_it_is_heard() -> None:
    """A reported death takes the engine out at once; a death of an incarnation that is gone is no news."""
    _, pool = fleet(1)
    backend = pool.backends()[0]
    assert pool.report_death(backend, "exit code 1")
    with pytest.raises(trimtab.NoEligibleBackend):
        pool.acquire()
    pool.report_probe(backend, alive=True)
    pool.acquire().settle("completed")
    pool.remove_backend(backend.id)
    assert not pool.report_death(backend, "exit code 1")


def test_the_guard_can_be_off() -> None:
    """``poison_deaths=0`` refuses nothing, however many engines die."""
    pool = Pool(poison_deaths=0)
    for number in range(4):
        pool.add_backend(f"127.0.0.1:{1 + number}")
    for _ in range(3):
        kill(pool, "s")
    pool.acquire("s").settle("completed")
    assert pool.poison_entries() == []
