"""``on_ambiguous="resolve"`` in a process without a data plane: its owner looks after the engines."""

from __future__ import annotations

import pytest

import trimtab
from trimtab import Pool


@pytest.fixture
def pool() -> Pool:
    """Two engines on version 1."""
    pool = Pool("rollout/default", on_ambiguous="resolve")
    for number in range(2):
        pool.add_backend(f"10.0.0.{number}:80")
    return pool


def test_an_unclear_end_stays_counted_until_it_is_settled_as_lost(pool: Pool) -> None:
    """It holds an update up; the list names it as often as it is asked for."""
    lease = pool.acquire("s")
    backend = lease.backend
    lease.settle("ambiguous")
    assert pool.unresolved() == pool.unresolved() == [(lease.id, backend)]
    statistics = pool.statistics()
    assert (statistics.outstanding, statistics.unresolved, statistics.outcomes["ambiguous"]) == (1, 1, 0)
    pool.begin_update("u-1")
    assert pool.state == "quiescing"
    pool.settle_lost(lease.id)
    assert (pool.state, pool.unresolved()) == ("drained", [])
    assert pool.statistics().outcomes["lost"] == 1


def test_only_what_is_unresolved_can_be_lost(pool: Pool) -> None:
    """A lease whose holder still knows better, and one that is over."""
    lease = pool.acquire("s")
    with pytest.raises(trimtab.InvalidTransition):
        pool.settle_lost(lease.id)
    lease.settle("completed")
    with pytest.raises(trimtab.UnknownLease):
        pool.settle_lost(lease.id)
    with pytest.raises(trimtab.UnknownLease):
        pool.settle_lost("no lease")
    assert pool.unresolved() == []
