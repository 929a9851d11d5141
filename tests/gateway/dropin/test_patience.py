"""Nothing here gives up on a generation by itself, and nothing here is a pool smaller than the load."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.http1 import event_bytes
from tests.support.scripts import drip, generation

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet
    from tests.support.engine import Exchange
    from tests.support.lab import Lab

STREAMS = 3_000
LIMIT_S = 0.1
"""Every limit that there is. The engine's silences are multiples of it: they are what is tested."""


@pytest.mark.slow
async def test_b15_a_slow_generation_is_waited_for(fleet: Fleet, lab: Lab) -> None:
    """With every other limit far below its silences, a generation comes to its end: no time-out covers it."""

    async def slow(exchange: Exchange) -> None:
        await exchange.read_body()
        await asyncio.sleep(10 * LIMIT_S)
        if exchange.record.json().get("stream"):
            await exchange.start_stream()
            for _ in range(3):
                await exchange.send_chunk(event_bytes(generation()))
                await asyncio.sleep(6 * LIMIT_S)
            await exchange.send_chunk(b"data: [DONE]\n\n")
            await exchange.end_stream()
        else:
            await exchange.answer(event_bytes(generation())[6:-2])

    engine = await lab.engine(slow)
    limits = ("connect_timeout_s", "probe_timeout_s", "engine_keepalive_s", "abort_grace_s")
    served = await fleet.gateway(**dict.fromkeys(limits, LIMIT_S))
    await served.register(f"http://{engine.authority}")
    await served.eligible(1)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        for stream in (False, True):
            async with client.post(f"{served.url}/generate", json={"text": "a", "stream": stream}) as answer:
                body = await answer.read()
            assert answer.status == 200
            assert body.count(b'"finish_reason"') == (3 if stream else 1)
            assert body.endswith(b"[DONE]\n\n") is stream
    assert served.gateway.pool("rollout", "default").statistics().outcomes["completed"] == 2


@pytest.mark.slow
async def test_b14_three_thousand_streams_at_once(fleet: Fleet, lab: Lab) -> None:
    """Over four engines: every one is complete, none waited for a free connection, and they are spread evenly."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 5 * STREAMS:
        pytest.skip(f"needs {5 * STREAMS} descriptors (ulimit -n): four for each stream")
    engines = [await lab.engine(drip(4, 2.0)) for _ in range(4)]
    served = await fleet.gateway()
    for engine in engines:
        await served.register(f"http://{engine.authority}")
    await served.eligible(4)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as client:

        async def stream() -> bool:
            async with client.post(f"{served.url}/generate", json={"text": "a", "stream": True}) as answer:
                return answer.status == 200 and (await answer.read()).endswith(b"[DONE]\n\n")

        assert await asyncio.gather(*(stream() for _ in range(STREAMS))) == [True] * STREAMS
    statistics = served.gateway.pool("rollout", "default").statistics()
    assert statistics.outcomes["completed"] == STREAMS
    assert statistics.parked == {} or sum(statistics.parked.values()) == 0
    picks = [backend.picks for backend in statistics.backends]
    assert max(picks) - min(picks) <= STREAMS // 20
