"""``/flush_cache``, ``/get_loads`` and ``/v1/loads``: one call, every worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.gateway.dropin.conftest import SLOW
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet

NOBODY = "http://127.0.0.1:9"


async def test_every_cache_is_flushed(fleet: Fleet) -> None:
    """Each engine once; without workers it is a success that flushed nothing, as in sglang-router."""
    served = await fleet.gateway()
    empty = await served.client.post("/flush_cache")
    assert (empty.status_code, empty.json()["status"], empty.json()["workers_flushed"]) == (200, "success", 0)
    for _ in range(2):
        await served.register((await fleet.engine()).url)
    flushed = await served.client.post("/flush_cache")
    assert flushed.status_code == 200
    document = flushed.json()
    assert document.pop("message")
    assert document == {"status": "success", "workers_flushed": 2, "total_http_workers": 2, "total_workers": 2}


async def test_who_did_not_flush_is_named(fleet: Fleet) -> None:
    """206 with the reason: an engine that is gone, and one that is busy and refuses."""
    served, idle, busy = await fleet.gateway(), await fleet.engine(), await fleet.engine(SLOW)
    await served.register(busy.url)
    await served.eligible(1)
    body = {"text": "a", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
    running = asyncio.create_task(served.client.post("/generate", json=body))
    await wait_until(lambda: busy.engine.statistics().running, "the request at the engine")
    for url in (idle.url, NOBODY):
        await served.register(url)
    answer = await served.client.post("/flush_cache")
    document = answer.json()
    assert (answer.status_code, document["status"], document["successful"]) == (206, "partial_success", [idle.url])
    assert {entry["worker"] for entry in document["failed"]} == {busy.url, NOBODY}
    assert next(entry["error"] for entry in document["failed"] if entry["worker"] == busy.url).startswith("400")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_load_of_every_worker(fleet: Fleet) -> None:
    """Tokens in use; -1 is an engine that does not say, never one that is idle."""
    served, engine = await fleet.gateway(), await fleet.engine(SLOW)
    await served.register(engine.url)
    await served.register(NOBODY)
    await served.eligible(1)
    body = {"input_ids": list(range(1, 65)), "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
    running = asyncio.create_task(served.client.post("/generate", json=body))
    await wait_until(lambda: engine.engine.statistics().running, "the request at the engine")
    loads = {entry["worker"]: entry["load"] for entry in (await served.client.get("/get_loads")).json()["workers"]}
    assert loads[engine.url] >= 64
    assert loads[NOBODY] == -1
    answer = await served.client.get("/v1/loads", params={"include": "core"})
    assert answer.status_code == 206
    document = answer.json()
    assert [(entry["worker"], entry["num_running_reqs"]) for entry in document["loads"]] == [(engine.url, 1)]
    assert [entry["worker"] for entry in document["failed"]] == [NOBODY]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_engines_key_is_shown_to_engines(fleet: Fleet) -> None:
    """And to nobody else: the caller shows the admin key, the engine sees its own."""
    from dataclasses import replace

    served = await fleet.gateway(engine_key="of-engines", admin_key="of-admins")
    engine = await fleet.engine(replace(SLOW, api_key="of-engines"))
    await served.register(engine.url, api_key="of-engines")
    flushed = await served.client.post("/flush_cache")
    assert (flushed.status_code, flushed.json()["workers_flushed"]) == (200, 1)
    assert (await served.client.get("/v1/loads")).status_code == 200
