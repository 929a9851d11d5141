"""A gateway process that runs for long stays as it was: memory, threads, descriptors and series."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.client import RawClient
from tests.support.http1 import request_bytes
from tests.support.metrics import sum_metric
from tests.support.scripts import drip, one
from tests.support.serve import GatewayProcess, Observer, eventually, stopped_at_the_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.engine import Exchange
    from tests.support.lab import Lab

REQUESTS, ABORTED, CHURNED = 2000, 100, 40
CLIENTS = 8
SESSIONS = 500
MOST_GROWTH_BYTES = 4 * 2**20


async def answer_or_stream(exchange: Exchange) -> None:
    """A stream of five seconds for who asks for one, else one answer."""
    body = await exchange.read_body()
    await (drip(100, 0.05) if b'"stream":true' in body else one())(exchange)


async def ask(gateway: GatewayProcess, count: int) -> None:
    """Requests on one connection."""
    async with RawClient("127.0.0.1", gateway.port) as client:
        for number in range(count):
            await client.send(request_bytes("/generate", b"{}", [("x-trimtab-session", f"s{number % SESSIONS}")]))
            assert (await client.response()).status == 200


async def leave(gateway: GatewayProcess, count: int) -> None:
    """Streams whose client goes away in the middle."""
    for _ in range(count):
        async with RawClient("127.0.0.1", gateway.port) as client:
            await client.send(request_bytes("/generate", b'{"stream":true}'))
            await client.head()
            await client.chunk()


async def churn(client: aiohttp.ClientSession, gateway: GatewayProcess, count: int) -> None:
    """Engines that come and go; nobody answers behind their addresses."""
    for number in range(count):
        async with client.post(f"{gateway.url}/workers", json={"url": f"http://127.0.1.{number}:9"}) as answer:
            assert answer.status < 300, await answer.text()
            worker = (await answer.json())["worker_id"]
        async with client.delete(f"{gateway.url}/workers/{worker}") as answer:
            assert answer.status < 300, await answer.text()


@pytest.mark.slow
async def test_b23_nothing_grows(lab: Lab, tmp_path: Path) -> None:
    """Once warm, rounds of requests, abandoned streams and engines that come and go leave nothing behind (B23)."""
    engine = await lab.engine(answer_or_stream)
    gateway = GatewayProcess([engine.authority], tmp_path / "log")
    with stopped_at_the_end(gateway):
        await gateway.start()
        async with aiohttp.ClientSession() as client:
            observer = Observer(client, gateway)

            async def a_round() -> dict[str, float]:
                share = REQUESTS // CLIENTS
                await asyncio.gather(
                    *(ask(gateway, share) for _ in range(CLIENTS)),
                    leave(gateway, ABORTED),
                    churn(client, gateway, CHURNED),
                )
                await eventually(observer.outstanding, 0, "every lease is settled")

                async def connections() -> float:
                    return await observer.metric("trimtab_open_connections")

                await eventually(connections, 1, "the clients' connections are closed")
                async with client.get(f"{gateway.url}/metrics") as answer:
                    text = await answer.text()
                names = ("process_threads", "process_open_fds", "process_resident_memory_bytes")
                return {"series": len(text.splitlines()), **{name: sum_metric(text, name) for name in names}}

            for _ in range(2):
                before = await a_round()
            for _ in range(4):
                after = await a_round()
    assert after["series"] == before["series"]
    assert after["process_threads"] == before["process_threads"]
    # Idle connections to the engine come and go.
    assert after["process_open_fds"] <= before["process_open_fds"] + CLIENTS
    growth = after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
    assert growth < MOST_GROWTH_BYTES, f"{growth / 2**20:.1f} MiB more after {4 * REQUESTS} requests"
