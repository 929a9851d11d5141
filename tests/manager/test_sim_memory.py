"""An engine with a memory saver: what it dies of, and what it forgets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimServer

SAVING = SimConfig(time_scale=0, memory_saver=True)
BODY = {"text": "abc", "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}}


@pytest.fixture
async def saving() -> AsyncIterator[SimServer]:
    """An engine that really gives memory back."""
    async with running_engine(SAVING) as server:
        yield server


async def post(web: aiohttp.ClientSession, server: SimServer, path: str, body: Any) -> Any:
    """The JSON of an answer."""
    async with web.post(server.url + path, json=body) as answer:
        return await answer.json(content_type=None)


@pytest.mark.parametrize("tag", ["weights", "kv_cache"])
async def test_a_step_without_its_memory_kills(saving: SimServer, web: aiohttp.ClientSession, tag: str) -> None:
    """As an illegal memory access does on a GPU."""
    await post(web, saving, "/release_memory_occupation", {"tags": [tag]})
    with pytest.raises(aiohttp.ClientError):
        await post(web, saving, "/generate", BODY)
    assert "illegal memory access" in await asyncio.wait_for(asyncio.shield(saving.crashed), 10)


async def test_a_second_release_kills(saving: SimServer, web: aiohttp.ClientSession) -> None:
    """The memory saver refuses to pause what is paused."""
    await post(web, saving, "/release_memory_occupation", {"tags": ["weights"]})
    with pytest.raises(aiohttp.ClientError):
        await post(web, saving, "/release_memory_occupation", {"tags": ["kv_cache", "weights"]})
    assert saving.engine.crashed == "memory saver: weights is paused already"


async def test_released_weights_are_lost(saving: SimServer, web: aiohttp.ClientSession) -> None:
    """Their memory comes back without them; an update brings them."""
    right = (await post(web, saving, "/generate", BODY))["text"]
    await post(web, saving, "/release_memory_occupation", {"tags": ["weights"]})
    await post(web, saving, "/resume_memory_occupation", {"tags": ["weights"]})
    assert (await post(web, saving, "/generate", BODY))["text"] != right
    await post(web, saving, "/update_weights_from_disk", {"model_path": SAVING.model_path})
    assert (await post(web, saving, "/generate", BODY))["text"] == right
