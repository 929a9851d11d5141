"""Liveness while huge prompts pass: a gateway that decodes, tokenises or copies them on its loop gets killed."""

from __future__ import annotations

import asyncio
import io
import statistics
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.serve import GatewayProcess, stopped_at_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.engine import Exchange
    from tests.support.lab import Lab

REQUESTS = 200
PROMPT = b'{"input_ids":[' + b"1234567," * 2**20 + b"1]}"
LIMIT_S = 0.2


async def swallow(exchange: Exchange) -> None:
    """Read a body and keep nothing of it."""
    left = int(exchange.record.head.get("content-length") or 0)
    while left:
        left -= len(await exchange.wire.some())
        exchange.wire.raw.clear()
    exchange.record.body = b""
    await exchange.answer(b"{}")


WATCH = """
import http.client, sys, time

connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
while True:
    start = time.monotonic()
    connection.request("GET", "/live")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200
    print(time.monotonic() - start, flush=True)
    time.sleep(0.01)
"""
"""Asks for ``/live`` as an orchestrator does, in a process of its own: this one is busy with the traffic."""


@asynccontextmanager
async def watched(port: int) -> AsyncIterator[list[float]]:
    """Fills the list, at the end of the block, with the seconds that each answer to ``/live`` took meanwhile."""
    took: list[float] = []
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WATCH, str(port), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield took
    finally:
        process.terminate()
        took += [float(line) for line in (await process.stdout.read()).splitlines()]
        await process.wait()


async def slowest_of_a_hundred(gateway: GatewayProcess) -> float:
    """The 99th percentile of the answers to ``/live``, in seconds, while the requests pass."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, watched(gateway.port) as took:

        async def ask() -> int:
            async with client.post(f"{gateway.role_url}/generate", data=io.BytesIO(PROMPT)) as answer:
                return answer.status

        assert await asyncio.gather(*(ask() for _ in range(REQUESTS))) == [200] * REQUESTS
    assert len(took) > 20, "the traffic was over before it was watched"
    return statistics.quantiles(took, n=100)[98]


@pytest.mark.slow
async def test_b44_huge_prompts_do_not_starve_liveness(lab: Lab, tmp_path: Path) -> None:
    """B44: 200 requests of 8 MiB at once: 99 of 100 probes of ``/live`` are answered within 200 ms.

    The best of three counts: whatever else the machine does can only make it longer.
    """
    engine = await lab.engine(swallow)
    with stopped_at_the_end(GatewayProcess([engine.url], tmp_path / "gateway.log")) as gateway:
        await gateway.start()
        best_s = min([await slowest_of_a_hundred(gateway) for _ in range(3)])
    assert best_s < LIMIT_S
