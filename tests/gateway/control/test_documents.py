"""Health, models, status and index: what each says, for engines that answer and engines that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gateway.control.conftest import NOBODY, one_role, two_roles
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab.errors import DrainTimeout
from trimtab_gateway import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Start
    from tests.support.lab import Lab


async def test_health_is_200_once_an_engine_answers(serve: Start, lab: Lab) -> None:
    """Per model: its state and where its engines stand. One role also answers without its prefix."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority), EngineConfig(NOBODY)))
    await served.eligible(1)
    document = await served.json("/health")
    assert document == await served.json("/rollout/health")
    assert (document["status"], document["role"]) == ("healthy", "rollout")
    model = document["models"]["tiny"]
    assert (model["state"], model["registered"], model["eligible"], model["unproven"]) == ("ready", 2, 1, 1)


async def test_health_is_503_while_no_engine_answers(serve: Start) -> None:
    """With retry guidance; the gateway itself goes on answering."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    answer = await served.get("/rollout/health")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["status"] == "unhealthy"


async def test_health_is_degraded_while_one_of_two_models_can_serve(serve: Start) -> None:
    """A role is useful as long as one model is."""
    served = await serve(two_roles())
    pool = served.gateway.pool("rollout", "policy")
    pool.report_probe(pool.backends()[0], alive=True)
    document = await served.json("/rollout/health")
    states = {name: model["state"] for name, model in document["models"].items()}
    assert (document["status"], states) == ("degraded", {"policy": "ready", "Qwen/Qwen3-0.6B": "unavailable"})


async def test_b54_health_tells_a_sleeping_model_from_a_dead_one(serve: Start) -> None:
    """What a controller holds is not ill, whatever it does with it; what failed is."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.publish("start", 1)
    lease = pool.acquire()
    pool.begin_update("sleep", kind="offload")

    async def state() -> tuple[int, str, str]:
        await served.forget_snapshot()
        answer = await served.get("/health")
        document = answer.json()
        assert document["service"] == "rollout"
        return answer.status_code, document["status"], document["models"]["tiny"]["state"]

    assert await state() == (200, "healthy", "draining")
    lease.settle("completed")
    assert await state() == (200, "healthy", "sleeping")
    pool.drain("sleep", timeout_s=1.0)
    pool.cancel_update("sleep")
    assert await state() == (200, "healthy", "paused")
    pool.end_server_pause("sleep")
    assert await state() == (200, "healthy", "ready")
    pool.fence("default", "maintenance")
    assert await state() == (200, "healthy", "paused")
    pool.begin_update("weights", to=2)
    assert await state() == (200, "healthy", "updating")
    pool.fail("the trainer gave up")
    assert await state() == (503, "unhealthy", "failed")


async def test_models_lists_every_name_as_openai_does(serve: Start) -> None:
    """A model that cannot serve now is still a model of the role."""
    served = await serve(two_roles())
    document = await served.json("/rollout/v1/models")
    assert document["object"] == "list"
    assert [model["id"] for model in document["data"]] == ["policy", "Qwen/Qwen3-0.6B"]
    assert {model["object"] for model in document["data"]} == {"model"}


