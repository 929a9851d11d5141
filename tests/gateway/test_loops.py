"""Gateways in a row: each adds itself to ``Via``, and a request that comes round is refused instead of passed on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.expect import error
from tests.support.lab import Gateway
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway import Gateway as WholeGateway

if TYPE_CHECKING:
    from tests.support.http1 import Response
    from tests.support.lab import Lab

NAME = re.compile(r"1\.1 (trimtab-[0-9a-f]{16})")
ENDPOINTS = ["/generate", "/v1/chat/completions", "/abort_request"]


def address(gateway: Gateway) -> str:
    """Where it would be an engine."""
    return f"{gateway.host}:{gateway.port}"


async def without_engines(lab: Lab) -> Gateway:
    """A gateway whose probes of the start are over, so that nothing but a test sends anything."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.remove_backend(engine.authority)
    return gateway


def looped(answer: Response) -> list[str]:
    """The names of the gateways that a request has passed which was refused by the one that it came back to."""
    assert answer.status == 508, answer.body
    refused = answer.json()["error"]
    assert (refused["code"], refused["retryable"]) == ("loop_detected", False)
    assert "take that address out of the engines" in refused["message"]
    return NAME.findall(refused["detail"]["via"])


async def test_a_gateway_that_is_its_own_engine(lab: Lab) -> None:
    """The request comes back once, and has one lease."""
    gateway = await without_engines(lab)
    before = gateway.plane.statistics()["upstream_connections_total"]
    gateway.pool.add_backend(address(gateway))
    (name,) = looped(await gateway.post("/generate"))
    assert name.startswith("trimtab-")
    await gateway.idle()
    assert gateway.outcomes() == {"failed": 1}
    assert gateway.plane.statistics()["upstream_connections_total"] == before + 1


async def test_gateways_that_are_each_others_engines(lab: Lab) -> None:
    """It passes both, and the first one knows it again, whichever that is."""
    first, second = await without_engines(lab), await without_engines(lab)
    first.pool.add_backend(address(second))
    second.pool.add_backend(address(first))
    names = looped(await first.post("/generate"))
    assert len(set(names)) == 2
    assert looped(await second.post("/generate")) == names[::-1]
    await first.idle()
    await second.idle()
    assert (first.outcomes(), second.outcomes()) == ({"failed": 2}, {"failed": 2})


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_whatever_goes_to_engines_is_refused(lab: Lab, path: str) -> None:
    """Generations and aborts, before their bodies are looked at; the answer says that nobody need ask again."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate", b"{}")
    via = engine.requests[0].head.get("via")
    assert via is not None
    answer = await gateway.post(path, b"no JSON", [("Via", f"1.0 proxy, {via}")])
    refused = error(answer, 508, "loop_detected", openai="v1" in path)
    assert refused["detail"]["via"] == f"1.0 proxy, {via}"
    assert len(engine.requests) == 1


async def test_an_abort_of_all_does_not_go_round(lab: Lab) -> None:
    """Each gateway asks its engine once; the first one says that it was not aborted there."""
    first, second = await without_engines(lab), await without_engines(lab)
    first.pool.add_backend(address(second))
    second.pool.add_backend(address(first))
    refused = error(await first.post("/abort_request", b'{"abort_all":true}'), 502, "abort_unconfirmed")
    assert [engine["engine_status"] for engine in refused["detail"]["engines"]] == [502]
    told = [gateway.plane.statistics()["aborts_sent_total"] for gateway in (first, second)]
    assert told == [1, 1]


async def test_a_gateway_in_front_of_another_one(lab: Lab) -> None:
    """No loop: the engine learns whom the request has passed, after the proxies that its client names."""
    engine = await lab.engine(one())
    back = await lab.gateway(engine)
    front = await without_engines(lab)
    front.pool.add_backend(address(back))
    answer = await front.post("/generate", b"{}", [("Via", "1.0 proxy")])
    assert answer.status == 200
    proxy, *passed = engine.requests[0].head.all("via")
    assert proxy == "1.0 proxy"
    assert len({NAME.fullmatch(hop) for hop in passed} - {None}) == len(set(passed)) == 2


async def test_a_failed_attempt_names_the_gateway_once(lab: Lab) -> None:
    """Also a request that is sent to a second engine has passed here once."""
    engine = await lab.engine(one())
    gateway = await lab.gateway("127.0.0.1:1", engine, capacities=[100, 1])
    assert (await gateway.post("/generate")).status == 200
    assert len(engine.requests[0].head.all("via")) == 1
    assert gateway.outcomes() == {"not_sent": 1, "completed": 1}


async def test_a_probe_finds_the_loop(lab: Lab) -> None:
    """It goes down before a request is lost on it, and ``/ready`` says why."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, probe_interval_s=0.02)
    gateway.pool.add_backend(address(gateway), id="itself")

    def is_down() -> bool:
        return any(b.id == "itself" and b.health == "down" for b in gateway.pool.statistics().backends)

    await wait_until(is_down, "the gateway is no engine")
    answer = await gateway.get("/ready")
    (pool,) = answer.json()["pools"].values()
    assert "its own engine" in pool["notes"]["itself"]


async def test_what_the_control_app_asks_of_engines_does_not_go_round() -> None:
    """``/flush_cache`` and its like are asked of every engine: a gateway among them answers, and asks nobody."""
    model = ModelConfig("tiny", (EngineConfig("127.0.0.1:1"),))
    config = GatewayConfig((RoleConfig("rollout", (model,)),), port=0)
    async with WholeGateway(config) as gateway, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        pool = gateway.pool("rollout", "tiny")
        pool.add_backend(gateway.url, id="itself")
        answer = await client.post("/flush_cache")
        assert answer.status_code == 206
        failed = {row["worker"]: row["error"] for row in answer.json()["failed"]}
        (said,) = (error for worker, error in failed.items() if worker.rstrip("/") == gateway.url.rstrip("/"))
        assert said.startswith("508: ")
        assert "loop_detected" in said
