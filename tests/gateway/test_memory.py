"""Memory of a real ``trimtab serve`` while huge answers pass: a gateway that buffers them dies with the first batch."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.scripts import pieces
from tests.support.serve import GatewayProcess, stopped_at_the_end
from tests.support.usage import ProcessUsage
from tests.support.waiting import settled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.lab import Lab

FAST = SLOW = 25
PART = b"1234567," * 2**17
PARTS = 40
WHOLE = len(PART) * PARTS
LIMIT_BYTES = 64 * 2**20
CPU_PER_ANSWER_S = 0.05


async def read(answer: aiohttp.ClientResponse) -> int:
    """Read a body to its end and keep nothing of it; its length."""
    return sum([len(part) async for part in answer.content.iter_any()])


async def ask(client: aiohttp.ClientSession, url: str) -> int:
    """A client that reads as fast as it can."""
    async with client.post(url, data=b"{}") as answer:
        return await read(answer)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_b65_fifty_answers_of_40_mib_pass_through_64_mib(lab: Lab, tmp_path: Path, framing: str) -> None:
    """B65: half of the clients stop reading at the head until the others are done; the peak grows by less than 64 MiB.

    What a client does not read stays with the engine. An answer costs the gateway less than 50 ms of CPU.
    """
    engine = await lab.engine(pieces([PART] * PARTS, content_type="application/json", framing=framing))
    with stopped_at_the_end(GatewayProcess([engine.url], tmp_path / "gateway.log")) as gateway:
        await gateway.start()
        url = f"{gateway.role_url}/generate"
        async with AsyncExitStack() as stack:
            connector = aiohttp.TCPConnector(limit=0)
            client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            usage = ProcessUsage(gateway.pid)
            usage.forget_peak()
            base, cpu = usage.resident_bytes(), usage.cpu_seconds()

            waiting = [await stack.enter_async_context(client.post(url, data=b"{}")) for _ in range(SLOW)]
            assert await asyncio.gather(*(ask(client, url) for _ in range(FAST))) == [WHOLE] * FAST
            sent = await settled(lambda: sum(connection.sent for connection in engine.connections))
            assert sent < FAST * WHOLE + SLOW * WHOLE / 3, "the engine could send what nobody read"
            assert await asyncio.gather(*map(read, waiting)) == [WHOLE] * SLOW

            grown, spent = usage.peak_bytes() - base, (usage.cpu_seconds() - cpu) / (FAST + SLOW)
        assert grown < LIMIT_BYTES, f"{grown / 2**20:.1f} MiB above {base / 2**20:.1f} MiB"
        assert spent < CPU_PER_ANSWER_S, f"{spent * 1e3:.1f} ms of CPU per answer"
