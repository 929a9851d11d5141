"""More clients than descriptors: those who are let in are served, the others are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import DONE, request_bytes
from tests.support.scripts import Gate, gated, hold, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Gateway, Lab


async def open_connections(gateway: Gateway, count: int) -> None:
    """Wait until ``count`` client connections are served."""
    await wait_until(lambda: gateway.plane.statistics()["connections"] == count, f"{count} connections")


async def test_who_is_over_the_limit_is_told_and_who_is_in_finishes(lab: Lab) -> None:
    """503 with Retry-After and the end of the connection, before the body is read; then there is room again."""
    gate = Gate()
    engine = await lab.engine(gated(gate, []))
    gateway = await lab.gateway(engine, max_clients=2)
    inside = [await lab.client(gateway) for _ in range(2)]
    heads = []
    for client in inside:
        await client.send(request_bytes("/generate"))
        heads.append(await client.head())
    refused = await gateway.post("/generate", b"x" * 1_000_000)
    assert error(refused, 503, "too_many_connections")["retryable"] is True
    assert refused.head.get("connection") == "close"
    gate.open(2)
    assert [await client.body(head) for client, head in zip(inside, heads, strict=True)] == [DONE, DONE]
    await open_connections(gateway, 0)
    engine.script = one()
    assert (await gateway.post("/generate")).status == 200
    assert gateway.plane.statistics()["turned_away_total"] == 1
    assert len(engine.requests) == 3


@pytest.mark.parametrize("path", ["/live", "/ready"])
async def test_whoever_supervises_the_gateway_hears_the_truth(lab: Lab, path: str) -> None:
    """A full gateway is alive and ready: restarting it would end what runs."""
    gateway = await lab.gateway(await lab.engine(hold()), max_clients=1)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate"))
    await gateway.busy(1)
    answer = await gateway.get(path)
    assert (answer.status, answer.head.get("connection")) == (200, "close")


async def test_idle_connections_give_way(lab: Lab) -> None:
    """Clients that keep their connections open without using them do not lock the others out."""
    gateway = await lab.gateway(await lab.engine(one()), max_clients=3)
    idle = [await lab.client(gateway) for _ in range(3)]
    for client in idle:
        await client.send(request_bytes("/generate"))
        assert (await client.response()).status == 200
    error(await gateway.post("/generate"), 503, "too_many_connections")
    for client in idle:
        assert await client.rest() == b""
    await open_connections(gateway, 0)
    assert (await gateway.post("/generate")).status == 200


async def test_more_are_turned_away_than_at_a_time(lab: Lab) -> None:
    """Those who wait at the door without a word are sent off after a while, so that everybody's turn comes."""
    gateway = await lab.gateway(await lab.engine(hold()), max_clients=1)
    inside = await lab.client(gateway)
    await inside.send(request_bytes("/generate"))
    await gateway.busy(1)
    for _ in range(20):
        await lab.client(gateway)
    error(await gateway.post("/generate"), 503, "too_many_connections")
    assert gateway.outstanding == 1


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"POST /generate HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a head"])
async def test_connections_without_a_request_give_way(lab: Lab, sent: bytes) -> None:
    """Whoever connects and never asks is spared for as long as a handshake may take, and not for ever."""
    gateway = await lab.gateway(await lab.engine(one()), max_clients=2)
    silent = [await lab.client(gateway) for _ in range(2)]
    for client in silent:
        await client.send(sent)
    await open_connections(gateway, 2)
    error(await gateway.post("/generate"), 503, "too_many_connections")
    assert gateway.plane.statistics()["connections"] == 2

    async def served() -> bool:
        return (await gateway.post("/generate")).status == 200

    deadline = asyncio.get_running_loop().time() + 20
    while not await served():
        assert asyncio.get_running_loop().time() < deadline, "they keep their places"
        await asyncio.sleep(0.5)
