"""What NeMo-RL's SGLang generation sends to an external router, call by call (``use_external_router: true``).

Its driver starts an engine, registers it, waits until the router lists exactly its URL, and generates with ``aiohttp``;
between steps it puts the engines to sleep and updates them without telling the router.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import requests

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet

PATIENCE_S = 30.0
PAUSE_S = 0.5
LOOKS = 12
"""Probes of two engines: six each, and three that fail take an engine out."""


def register(router: str, engine: str) -> float:
    """Register, then look for the byte-equal URL; how long that took, in seconds."""
    payload = {"url": engine, "worker_type": "regular"}
    requests.post(f"{router}/workers", json=payload, timeout=10).raise_for_status()
    begun = time.monotonic()
    while time.monotonic() < begun + PATIENCE_S:
        answer = requests.get(f"{router}/workers", timeout=5)
        answer.raise_for_status()
        if any(worker.get("url") == engine for worker in answer.json().get("workers", [])):
            return time.monotonic() - begun
        time.sleep(PAUSE_S)
    raise AssertionError(f"{engine} was not listed within {PATIENCE_S} s")


def deregister(router: str, engine: str) -> None:
    """Find the worker by its URL and delete it by its id."""
    for worker in requests.get(f"{router}/workers", timeout=5).json()["workers"]:
        if worker["url"] == engine:
            requests.delete(f"{router}/workers/{worker['id']}", timeout=5).raise_for_status()
            return
    raise AssertionError("not listed")


async def generate(router: str, count: int) -> list[dict[str, Any]]:
    """One batch of a step: raw token ids, every log-prob."""
    body = {
        "input_ids": list(range(1, 33)),
        "sampling_params": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8, "no_stop_trim": True},
        "return_logprob": True,
    }
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def one() -> dict[str, Any]:
            async with session.post(f"{router}/generate", json=body) as answer:
                answer.raise_for_status()
                output: dict[str, Any] = await answer.json(content_type=None)
                return output

        return list(await asyncio.gather(*(one() for _ in range(count))))


async def test_a_run(fleet: Fleet) -> None:
    """Two engines, two steps with sleep and update in between, shutdown: nothing fails and nobody is evicted."""
    served = await fleet.gateway()
    engines = [await fleet.engine() for _ in range(2)]
    for engine in engines:
        await asyncio.to_thread(register, served.url, engine.url)
    await served.eligible(2)

    def probes() -> int:
        return int(served.gateway.statistics().data_plane["probes_total"])

    def probed_since(before: int, times: int) -> bool:
        return probes() >= before + times

    async with aiohttp.ClientSession() as worker:

        async def call(url: str, path: str, body: dict[str, Any] | None = None) -> int:
            request = worker.get(f"{url}{path}") if body is None else worker.post(f"{url}{path}", json=body)
            async with request as answer:
                return answer.status

        for version in (1, 2):
            outputs = await generate(served.url, 16)
            for output in outputs:
                meta = output["meta_info"]
                assert meta["finish_reason"]["type"] in ("length", "stop")
                assert len(meta["output_token_logprobs"]) == meta["completion_tokens"] > 0
            for engine in engines:
                assert await call(engine.url, "/flush_cache") == 200
                assert await call(engine.url, "/release_memory_occupation", {"tags": ["kv_cache", "weights"]}) == 200
            # Asleep, and looked at more often than a dead engine would be: still registered, and not taken for one.
            await wait_until(partial(probed_since, probes(), LOOKS), "both engines to be probed several times")
            assert [each["is_healthy"] for each in await served.workers()] == [True, True]
            for engine in engines:
                assert await call(engine.url, "/resume_memory_occupation", {"tags": ["weights"]}) == 200
                path = {"model_path": f"sim://weights/{version}", "weight_version": str(version)}
                assert await call(engine.url, "/update_weights_from_disk", path) == 200
                assert await call(engine.url, "/resume_memory_occupation", {"tags": ["kv_cache"]}) == 200
    for engine in engines:
        await asyncio.to_thread(deregister, served.url, engine.url)
    assert await served.workers() == []
    assert served.gateway.pool("rollout", "default").statistics().outcomes["completed"] == 32


async def test_the_url_is_listed_as_it_was_written(fleet: Fleet) -> None:
    """The driver compares text: spellings that mean the same address come back as they were sent."""
    served = await fleet.gateway()
    for url in ("http://NODE-1:30000", "http://127.0.0.1:9/", "http://[0:0::1]:9"):
        worker_id = await served.register(url)
        (worker,) = await served.workers()
        assert (worker["url"], worker["id"]) == (url, worker_id)
        assert (await served.client.delete(f"/workers/{worker_id}")).status_code == 202
