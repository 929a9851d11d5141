"""A gateway and a manager on the same pools: what a user sees, and that neither goes behind the other's back."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.support import managed
from tests.support.sim_launcher import FAST
from tests.support.waiting import wait_until
from trimtab_manager.sim import running_engine

serving = partial(managed.serving, roles=("rollout", "genrm"))


async def test_workers_of_a_managed_model_come_and_go_by_its_manager() -> None:
    """One that registers is known to updates and in the topology; one that is removed is in neither."""
    async with running_engine(FAST) as foreign, serving() as served:
        before = served.manager.topology("rollout").revision
        answer = await served.client.post("/rollout/workers", json={"url": foreign.url, "capacity": 3})
        assert answer.status_code == 202, answer.text
        assert served.engines() == ["policy/0", "policy/1"]
        assert served.manager.topology("rollout").revision > before
        result = await served.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
        assert {row.engine: row.status for row in result.engines} == {"policy/0": "ok", "policy/1": "ok"}
        assert foreign.engine.weights.version == "7"
        listed = (await served.client.get("/rollout/workers")).json()["workers"]
        assert [worker["capacity"] for worker in listed if worker["url"] == foreign.url] == [3]
        answer = await served.client.delete(f"/rollout/workers/{answer.json()['worker_id']}")
        assert answer.status_code == 202, answer.text
        assert served.engines() == ["policy/0"]
        assert foreign.engine.ready


async def test_an_engine_belongs_to_one_model() -> None:
    """Two models that update one engine would not know what it runs."""
    async with running_engine(FAST) as foreign, serving() as served:
        assert (await served.client.post("/genrm/workers", json={"url": foreign.url})).status_code == 202
        for url in (foreign.url, served.launcher.handles["policy/0"].url):
            answer = await served.client.post("/rollout/workers", json={"url": url})
            assert answer.status_code == 400
            assert "is engine policy/" in answer.json()["error"]["message"]
        assert served.engines() == ["policy/0"]


async def test_what_the_manager_refuses_is_refused() -> None:
    """With its words; nothing is registered."""
    async with serving(elastic_enabled=False) as served:
        answer = await served.client.post("/rollout/workers", json={"url": "127.0.0.1:9"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert "elastic_enabled" in answer.json()["error"]["message"]
        assert served.engines() == ["policy/0"]


async def test_a_fleet_is_scaled_over_http() -> None:
    """Up and down, with a row per engine that came or went."""
    async with serving() as served:
        up = await served.client.post("/rollout/scale", json={"replicas": 3})
        assert (up.status_code, len(up.json()["engines"])) == (200, 2), up.text
        assert served.engines() == ["policy/0", "policy/1", "policy/2"]
        assert (await served.client.post("/rollout/scale", json={"replicas": 0})).status_code == 200
        assert served.engines() == []
        assert (await served.client.post("/rollout/scale", json={"replicas": -1})).status_code == 400
        assert (await served.client.post("/rollout/scale", json={"replicas": 1, "group": "none"})).status_code == 400


async def test_a_paused_model_is_shown_as_paused() -> None:
    """With its engines, wherever somebody looks and to whoever is refused, also while a request is frozen inside."""
    async with serving() as served:
        body = {"text": "a", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}
        frozen = asyncio.ensure_future(served.client.post("/rollout/generate", json=body))
        await wait_until(lambda: served.manager.fleet("rollout").pool.statistics().outstanding == 1, "it runs")
        assert (await served.client.post("/rollout/pause", json={"mode": "in_place"})).status_code == 200
        model = await served.model()
        assert [model["state"], *(each["state"] for each in model["engines"])] == ["paused", "paused"]
        assert model["outstanding"] == 1
        published = (await served.client.get("/rollout/engines")).json()["models"]["policy"]
        assert [published["state"], *(each["state"] for each in published["engines"])] == ["paused", "paused"]
        refused = await served.client.post("/rollout/generate", json=body)
        assert (refused.status_code, refused.json()["error"]["detail"]["state"]) == (503, "paused")
        assert (await served.client.post("/rollout/continue")).status_code == 200
        assert (await served.model())["state"] == "ready"
        frozen.cancel()


async def test_engines_that_are_not_there_are_shown_with_the_reason() -> None:
    """Before they start, while they do, asleep, dead, and while another incarnation comes."""
    async with serving(start=False) as served:
        assert (await served.standing())["policy/0"] == ("absent", "not started")
        served.launcher.gate.clear()
        starting = asyncio.ensure_future(served.manager.activate("rollout"))
        await wait_until(lambda: bool(served.launcher.requests), "its launch is asked for")
        assert (await served.standing())["policy/0"] == ("starting", None)
        served.launcher.gate.set()
        await starting
        assert (await served.standing())["policy/0"] == ("ready", None)
        await served.manager.sleep("rollout")
        assert (await served.model())["manager"]["hold"] == "sleeping"
        assert (await served.standing())["policy/0"][0] == "sleeping"
        await served.manager.wake("rollout")
        served.launcher.gate.clear()
        served.launcher.handles["policy/0"].kill()
        await wait_until(lambda: len(served.launcher.requests) == 2, "its replacement is asked for")
        state, reason = (await served.standing())["policy/0"]
        assert state == "starting"
        assert reason is not None
        assert "generation 1 died" in reason
        served.launcher.gate.set()
        await wait_until(lambda: served.engines() == ["policy/0"], "it is back")


@pytest.mark.parametrize("operation", ["drain", "sleep", "update"])
async def test_a_backend_that_was_removed_behind_the_manager_breaks_no_operation(operation: str) -> None:
    """Whoever has the pool in its own process can do that: the others go on."""
    async with serving(2) as served:
        served.manager.fleet("rollout").pool.remove_backend("policy/1")
        if operation == "drain":
            assert (await served.manager.drain("rollout")).ok
        elif operation == "sleep":
            assert (await served.manager.sleep("rollout")).ok
            assert (await served.manager.wake("rollout")).ok
        else:
            result = await served.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
            assert {row.engine: row.state for row in result.engines}["policy/0"] == "ready"
