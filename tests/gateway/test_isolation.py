"""One client's trouble is not another's: partial requests, slow readers, many connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from tests.support.http1 import chunk_bytes, request_bytes
from tests.support.scripts import Gate, gated, hold, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Lab


async def test_partial_requests_do_not_block_others(lab: Lab) -> None:
    """100 clients that stop inside head or body hold no lease and no thread."""
    gateway = await lab.gateway(await lab.engine(one()), worker_threads=1)
    raw = request_bytes("/generate", b'{"rid":"slow"}')
    for i in range(100):
        client = await lab.client(gateway)
        await client.send(raw[: 1 + (i * len(raw)) // 101])
    for _ in range(20):
        assert (await gateway.post("/generate")).status == 200
    await gateway.idle()


async def test_a_request_sent_byte_by_byte_is_served(lab: Lab) -> None:
    """A slow sender is slow, not wrong."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    raw = request_bytes("/generate", b'{"rid":"slow"}')
    for i in range(len(raw)):
        await client.send(raw[i : i + 1])
    assert (await client.response()).status == 200
    assert engine.requests[0].body == b'{"rid":"slow"}'


async def test_clients_that_do_not_read_do_not_block_others(lab: Lab) -> None:
    """20 stalled readers of large answers on one thread: the others are served."""
    gate = Gate()
    engine = await lab.engine(gated(gate, [b"x" * 2**23]))
    gateway = await lab.gateway(engine, worker_threads=1)
    gate.open(20)
    for _ in range(20):
        client = await lab.client(gateway, receive_buffer=65536, read_limit=65536)
        await client.send(request_bytes("/generate", b'{"stream":true}'))
    await wait_until(lambda: sum(r.body is not None for r in engine.requests) == 20, "the engine serves all of them")
    engine.script = one()
    for _ in range(20):
        assert (await gateway.post("/generate")).status == 200
    assert gateway.outstanding == 20


async def test_a_held_engine_does_not_delay_the_other(lab: Lab) -> None:
    """Requests on E2 pass those that wait on E1."""
    slow = await lab.engine(hold())
    fast = await lab.engine(one())
    gateway = await lab.gateway(slow, fast, worker_threads=1)
    held = []
    for i in range(10):
        client = await lab.client(gateway)
        await client.send(request_bytes("/generate", b"{}", [("x-trimtab-session", f"s{i}")]))
        held.append(client)
    await wait_until(lambda: len(slow.requests) == 10 - len(fast.requests), "every request is somewhere")
    await wait_until(lambda: gateway.outstanding == len(slow.requests), "the fast ones are over")
    assert len(fast.requests) >= 5


async def test_500_connections_at_once(lab: Lab) -> None:
    """Idle connections cost a descriptor each and nothing else; all are served when they ask."""
    gateway = await lab.gateway(await lab.engine(one()))
    clients = [await lab.client(gateway) for _ in range(500)]
    await wait_until(lambda: gateway.plane.statistics()["connections"] == 500, "500 connections")
    for client in clients:
        await client.send(request_bytes("/generate"))
    assert {(await client.response()).status for client in clients} == {200}
    for client in clients:
        await client.close()
    await wait_until(lambda: gateway.plane.statistics()["connections"] == 0, "no connection is left")


async def test_a_large_upload_does_not_block_small_requests(lab: Lab) -> None:
    """A body of 64 MB that arrives in pieces is one client's business."""
    gateway = await lab.gateway(await lab.engine(one()), worker_threads=1)
    client = await lab.client(gateway)
    await client.send(
        b"POST /generate HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk_bytes(b'{"t":"')
    )
    for _ in range(32):
        await client.send(chunk_bytes(b"x" * 2**21))
        assert (await gateway.post("/generate")).status == 200
    await client.send(chunk_bytes(b'"}') + chunk_bytes(b""))
    assert (await client.response()).status == 200


async def test_aiohttp_clients_share_a_pool_of_connections(lab: Lab) -> None:
    """300 requests by a real client library, 20 at a time, with sessions: nothing fails, nothing stays."""
    gateway = await lab.gateway(*await lab.engines(3, one()))
    turns = asyncio.Semaphore(20)

    async def one_turn(session: aiohttp.ClientSession, i: int) -> int:
        headers = {"x-trimtab-session": f"s{i % 30}"}
        async with turns, session.post(f"{gateway.url}/generate", json={"i": i}, headers=headers) as answer:
            await answer.read()
            return answer.status

    async with aiohttp.ClientSession() as session:
        statuses = await asyncio.gather(*(one_turn(session, i) for i in range(300)))
    assert set(statuses) == {200}
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 300}
    assert gateway.pool.statistics().sessions == 30
