"""The workers API: shapes, scopes, life of a worker. Sequences of real launchers are in the files beside this one."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.gateway.dropin.conftest import SLOW
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, ModelConfig, RoleConfig
from trimtab_gateway.control.endpoints import WORKERS
from trimtab_gateway.control.workers import routes

if TYPE_CHECKING:
    from tests.gateway.dropin.conftest import Fleet

UNASKED = {"text": "a", "sampling_params": {"max_new_tokens": 2}}


async def test_the_shapes_of_sglang_router(fleet: Fleet) -> None:
    """Every member that 0.3.2 has is there, of the same type."""
    served, engine = await fleet.gateway(), await fleet.engine()
    registered = await served.client.post("/workers", json={"url": engine.url, "priority": 7, "labels": {"zone": "a"}})
    document = registered.json()
    worker_id = document["worker_id"]
    assert str(uuid.UUID(worker_id)) == worker_id
    assert document == {
        "status": "accepted",
        "worker_id": worker_id,
        "url": engine.url,
        "location": f"/workers/{worker_id}",
        "message": document["message"],
    }
    await served.eligible(1)
    listed = (await served.client.get("/workers")).json()
    assert (listed["total"], listed["stats"]) == (1, {"prefill_count": 0, "decode_count": 0, "regular_count": 1})
    shown = (await served.client.get(document["location"])).json()
    assert listed["workers"] == [shown]
    assert shown == {
        "id": worker_id,
        "url": engine.url,
        "model_id": "default",
        "role": "rollout",
        "priority": 7,
        "cost": 1.0,
        "capacity": 1.0,
        "worker_type": "regular",
        "is_healthy": True,
        "status": "ready",
        "load": 0,
        "connection_mode": "HTTP",
        "metadata": {"zone": "a"},
        "disable_health_check": False,
    }
    gone = await served.client.delete(document["location"])
    assert (gone.status_code, gone.json()["status"], gone.json()["worker_id"]) == (202, "accepted", worker_id)
    assert (await served.client.delete(document["location"])).status_code == 404
    assert (await served.client.get(document["location"])).status_code == 404


async def test_the_same_again_is_the_same_worker(fleet: Fleet) -> None:
    """A lost answer costs a repetition; a new capacity is taken over."""
    served, engine = await fleet.gateway(), await fleet.engine()
    first = await served.register(engine.url)
    await served.eligible(1)
    again = await served.register(engine.url.upper().replace("HTTP", "http"), capacity=4)
    assert first == again
    (worker,) = await served.workers()
    assert worker["capacity"] == 4
    assert await served.register(engine.url) == first
    assert (await served.workers())[0]["capacity"] == 4


async def test_an_engine_that_comes_back_is_another_worker(fleet: Fleet) -> None:
    """One that announces itself while its old incarnation is down was restarted: what was known of it is void."""
    served, engine = await fleet.gateway(), await fleet.engine()
    old = await served.register(engine.url)
    await served.eligible(1)
    await engine.stop()
    await served.eligible(0)
    (worker,) = await served.workers()
    assert (worker["is_healthy"], worker["status"]) == (False, "down")
    new = await served.register(engine.url)
    assert new != old
    (worker,) = await served.workers()
    assert (worker["id"], worker["status"]) == (new, "starting")


async def test_removal_drains(fleet: Fleet) -> None:
    """Nothing new goes there, what runs there finishes, then it is forgotten; until then it is listed."""
    served, goes, stays = await fleet.gateway(), await fleet.engine(SLOW), await fleet.engine()
    worker_id = await served.register(goes.url)
    await served.eligible(1)
    body = {"text": "a", "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
    running = asyncio.create_task(served.client.post("/generate", json=body))
    await wait_until(lambda: goes.engine.statistics().running, "the request at the engine")
    await served.register(stays.url)
    await served.eligible(2)
    assert (await served.client.delete(f"/workers/{worker_id}")).status_code == 202
    listed = {worker["url"]: worker for worker in await served.workers()}
    assert (listed[goes.url]["status"], listed[goes.url]["load"]) == ("draining", 1)
    for _ in range(4):
        answer = await served.client.post("/generate", json=UNASKED)
        assert answer.headers["x-trimtab-backend"] == stays.authority
    assert (await running).json()["meta_info"]["completion_tokens"] == 60
    pool = served.gateway.pool("rollout", "default")
    await wait_until(lambda: len(pool.backends()) == 1, "the end of the drain")
    assert [worker["url"] for worker in await served.workers()] == [stays.url]


async def test_a_worker_that_drains_may_come_back(fleet: Fleet) -> None:
    """It is another incarnation at once; what runs on the old one still finishes."""
    served, engine = await fleet.gateway(), await fleet.engine(SLOW)
    old = await served.register(engine.url)
    await served.eligible(1)
    body = {"text": "a", "sampling_params": {"max_new_tokens": 40, "ignore_eos": True}}
    running = asyncio.create_task(served.client.post("/generate", json=body))
    await wait_until(lambda: engine.engine.statistics().running, "the request at the engine")
    await served.client.delete(f"/workers/{old}")
    new = await served.register(engine.url)
    assert [worker["id"] for worker in await served.workers()] == [new]
    assert new != old
    assert (await running).status_code == 200
    await served.eligible(1)


async def test_everything_else_sees_it_too(fleet: Fleet) -> None:
    """Discovery, status, metrics and the endpoint list: a registered engine is an engine."""
    served, engine = await fleet.gateway(), await fleet.engine()
    before = (await served.client.get("/engines")).json()["topology_revision"]
    await served.register(engine.url, labels={"capacity": "2.5"})
    await served.eligible(1)

    document = (await served.client.get("/engines")).json()
    while not (engines := document["models"]["default"]["engines"]) or not engines[0]["direct_eligible"]:
        params = {"wait_seq": document["snapshot_seq"], "wait_ms": 10_000}
        document = (await served.client.get("/engines", params=params)).json()
    assert (engines[0]["base_url"], engines[0]["capacity"]) == (engine.url, 2.5)
    assert document["topology_revision"] == before + 1
    assert engine.authority in (await served.client.get("/metrics")).text
    assert engine.authority in (await served.client.get("/status")).text
    endpoints = (await served.client.get("/")).json()["endpoints"]
    assert {f"{method} {path}" for method, path in WORKERS} <= set(endpoints)
    assert tuple((method, path) for method, path, _ in routes.CALLS) == WORKERS


async def test_a_worker_belongs_to_one_pool(fleet: Fleet) -> None:
    """The prefix or ``model_id`` says which; neither is guessed."""
    served = await fleet.gateway(
        RoleConfig("rollout", (ModelConfig("policy"), ModelConfig("org/draft"))),
        RoleConfig("genrm", (ModelConfig("judge", (EngineConfig("127.0.0.1:9", id="j0"),)),)),
    )
    url = "http://10.0.0.1:30000"
    for path, model_id, code in [
        ("/workers", None, "model_required"),
        ("/rollout/workers", None, "model_required"),
        ("/workers", "nobody", "unknown_model"),
        ("/rollout/workers", "judge", "unknown_model"),
    ]:
        refused = await served.client.post(path, json={"url": url, "model_id": model_id})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, code), path
    by_prefix = await served.client.post("/genrm/workers", json={"url": url})
    assert by_prefix.json()["location"].startswith("/genrm/workers/")
    await served.register(url, "/rollout/workers", model_id="org/draft")
    await served.register("http://10.0.0.2:30000", model_id="rollout/policy")
    listed = {(each["role"], each["model_id"], each["url"]) for each in await served.workers()}
    assert listed == {
        ("genrm", "judge", "http://127.0.0.1:9"),
        ("genrm", "judge", url),
        ("rollout", "org/draft", url),
        ("rollout", "policy", "http://10.0.0.2:30000"),
    }
    assert len(await served.workers("/genrm/workers")) == 2
    assert (await served.client.delete("/genrm/workers/j0")).status_code == 202
    ambiguous = await served.client.post("/remove_worker", params={"url": url})
    assert (ambiguous.status_code, ambiguous.json()["error"]["code"]) == (400, "ambiguous_worker")
    assert (await served.client.post("/genrm/remove_worker", params={"url": url})).status_code == 200
    assert await served.workers("/genrm/workers") == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("nothing", 422, "invalid_request"),
        ({}, 422, "invalid_request"),
        ({"url": 5}, 422, "invalid_request"),
        ({"url": "http://10.0.0.1:1", "labels": []}, 422, "invalid_request"),
        ({"url": "http://10.0.0.1:1", "priority": "high"}, 422, "invalid_request"),
        ({"url": "http://10.0.0.1:1", "capacity": "many"}, 422, "invalid_request"),
        ({"url": "http://10.0.0.1:1", "capacity": -1}, 400, "invalid_capacity"),
        ({"url": "grpc://10.0.0.1:1"}, 400, "invalid_address"),
        ({"url": "http://10.0.0.1"}, 400, "invalid_address"),
        ({"url": "http://10.0.0.1:1", "worker_type": "prefill", "bootstrap_port": 2}, 400, "unsupported_worker"),
        ({"url": "http://10.0.0.1:1", "worker_type": "decode"}, 400, "unsupported_worker"),
        ({"url": "http://10.0.0.1:1", "api_key": "another"}, 400, "unsupported_worker"),
    ],
)
async def test_what_is_refused(fleet: Fleet, body: object, status: int, code: str) -> None:
    """By its name and reason, and nothing is registered."""
    served = await fleet.gateway()
    refused = await served.client.post("/workers", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code), refused.text
    assert refused.headers["x-trimtab-error"] == code
    assert await served.workers() == []


async def test_what_is_no_json_is_refused(fleet: Fleet) -> None:
    """With the reason; a wrong method says which are right."""
    served = await fleet.gateway()
    refused = await served.client.post("/workers", content=b"{")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")
    wrong = await served.client.put("/workers", json={})
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_the_gateway_is_no_worker_of_itself(fleet: Fleet) -> None:
    """It would find itself alive and pass the first request round until it has no sockets."""
    served = await fleet.gateway()
    port = served.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        refused = await served.client.post("/workers", json={"url": f"http://{host}:{port}"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_address")


async def test_liveness_and_readiness(fleet: Fleet) -> None:
    """As sglang-router answers them."""
    served, engine = await fleet.gateway(), await fleet.engine()
    assert (await served.client.get("/liveness")).text == "OK"
    refused = await served.client.get("/readiness")
    assert (refused.status_code, refused.json()["status"]) == (503, "not ready")
    await served.register(engine.url)
    await served.eligible(1)
    ready = await served.client.get("/readiness")
    assert ready.json() == {"status": "ready", "healthy_workers": 1, "total_workers": 1}


async def test_the_engines_of_a_router_are_its_own(fleet: Fleet) -> None:
    """A model behind a router has no workers here, and says where to register them."""
    router = "http://127.0.0.1:9"
    served = await fleet.gateway(RoleConfig("rollout", (ModelConfig("default", router_url=router),)))
    assert await served.workers() == []
    refused = await served.client.post("/workers", json={"url": "http://10.0.0.1:1"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_worker")
    assert router in refused.json()["error"]["message"]
