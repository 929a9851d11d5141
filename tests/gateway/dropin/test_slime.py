"""What slime's launcher and rollout loop send to their router, call by call, with the HTTP clients they use.

It starts an engine, registers it, generates through the router, and at the end of a step aborts what is left straight
on the engines. ``--sglang-router-ip/port`` is all that points it here.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
import requests

from tests.gateway.dropin.conftest import SLOW
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet, Served
    from trimtab_manager.sim import SimServer


async def launched(served: Served, engine: SimServer) -> None:
    """The end of an engine's start: the launcher process registers it with ``requests``."""
    answer = await asyncio.to_thread(
        requests.post, f"{served.url}/workers", json={"url": engine.url, "worker_type": "regular"}, timeout=10
    )
    answer.raise_for_status()
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")


def generation(session_id: str, tokens: int = 4) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of one sample with ``--sglang-router-policy consistent_hashing``."""
    body = {
        "input_ids": list(range(1, 20)),
        "sampling_params": {
            "temperature": 1.0,
            "max_new_tokens": tokens,
            "ignore_eos": True,
            "no_stop_trim": True,
            "spaces_between_special_tokens": False,
        },
        "return_logprob": True,
        "return_routed_experts": False,
    }
    return body, {"X-SMG-Routing-Key": session_id}


async def test_b54_the_router_starts_before_the_engines(fleet: Fleet) -> None:
    """Empty it is alive and not ready, and tells every caller so; one registered engine later it serves."""
    served = await fleet.gateway()
    assert (await served.client.get("/live")).status_code == 200
    assert (await served.client.get("/ready")).status_code == 503
    assert await served.workers() == []
    refused = await served.client.post("/generate", json=generation("s")[0])
    assert (refused.status_code, refused.headers["x-trimtab-error"]) == (503, "no_eligible_backend")
    assert refused.headers["retry-after"]
    await launched(served, await fleet.engine())
    await served.eligible(1)
    assert (await served.client.get("/ready")).status_code == 200
    assert (await served.client.post("/generate", json=generation("s")[0])).status_code == 200


async def test_b54_an_engine_that_does_not_answer_gets_nothing(fleet: Fleet) -> None:
    """Registered is not reached: no request goes to an engine that no probe has found."""
    served = await fleet.gateway()
    await served.register("http://127.0.0.1:9")
    (worker,) = await served.workers()
    assert (worker["is_healthy"], worker["status"]) == (False, "starting")
    assert (await served.client.post("/generate", json=generation("s")[0])).status_code == 503


async def test_a_step_of_rollout(fleet: Fleet) -> None:
    """Samples of a group run over all engines; the answers have what a trainer reads."""
    served = await fleet.gateway()
    engines = [await fleet.engine() for _ in range(2)]
    for engine in engines:
        await launched(served, engine)
    await served.eligible(2)
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=64), timeout=None, trust_env=False) as client:

        async def sample() -> dict[str, Any]:
            body, headers = generation(str(uuid.uuid4()))
            answer = await client.post(f"{served.url}/generate", json=body, headers=headers)
            answer.raise_for_status()
            output: dict[str, Any] = answer.json()
            return output

        outputs = await asyncio.gather(*(sample() for _ in range(32)))
    for output in outputs:
        meta = output["meta_info"]
        assert meta["finish_reason"]["type"] == "length"
        assert len(meta["output_token_logprobs"]) == meta["completion_tokens"] == 4
    assert sorted(worker["load"] for worker in await served.workers()) == [0, 0]
    finished = [engine.engine.statistics().requests_finished for engine in engines]
    assert sum(finished) == 32
    assert min(finished) > 0


async def test_the_turns_of_a_sample_stay_on_their_engine(fleet: Fleet) -> None:
    """``X-SMG-Routing-Key`` is a session: the second turn finds the cache of the first."""
    served = await fleet.gateway()
    for _ in range(3):
        await launched(served, await fleet.engine())
    await served.eligible(3)
    for _ in range(4):
        body, headers = generation(str(uuid.uuid4()))
        answers = [await served.client.post("/generate", json=body, headers=headers) for _ in range(4)]
        assert len({answer.headers["x-trimtab-backend"] for answer in answers}) == 1


async def test_the_abort_at_the_end_of_a_step(fleet: Fleet) -> None:
    """URLs from ``GET /workers``, an abort of all on each, again until its load is 0: every client has an answer."""
    served = await fleet.gateway()
    engines = [await fleet.engine(SLOW) for _ in range(2)]
    for engine in engines:
        await launched(served, engine)
    await served.eligible(2)
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        body, headers = generation("s", tokens=3000)
        pending = [
            asyncio.create_task(client.post(f"{served.url}/generate", json=body, headers={**headers, "x-n": str(n)}))
            for n in range(8)
        ]
        running = served.gateway.pool("rollout", "default")
        await wait_until(lambda: running.statistics().outstanding == 8, "running requests")
        await wait_until(lambda: sum(each.engine.statistics().running for each in engines) == 8, "all at the engines")
        urls = [worker["url"] for worker in (await client.get(f"{served.url}/workers")).json()["workers"]]
        assert sorted(urls) == sorted(engine.url for engine in engines)

        async def until_idle(url: str) -> None:
            while True:
                (await client.post(f"{url}/abort_request", json={"abort_all": True})).raise_for_status()
                loads = (await client.get(f"{url}/v1/loads", params={"include": "core"})).json()["loads"]
                if sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads) == 0:
                    return

        await asyncio.gather(*map(until_idle, urls))
        outputs = [answer.json() for answer in await asyncio.gather(*pending)]
    assert {output["meta_info"]["finish_reason"]["type"] for output in outputs} == {"abort"}
    await wait_until(lambda: running.statistics().outstanding == 0, "no running requests")
    assert running.statistics().outcomes["aborted"] == 8


@pytest.mark.parametrize("by", ["id", "url", "old"])
async def test_an_engine_shuts_down(fleet: Fleet, by: str) -> None:
    """By the id that the list names, by the URL (before 0.3.0), by ``/remove_worker`` (before 0.2.2): it is gone."""
    served = await fleet.gateway()
    stays, goes = await fleet.engine(), await fleet.engine()
    for engine in (stays, goes):
        await launched(served, engine)

    def shut_down() -> requests.Response:
        if by == "old":
            return requests.post(f"{served.url}/remove_worker?url={goes.url}", timeout=10)
        name = quote(goes.url, safe="")
        if by == "id":
            listed = requests.get(f"{served.url}/workers", timeout=10).json()["workers"]
            name = next(worker["id"] for worker in listed if worker["url"] == goes.url)
        return requests.delete(f"{served.url}/workers/{name}", timeout=10)

    answer = await asyncio.to_thread(shut_down)
    answer.raise_for_status()
    assert [worker["url"] for worker in await served.workers()] == [stays.url]


async def test_the_old_names(fleet: Fleet) -> None:
    """``/add_worker?url=`` and ``/list_workers``, as slime's own router had them."""
    served = await fleet.gateway()
    engine = await fleet.engine()

    def add() -> requests.Response:
        return requests.post(f"{served.url}/add_worker?url={engine.url}", timeout=10)

    answer = await asyncio.to_thread(add)
    assert (answer.status_code, answer.json()) == (200, {"status": "success", "worker_urls": {engine.url: 0}})
    listed = await served.client.get("/list_workers")
    assert listed.json() == {"urls": [engine.url]}
    assert (await served.client.post("/add_worker")).status_code == 400
    body = await served.client.post("/add_worker", json={"worker_url": "http://127.0.0.1:9"})
    assert sorted(body.json()["worker_urls"]) == sorted(["http://127.0.0.1:9", engine.url])


async def test_a_launcher_without_a_place_for_a_key(fleet: Fleet) -> None:
    """It sends none; ``--sglang-router-ip name:key@host`` makes its HTTP clients send one (B51)."""
    served = await fleet.gateway(admin_key="secret")
    engine = await fleet.engine()
    ip, port = served.url.removeprefix("http://").split(":")
    body = {"url": engine.url, "worker_type": "regular"}
    keyless = await asyncio.to_thread(requests.post, f"http://{ip}:{port}/workers", json=body, timeout=10)
    assert keyless.status_code == 401
    keyed = f"http://slime:secret@{ip}:{port}"
    answer = await asyncio.to_thread(requests.post, f"{keyed}/workers", json=body, timeout=10)
    assert answer.status_code == 202
    await served.eligible(1)
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{keyed}/workers")).json()["total"] == 1
        assert (await client.post(f"{keyed}/generate", json=generation("s")[0])).status_code == 200
