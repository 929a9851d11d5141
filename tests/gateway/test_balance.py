"""B29, B30, B31, B68, B83: where executions and sessions go, through the pool and through HTTP."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.http1 import request_bytes
from tests.support.lab import make_pool
from tests.support.scripts import Gate, events, one
from tests.support.waiting import wait_until
from trimtab import InvalidCapacity, Pool

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Lab

ROUTES = ["generate", "v1/chat/completions", "chat/completions", "v1/completions"]
BODIES = {
    "plain": b'{"text":"a"}',
    "stream": b'{"text":"a","stream":true}',
    "batch": b'{"text":["a","b"],"input_ids":null}',
    "n": b'{"prompt":"a","n":2}',
}


def addresses(count: int) -> list[str]:
    """Distinct addresses; nobody connects to them."""
    return [f"10.0.0.{i + 1}:30000" for i in range(count)]


async def test_b29_sequential_ties_spread_evenly(lab: Lab) -> None:
    """4 engines, 200 requests one after another: each serves 50 ± 5, not the first one all."""
    engines = await lab.engines(4, one())
    gateway = await lab.gateway(*engines)
    client = await lab.client(gateway)
    for _ in range(200):
        await client.send(request_bytes("/generate"))
        assert (await client.response()).status == 200
    counts = [len(engine.requests) for engine in engines]
    assert all(45 <= count <= 55 for count in counts), counts


async def test_b29_idle_sessions_count_for_new_ones(lab: Lab) -> None:
    """40 sessions whose first turns never overlap: 10 per engine."""
    engines = await lab.engines(4, one())
    gateway = await lab.gateway(*engines)
    for i in range(40):
        await gateway.post("/generate", b"{}", [("x-trimtab-session", f"s{i}")])
    assert [len(engine.requests) for engine in engines] == [10] * 4
    assert [backend.sessions for backend in gateway.pool.statistics().backends] == [10] * 4


async def test_b30_a_burst_over_http_is_spread_by_one(lab: Lab) -> None:
    """200 concurrent requests on 8 equal engines: 25 each, counted while all of them are held."""
    gate = Gate()

    async def held(exchange: Exchange) -> None:
        await exchange.read_body()
        await gate.passed()
        await exchange.answer(b"{}")

    engines = await lab.engines(8, held)
    gateway = await lab.gateway(*engines)
    answers = asyncio.gather(*(gateway.post("/generate") for _ in range(200)))
    await gateway.busy(200)
    out = [backend.outstanding for backend in gateway.pool.statistics().backends]
    gate.open(200)
    assert {answer.status for answer in await answers} == {200}
    assert out == [25] * 8
    assert [len(engine.requests) for engine in engines] == [25] * 8


async def test_b30_a_thousand_tasks_pick_and_reserve_in_one_step() -> None:
    """1,000 tasks start together and yield between their picks: max - min <= 1 over 8 equal engines."""
    pool = make_pool(addresses(8))
    release = asyncio.Event()
    held = 0

    async def task(number: int) -> None:
        nonlocal held
        for _ in range(number % 3):
            await asyncio.sleep(0)
        lease = pool.acquire()
        held += 1
        await release.wait()
        lease.settle("completed")

    tasks = [asyncio.create_task(task(number)) for number in range(1000)]
    await wait_until(lambda: held == 1000, "every task has its lease")
    out = [backend.outstanding for backend in pool.statistics().backends]
    release.set()
    await asyncio.gather(*tasks)
    assert sum(out) == 1000
    assert max(out) - min(out) <= 1, out


def test_b30_threads_pick_and_reserve_in_one_step() -> None:
    """The same from 8 threads at once."""
    pool = make_pool(addresses(8))
    with ThreadPoolExecutor(8) as threads:
        leases = list(threads.map(lambda _: pool.acquire(), range(1000)))
    out = [backend.outstanding for backend in pool.statistics().backends]
    for lease in leases:
        lease.settle("completed")
    assert sum(out) == 1000
    assert max(out) - min(out) <= 1, out


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("prefix", ["/", "/rollout/"])
async def test_b31_every_route_counts(lab: Lab, prefix: str, route: str, kind: str) -> None:
    """20 concurrent requests on 2 engines, on every public route and kind: 10 and 10, and back to zero."""
    gate = Gate()

    async def held(exchange: Exchange) -> None:
        await exchange.read_body()
        await gate.passed()
        if kind == "stream":
            await exchange.start_stream()
            await exchange.send_chunk(events(1)[0])
            await exchange.end_stream()
        else:
            await exchange.answer(b"[]")

    engines = await lab.engines(2, held)
    gateway = await lab.gateway(*engines)
    answers = asyncio.gather(*(gateway.post(prefix + route, BODIES[kind]) for _ in range(20)))
    await gateway.busy(20)
    out = [backend.outstanding for backend in gateway.pool.statistics().backends]
    gate.open(20)
    assert {answer.status for answer in await answers} == {200}
    assert out == [10, 10]
    upstream = "/v1/chat/completions" if route == "chat/completions" else f"/{route}"
    targets = Counter(record.head.target for engine in engines for record in engine.requests)
    assert targets == {upstream: 20}
    await gateway.idle()


@pytest.mark.parametrize("path", ["/rollout/unknown", "/flush_cache", "/rollout/slow_down", "/rollout/generate/x", "/"])
async def test_b31_an_unknown_path_reaches_no_engine(lab: Lab, path: str) -> None:
    """What is not counted is not proxied."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    assert (await gateway.post(path)).status == 404
    assert engine.requests == []
    assert engine.aborted == []


