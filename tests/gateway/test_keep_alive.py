"""Engine connections are reused while that is safe, and an engine that closes an idle one never costs a request."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.support.http1 import request_bytes
from tests.support.scripts import drip, in_turn, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Lab


async def test_a_connection_is_reused(lab: Lab) -> None:
    """20 requests one after another need one engine connection."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    for _ in range(20):
        await gateway.post("/generate")
        await gateway.idle()
        await wait_until(lambda: gateway.plane.statistics()["upstream_idle"] == 1, "the connection is back in the pool")
    assert len(engine.connections) == 1
    assert gateway.plane.statistics()["upstream_reused_total"] == 20


async def test_a_stream_gives_its_connection_back_too(lab: Lab) -> None:
    """A chunked stream that ended cleanly leaves a usable connection."""
    engine = await lab.engine(in_turn(drip(3), one()))
    gateway = await lab.gateway(engine)
    await gateway.post("/generate", b'{"stream":true}')
    await wait_until(lambda: gateway.plane.statistics()["upstream_idle"] == 1, "the connection is back in the pool")
    assert (await gateway.post("/generate")).status == 200
    assert len(engine.connections) == 1


@pytest.mark.parametrize("close", ["fin", "rst", "header"])
async def test_an_engine_that_closes_after_each_answer_never_costs_a_request(lab: Lab, close: str) -> None:
    """100 requests to an engine that ends every connection: the end is noticed before the next use."""

    async def answer_and_close(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.answer(b"{}", headers=(("Connection", "close"),) if close == "header" else ())
        if close == "rst":
            await read.wait()
            exchange.reset()
        else:
            exchange.close()

    read = asyncio.Event()
    engine = await lab.engine(answer_and_close)
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    for number in range(100):
        read.clear()
        await client.send(request_bytes("/generate"))
        assert (await client.response()).status == 200, f"request {number}"
        read.set()
        await wait_until(engine.connections[-1].closed.is_set, "the engine connection is over")
    assert len(engine.connections) == 100
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 100}


async def test_connections_idle_beyond_the_keep_alive_are_not_reused(lab: Lab) -> None:
    """After the configured idle time the gateway drops the connection on its own."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, engine_keepalive_s=0.05)
    for count in (2, 3, 4):
        await asyncio.sleep(0.06)  # the idle time itself is the subject
        assert (await gateway.post("/generate")).status == 200
        assert len(engine.connections) == count, "the first one was the probe's"
    assert gateway.plane.statistics()["upstream_reused_total"] == 0


@pytest.mark.slow
async def test_an_engine_with_a_short_keep_alive_never_costs_a_request(lab: Lab) -> None:
    """300 requests with random pauses around the engine's keep-alive (60 ms; the gateway's is 20 ms): all succeed."""
    dice = random.Random(7)
    engine = await lab.engine(one(), keep_alive_s=0.06)
    gateway = await lab.gateway(engine, engine_keepalive_s=0.02)

    async def visitor() -> None:
        client = await lab.client(gateway)
        for _ in range(50):
            await asyncio.sleep(dice.random() * 0.09)  # the random pause is the subject
            await client.send(request_bytes("/generate"))
            assert (await client.response()).status == 200

    await asyncio.gather(*(visitor() for _ in range(6)))
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 300}


async def test_extra_bytes_after_an_answer_do_not_become_the_next_one(lab: Lab) -> None:
    """An engine that sends more than it announced poisons its connection, not the next client."""

    async def too_much(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )
        exchange.record.finished = True

    engine = await lab.engine(in_turn(too_much, one(b'{"ok":1}')))
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate")).body == b"{}"
    await gateway.idle()
    assert (await gateway.post("/generate")).body == b'{"ok":1}'


async def test_client_connections_are_kept_alive(lab: Lab) -> None:
    """200 requests on one client connection."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    for _ in range(200):
        await client.send(request_bytes("/generate"))
        assert (await client.response()).status == 200
    assert gateway.plane.statistics()["connections_total"] == 1