async def test_status_counts_what_ran(serve: Start, lab: Lab) -> None:
    """Pools, engines and the data plane, in one document that agrees with ``statistics()``."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority, 4)))
    await served.eligible(1)
    answer = await served.client.post("/generate", json={"text": "a"}, headers={"x-trimtab-session": "s"})
    assert answer.status_code == 200, answer.text
    await wait_until(lambda: served.gateway.pool("rollout", "tiny").statistics().outstanding == 0, "the lease to end")
    await served.forget_snapshot()
    document = await served.json("/status")
    model = document["roles"]["rollout"]["models"]["tiny"]
    (shown,) = model["engines"]
    assert (document["ready"], model["state"], model["sessions"], model["outstanding"]) == (True, "ready", 1, 0)
    assert (shown["capacity"], shown["picks"], shown["outcomes"]["completed"], shown["health"]) == (4.0, 1, 1, "up")
    assert model["output_tokens"] == shown["output_tokens"] == 3
    assert document["data_plane"]["requests_total"]["200"] == 1
    assert document["uptime_s"] > 0


async def test_status_shows_an_update_and_who_waits_for_it(serve: Start) -> None:
    """Pool state, version, update, owners with fences and leases, senders and waiters, in the words of the pool."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.publish("u-1", 1)
    pool.attach_owner("train", 1)
    pool.attach_sender("worker", "i-1", "train")
    lease = pool.acquire("s", key=("worker", "i-1", 1))
    pool.fence("train", "sender_pause")
    pool.begin_update("u-2", to=2)
    waiting = pool.acquire_or_park(wait_s=60.0)
    await served.forget_snapshot()
    model = (await served.json("/status"))["roles"]["rollout"]["models"]["tiny"]
    assert (model["pool_state"], model["server_paused"], model["weight_version"]) == ("quiescing", True, 1)
    assert (model["pool_generation"], model["waiters"], model["failure"]) == (1, 1, None)
    update = {"update_id": "u-2", "kind": "weights", "to_version": 2, "phase": "quiescing", "outstanding": 1}
    assert model["update"] == update
    assert [each["update_id"] for each in model["last_updates"]] == ["u-1"]
    default, train = model["owners"]
    assert (default["owner"], default["fences"], default["waiters"]) == ("default", [], 1)
    assert train == {
        "owner": "train",
        "fences": ["sender_pause"],
        "acknowledged": 1,
        "needs_acknowledgement": True,
        "waiters": 0,
        "outstanding": 1,
        "per_engine": {"e0": 1},
    }
    (sender,) = model["senders"]
    assert (sender["sender"], sender["incarnation"], sender["owner"]) == ("worker", "i-1", "train")
    assert (sender["open_leases"], sender["tombstones"]) == (1, 0)
    assert model["leases"] == {
        "open": 1,
        "settled": 0,
        "tombstones": 0,
        "unexpected_aborts": 0,
        "version_mismatches": 0,
    }
    assert model["engines"][0]["tainted"] is False
    assert (await served.json("/engines"))["models"]["tiny"]["weight_version"] == 1
    lease.settle("completed")
    del waiting


async def test_a_pool_that_is_over_is_not_ready(serve: Start) -> None:
    """Its engines are well, and still nothing is granted: health says so, and status says why."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.fail("the trainer gave up")
    await served.forget_snapshot()
    model = (await served.json("/status"))["roles"]["rollout"]["models"]["tiny"]
    assert (model["state"], model["pool_state"]) == ("failed", "failed")
    assert "the trainer gave up" in model["failure"]
    assert (await served.json("/health", 503))["models"]["tiny"]["state"] == "failed"


async def test_a_versioned_pool_starts_when_its_first_version_is_published(serve: Start) -> None:
    """Until then it is starting, however well its engines are."""
    role = RoleConfig("rollout", (ModelConfig("tiny", (EngineConfig(NOBODY),), versioned=True),))
    served = await serve(GatewayConfig((role,), port=0))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    await served.forget_snapshot()
    assert (await served.json("/health", 503))["models"]["tiny"]["state"] == "starting"
    pool.publish("u-1", 1)
    await served.forget_snapshot()
    assert (await served.json("/health"))["models"]["tiny"]["state"] == "ready"


async def test_the_knobs_of_a_model_reach_its_pool(serve: Start) -> None:
    """An unclear end fails a pool that was told so; a late drain leaves one alone that was told so."""
    engines = (EngineConfig(NOBODY),)
    strict = ModelConfig("strict", engines, on_ambiguous="fail_pool")
    patient = ModelConfig("patient", (EngineConfig("127.0.0.1:10"),), on_drain_timeout="report")
    served = await serve(GatewayConfig((RoleConfig("rollout", (strict, patient)),), port=0))
    pools = [served.gateway.pool("rollout", name) for name in ("strict", "patient")]
    for pool in pools:
        pool.report_probe(pool.backends()[0], alive=True)
    pools[0].acquire().settle("ambiguous")
    lease = pools[1].acquire()
    pools[1].begin_update("u-1")
    with pytest.raises(DrainTimeout):
        pools[1].drain("u-1", timeout_s=0.0)
    assert [pool.state for pool in pools] == ["failed", "quiescing"]
    lease.settle("completed")


async def test_the_index_says_what_there_is(serve: Start) -> None:
    """``/`` is for a person with curl."""
    served = await serve(two_roles())
    document = await served.json("/")
    assert (document["name"], document["roles"]) == ("trimtab", ["rollout", "genrm"])
    assert "GET /genrm/engines" in document["endpoints"]


async def test_head_answers_as_get_without_a_body(serve: Start) -> None:
    """Load balancers and uptime checks ask with HEAD."""
    served = await serve(one_role())
    for path in ("/", "/engines", "/rollout/v1/models", "/metrics", "/status"):
        answer = await served.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["server"] == "trimtab"
        assert int(answer.headers["content-length"]) > 0
