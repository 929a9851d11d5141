"""The health budget through the binding: how long a backend may be unhealthy, and what follows."""

from __future__ import annotations

from typing import Literal

import pytest

from trimtab import Backend, Pool
from trimtab.testing import VirtualClock

BUDGET_S = 120.0
Policy = Literal["exclude", "fail_pool"]


def unhealthy(policy: Policy, *, budget_s: float | None = BUDGET_S) -> tuple[VirtualClock, Pool, Backend]:
    """A pool of two backends, one of which has just failed a probe."""
    clock = VirtualClock()
    pool = Pool("rollout/default", unhealthy_budget_s=budget_s, on_unhealthy=policy, clock=clock)
    backends = [pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}") for number in range(2)]
    pool.publish("first", 1)
    pool.report_probe(backends[0], alive=False)
    return clock, pool, backends[0]


def pass_failing(clock: VirtualClock, pool: Pool, backend: Backend, seconds: int) -> None:
    """Time passes, and a probe fails every five seconds."""
    for _ in range(seconds // 5):
        clock.advance(5)
        pool.report_probe(backend, alive=False)


def test_by_default_nothing_follows() -> None:
    """Without a budget a backend is down for as long as its probes fail, and the pool serves on the others."""
    clock, pool, backend = unhealthy("exclude", budget_s=None)
    pass_failing(clock, pool, backend, 3600)
    assert (pool.state, pool.statistics().census["down"]) == ("serving", 1)


def test_exclude_takes_the_backend_out_until_it_is_well() -> None:
    """Its budget is used up: it is down, and one good probe brings it back."""
    clock, pool, backend = unhealthy("exclude")
    pass_failing(clock, pool, backend, 150)
    assert (pool.state, pool.statistics().census["down"]) == ("serving", 1)
    pool.report_probe(backend, alive=True)
    assert pool.statistics().census["down"] == 0


def test_fail_pool_names_the_backend() -> None:
    """A fixed membership in which nobody can be spared: the pool fails, and says because of whom."""
    clock, pool, backend = unhealthy("fail_pool")
    pass_failing(clock, pool, backend, 115)
    states = [pool.state]
    clock.advance(5)
    assert [*states, pool.state] == ["serving", "failed"]
    assert "e0" in str(pool.statistics().failure)


def test_areal_64e_pauses_do_not_use_the_budget_up() -> None:
    """6.4 (e): 100 of 120 seconds are used, the servers pause for ten minutes, and 20 seconds are left."""
    clock, pool, backend = unhealthy("fail_pool")
    pass_failing(clock, pool, backend, 100)
    pool.begin_update("u-2", to=2)
    pool.drain("u-2", timeout_s=60)
    clock.advance(600)
    pool.end_server_pause("u-2")
    pool.publish("u-2", 2)
    pass_failing(clock, pool, backend, 15)
    states = [pool.state]
    clock.advance(5)
    assert [*states, pool.state] == ["serving", "failed"]


@pytest.mark.parametrize("cap", [1, 2])
def test_sessions_that_make_room_are_counted(cap: int) -> None:
    """At the cap the one that was idle for longest is forgotten, and that is counted."""
    pool = Pool(session_cap=cap)
    pool.add_backend("127.0.0.1:1")
    for number in range(4):
        pool.acquire(f"s{number}").settle("completed")
    statistics = pool.statistics()
    assert (statistics.sessions, statistics.sessions_evicted, statistics.sessions_expired) == (cap, 4 - cap, 0)
