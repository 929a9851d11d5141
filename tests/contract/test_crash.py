"""Requests that kill the whole engine: no answer, every connection dropped, the port refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.target import Target


async def assert_dead(engine: Target) -> None:
    """The engine refuses connections soon."""
    host, port = engine.url.removeprefix("http://").split(":")

    async def refuses() -> bool:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            return True
        writer.close()
        return False

    for _ in range(200):
        if await refuses():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{engine.url} still accepts connections")


async def test_a_token_outside_the_vocabulary(mortal_engine: Target) -> None:
    """One request takes every other one along: their streams break without ``[DONE]``."""
    await mortal_engine.slow_down()
    async with mortal_engine.stream(500) as stream:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await mortal_engine.generate(1, input_ids=[99_999])
        with pytest.raises((aiohttp.ClientError, asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(stream.rest(), 30)
    await assert_dead(mortal_engine)


async def test_a_second_resume(mortal_engine: Target) -> None:
    """What is not released cannot be resumed."""
    tags = {"tags": ["kv_cache"]}
    assert (await mortal_engine.post("/release_memory_occupation", tags)).status == 200
    assert (await mortal_engine.post("/resume_memory_occupation", tags)).status == 200
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await mortal_engine.post("/resume_memory_occupation", tags)
    await assert_dead(mortal_engine)


async def test_a_release_while_a_request_runs(mortal_engine: Target) -> None:
    """Release needs an idle engine."""
    await mortal_engine.slow_down()
    task = asyncio.create_task(mortal_engine.generate(500))
    await mortal_engine.until_load(1)
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await mortal_engine.post("/release_memory_occupation", {"tags": ["kv_cache"]})
    await wait_until(task.done, "the running request ends", deadline_s=20)
    assert isinstance(task.exception(), aiohttp.ClientError | ConnectionError)
    await assert_dead(mortal_engine)