async def test_b68_membership_changes_move_only_the_sessions_of_the_removed_engine() -> None:
    """1,000 sessions on 8 engines: removing one moves its 125, adding one moves none."""
    pool = make_pool(addresses(8))

    def turn() -> dict[str, str]:
        where = {}
        for i in range(1000):
            lease = pool.acquire(f"s{i}")
            where[f"s{i}"] = lease.backend_id
            lease.settle("completed")
        return where

    first = turn()
    assert set(Counter(first.values()).values()) == {125}
    pool.remove_backend(addresses(8)[3])
    second = turn()
    assert {s for s in first if first[s] != second[s]} == {s for s in first if first[s] == addresses(8)[3]}
    pool.add_backend("10.0.1.1:30000")
    assert turn() == second


async def test_b83_capacities_are_followed_over_http(lab: Lab) -> None:
    """Capacities 8 and 2, 100 concurrent requests: 80 and 20 within 2."""
    gate = Gate()

    async def held(exchange: Exchange) -> None:
        await exchange.read_body()
        await gate.passed()
        await exchange.answer(b"{}")

    big, small = await lab.engines(2, held)
    gateway = await lab.gateway(big, small, capacities=[8, 2])
    answers = asyncio.gather(*(gateway.post("/generate") for _ in range(100)))
    await gateway.busy(100)
    out = [backend.outstanding for backend in gateway.pool.statistics().backends]
    gate.open(100)
    await answers
    assert abs(out[0] - 80) <= 2, out
    assert sum(out) == 100


def test_b83_a_thousand_on_8_and_2() -> None:
    """1,000 concurrent on capacities 8 and 2: 800 and 200 within 2."""
    pool = make_pool(addresses(2), [8, 2])
    leases = [pool.acquire() for _ in range(1000)]
    out = [backend.outstanding for backend in pool.statistics().backends]
    for lease in leases:
        lease.settle("completed")
    assert abs(out[0] - 800) <= 2, out


@pytest.mark.parametrize("capacity", [0, -1, -0.5, math.nan, math.inf])
def test_b83_a_capacity_that_is_no_weight_is_refused(capacity: float) -> None:
    """0, negative numbers, NaN and infinity are errors at registration; missing means 1."""
    pool = Pool()
    with pytest.raises(InvalidCapacity):
        pool.add_backend("10.0.0.1:30000", capacity)
    assert pool.backends() == []
    assert pool.add_backend("10.0.0.1:30000").capacity == 1.0


def test_b83_loads_are_compared_exactly() -> None:
    """Capacities 0.1, 0.2 and 0.3 tie where the ratios tie: no float noise decides."""
    pool = make_pool(addresses(3), [0.1, 0.2, 0.3])
    leases = [pool.acquire() for _ in range(600)]
    out = [backend.outstanding for backend in pool.statistics().backends]
    for lease in leases:
        lease.settle("completed")
    assert out == [100, 200, 300]
