"""Admission: at most so many requests run, the next ones queue, and only what cannot queue is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.expect import error
from tests.support.http1 import DONE, request_bytes
from tests.support.scripts import Gate, gated, hold, in_turn, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Gateway, Lab

QUEUE = {"max_concurrent": 2, "queue_size": 2, "queue_timeout_s": 30}


async def waiting(gateway: Gateway, count: int) -> None:
    """Wait until exactly ``count`` requests are queued."""
    await wait_until(lambda: gateway.pool.statistics().waiters == count, f"{count} queued")


async def test_b84_a_place_is_free_when_the_stream_ends(lab: Lab) -> None:
    """Of three streams the third waits until one has *ended*, not until it has begun; each runs once."""
    gates = [Gate(), Gate(), Gate()]
    engine = await lab.engine(in_turn(*(gated(gate, []) for gate in gates)))
    gateway = await lab.gateway(engine, pool_options=QUEUE)
    clients = [await lab.client(gateway) for _ in gates]
    heads = []
    for number, client in enumerate(clients[:2], 1):
        await client.send(request_bytes("/generate"))
        heads.append(await client.head())
        await gateway.busy(number)
    await clients[2].send(request_bytes("/generate"))
    await waiting(gateway, 1)
    assert (gateway.outstanding, len(engine.requests)) == (2, 2)
    gates[0].open()
    assert await clients[0].body(heads[0]) == DONE
    heads.append(await clients[2].head())
    assert (gateway.outstanding, len(engine.requests), gateway.pool.statistics().waiters) == (2, 3, 0)
    for gate, client, head in zip(gates[1:], clients[1:], heads[1:], strict=True):
        gate.open()
        assert await client.body(head) == DONE
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 3}


async def test_b84_a_client_that_leaves_has_left_the_queue(lab: Lab) -> None:
    """At once: the engine never sees its request, and the place in the queue is the next one's."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine, pool_options={**QUEUE, "max_concurrent": 1, "queue_size": 1})
    running, leaving, next_one = [await lab.client(gateway) for _ in range(3)]
    await running.send(request_bytes("/generate", b"{}"))
    await gateway.busy(1)
    await leaving.send(request_bytes("/generate", b"{}"))
    await waiting(gateway, 1)
    error(await gateway.post("/generate"), 429, "too_many_waiters")
    await leaving.close()
    await waiting(gateway, 0)
    await next_one.send(request_bytes("/generate", b"{}"))
    await waiting(gateway, 1)
    assert len(engine.requests) == 1


async def test_the_queue_is_first_come_first_served(lab: Lab) -> None:
    """With one place, requests run in the order of their arrival."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, pool_options={**QUEUE, "max_concurrent": 1, "queue_size": 16})
    place = gateway.pool.acquire()
    tasks = []
    for number in range(16):
        tasks.append(asyncio.create_task(gateway.post("/generate", b'{"rid":"r%02d"}' % number)))
        await waiting(gateway, number + 1)
    place.settle("completed")
    assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 16
    bodies = [record.body for record in engine.requests]
    assert bodies == sorted(bodies)


async def test_the_end_of_the_queue_time(lab: Lab) -> None:
    """429 ``at_capacity`` with Retry-After, as if there were no queue; no engine was asked."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, pool_options={**QUEUE, "max_concurrent": 1, "queue_timeout_s": 0.05})
    place = gateway.pool.acquire()
    refused = error(await gateway.post("/generate"), 429, "at_capacity")
    assert refused["detail"] == {"role": "rollout", "model": "tiny", "outstanding": 1, "max_concurrent": 1}
    error(await gateway.post("/generate", b"{}", [("x-trimtab-wait", "0")]), 429, "at_capacity")
    place.settle("completed")
    assert engine.requests == []


async def test_what_a_client_says_of_its_patience_counts(lab: Lab) -> None:
    """``x-trimtab-wait`` replaces the pool's own time, in the same queue and within its size."""
    gateway = await lab.gateway(
        await lab.engine(one()), pool_options={"max_concurrent": 1, "queue_size": 1, "queue_timeout_s": 0.01}
    )
    place = gateway.pool.acquire()
    patient = asyncio.create_task(gateway.post("/generate", b"{}", [("x-trimtab-wait", "30")]))
    await waiting(gateway, 1)
    error(await gateway.post("/generate", b"{}", [("x-trimtab-wait", "30")]), 429, "too_many_waiters")
    place.settle("completed")
    assert (await patient).status == 200


async def test_none_exist_is_not_all_busy(lab: Lab) -> None:
    """Without an eligible engine nothing is queued for: 503 at once."""
    gateway = await lab.gateway(pool_options=QUEUE)
    error(await gateway.post("/generate"), 503, "no_eligible_backend")


async def test_b98_a_refused_request_consumes_nothing(lab: Lab) -> None:
    """A runs, B is refused, A ends, C is served: the limit is the pool's, and only what runs counts."""
    gate = Gate()
    engine = await lab.engine(in_turn(gated(gate, []), one()))
    gateway = await lab.gateway(engine, pool_options={"max_concurrent": 1}, worker_threads=4)
    first = await lab.client(gateway)
    await first.send(request_bytes("/generate"))
    head = await first.head()
    for _ in range(20):
        error(await gateway.post("/generate", b"{}", [("x-trimtab-session", "b")]), 429, "at_capacity")
    assert gateway.pool.statistics().sessions == 0
    gate.open()
    await first.body(head)
    assert (await gateway.post("/generate")).status == 200
    assert len(engine.requests) == 2


async def test_b63_what_can_never_succeed_is_tried_once(lab: Lab) -> None:
    """The engine's own 422 passes with its text after one attempt; the gateway's refusals of it forbid a retry."""
    engine = await lab.engine(one(b'{"error": "top_p must be positive"}', status=422))
    gateway = await lab.gateway(engine, pool_options=QUEUE)
    answer = await gateway.post("/generate")
    assert (answer.status, b"top_p must be positive" in answer.body) == (422, True)
    assert len(engine.requests) == 1
    assert gateway.outcomes() == {"rejected": 1}
    for body in (b'{"model": "other"}', b"{", b'{"model": 3}'):
        refused = await gateway.post("/generate", body)
        assert (refused.status, refused.head.get("x-should-retry")) == (400, "false")
    assert gateway.pool.statistics().waiters == 0
    assert len(engine.requests) == 1


async def test_b14_waiting_for_a_place_is_counted_and_no_error(lab: Lab) -> None:
    """64 requests through 4 places: none fails, and the requests that had to wait are counted by that reason."""
    engines = await lab.engines(2, one())
    gateway = await lab.gateway(
        *engines, pool_options={"max_concurrent": 4, "queue_size": 64, "queue_timeout_s": 30}
    )
    places = [gateway.pool.acquire() for _ in range(4)]
    tasks = [asyncio.create_task(gateway.post("/generate")) for _ in range(64)]
    await waiting(gateway, 64)
    for place in places:
        place.settle("completed")
    assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
    assert gateway.pool.statistics().parked["at_capacity"] == 64
