"""``/ready`` (B54): 200 exactly while every required pool has the engines it must have."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.scripts import one
from tests.support.sockets import silent_address
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal, TypeAlias

    from tests.gateway.control.conftest import Start
    from tests.support.lab import Lab

    UpdateKind: TypeAlias = Literal["weights", "offload", "pause"]


KINDS: dict[UpdateKind, str] = {"weights": "updating", "offload": "sleeping", "pause": "paused"}
"""Kinds of updates, and the state of a model whose engines run nothing during one."""


def config(**models: ModelConfig) -> GatewayConfig:
    """One role with these models."""
    return GatewayConfig((RoleConfig("rollout", tuple(models.values())),), port=0, probe_interval_s=0.05)


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Engines of which probes find out nothing for seconds: the test alone says which of them are well."""
    with ExitStack() as stack:
        yield [stack.enter_context(silent_address()) for _ in range(3)]


async def test_b54_a_gateway_without_engines_is_live_and_becomes_ready_with_one(serve: Start, lab: Lab) -> None:
    """It starts with none; an engine that comes and answers makes it ready, one that sleeps not, with the reason."""
    served = await serve(config(tiny=ModelConfig("tiny")))
    assert (await served.get("/live")).status_code == 200
    empty = await served.get("/ready")
    assert empty.status_code == 503
    assert "no eligible backend" in empty.json()["reason"]
    pool = served.gateway.pool("rollout", "tiny")
    engine = await lab.engine(one())
    pool.add_backend(engine.authority, proven=False)
    await served.eligible(1)
    assert (await served.get("/ready")).status_code == 200
    pool.begin_update("sleep", kind="offload")
    asleep = await served.get("/ready")
    assert (asleep.status_code, asleep.json()["reason"]) == (503, 'pool "rollout/tiny" is sleeping')
    assert (await served.get("/live")).status_code == 200
    assert (await served.get("/health")).status_code == 200


async def test_b54_a_pool_is_ready_with_the_minimum_it_was_given(serve: Start, silent: list[str]) -> None:
    """Two of three engines when two are asked for; a model that is not required is never the reason."""
    engines = tuple(map(EngineConfig, silent))
    big = ModelConfig("big", engines, min_ready_engines=2)
    served = await serve(config(big=big, spare=ModelConfig("spare", min_ready_engines=0)))
    pool = served.gateway.pool("rollout", "big")
    first, second, _ = pool.backends()
    pool.report_probe(first, alive=True)
    few = await served.get("/ready")
    assert few.status_code == 503
    assert 'pool "rollout/big" has 1 eligible backends and must have 2' in few.json()["reason"]
    pool.report_probe(second, alive=True)
    enough = await served.get("/ready")
    assert enough.status_code == 200
    assert {name: pool["min_ready"] for name, pool in enough.json()["pools"].items()} == {
        "rollout/big": 2,
        "rollout/spare": 0,
    }


async def test_an_update_of_weights_leaves_it_ready(serve: Start, silent: list[str]) -> None:
    """It takes seconds and comes with every step: a gateway must not leave its load balancer for each."""
    served = await serve(config(tiny=ModelConfig("tiny", (EngineConfig(silent[0]),))))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.publish("start", 1)
    pool.begin_update("u", to=2)
    document = (await served.get("/ready")).json()
    assert (document["ready"], document["pools"]["rollout/tiny"]["state"]) == (True, "updating")
    pool.fail("enough")
    assert (await served.get("/ready")).json()["reason"] == 'pool "rollout/tiny" is failed'


async def test_a_refusal_says_in_which_state_the_model_is(serve: Start, silent: list[str]) -> None:
    """On OpenAI paths and others: code, role, model, state and phase, when to come back, and no engine was asked."""
    served = await serve(config(tiny=ModelConfig("tiny", (EngineConfig(silent[0]),))))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.publish("start", 1)

    async def refused(path: str, code: str, state: str) -> None:
        answer = await served.client.post(path, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        error = answer.json()["error"]
        facts = {key: error["detail"][key] for key in ("role", "model", "state", "phase")}
        assert (error["code"], facts) == (code, {"role": "rollout", "model": "tiny", "state": state, "phase": None})
        assert ("type" in error) == (path != "/generate")

    for path in ("/generate", "/v1/chat/completions", "/rollout/chat/completions", "/v1/completions"):
        pool.fence("default", "maintenance")
        await refused(path, "fenced", "paused")
        pool.unfence("default", "maintenance")
        for kind, state in KINDS.items():
            update = f"{kind}-{path}"
            pool.begin_update(update, kind=kind)
            await refused(path, "not_serving", state)
            pool.cancel_update(update)
            pool.end_server_pause(update)
    pool.drain_backend(silent[0])
    await refused("/generate", "no_eligible_backend", "draining")
    await wait_until(lambda: pool.statistics().outstanding == 0, "nothing ran")
    assert sum(pool.statistics().picks.values()) == 0


async def test_options_names_the_methods_of_a_path(serve: Start) -> None:
    """204 with Allow wherever something is served, with and without the prefix; 404 where nothing is."""
    served = await serve(config(tiny=ModelConfig("tiny")))
    for path, allow in {
        "/generate": "POST",
        "/rollout/v1/chat/completions": "POST",
        "/abort_request": "POST",
        "/live": "GET, HEAD",
        "/openapi.json": "GET, HEAD",
        "/engines": "GET, HEAD",
        "/rollout/health": "GET, HEAD",
    }.items():
        answer = await served.client.options(path)
        assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allow, b""), path
    assert (await served.client.options("/nothing")).status_code == 404


async def test_every_endpoint_refuses_other_methods_with_allow(serve: Start) -> None:
    """As JSON, as an OpenAI error object where OpenAI clients ask, with and without the prefix."""
    served = await serve(config(tiny=ModelConfig("tiny")))
    document = await served.json("/openapi.json")
    for template, item in document["paths"].items():
        if template.startswith("/v1/router/"):
            continue
        path = template.replace("{worker}", "x").replace("{entry}", "x").replace("{file}", "app.js")
        allowed = {method.upper() for method in item.keys() - {"parameters"}}
        for concrete in {path.replace("{role}", "rollout"), path.replace("/{role}", "")}:
            for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - allowed:
                answer = await served.client.request(method, concrete, content=b"{}")
                assert answer.status_code == 405, (method, concrete)
                assert allowed <= set(answer.headers["allow"].split(", "))
                error = answer.json()["error"]
                assert error["code"] == answer.headers["x-trimtab-error"] == "method_not_allowed"
                assert ("type" in error) == ("/v1/" in concrete or concrete.endswith("/chat/completions"))
