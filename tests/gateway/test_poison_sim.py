"""A request that kills engines, over simulated ones behind a whole gateway: refused before it kills the last one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.sglang_traffic import greedy
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trimtab import Pool
    from trimtab_manager.sim import SimEngine

ENGINES = 3
ADMIN_KEY = "the-admin-key"
POISON: dict[str, Any] = greedy((1, 2, 10**6), 4)
"""Its last token id is outside the vocabulary."""


@dataclass(frozen=True)
class Bench:
    """Simulated engines behind a gateway with an admin key."""

    engines: Mapping[str, SimEngine]
    gateway: Gateway
    http: aiohttp.ClientSession

    @property
    def pool(self) -> Pool:
        """The only pool."""
        return self.gateway.pool("rollout", "tiny")

    def taken(self) -> int:
        """Requests that the engines ever took."""
        return sum(engine.statistics().requests_received for engine in self.engines.values())

    async def generate(self, body: dict[str, Any], session: str | None = None) -> tuple[int, Any]:
        """Status and answer of one generation."""
        headers = {} if session is None else {"x-session-id": session}
        async with self.http.post(f"{self.gateway.url}/rollout/generate", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def kill_two(self) -> None:
        """The poison, and its repetition under another id and without a session."""
        for attempt in range(2):
            status, payload = await self.generate({**POISON, "rid": f"attempt-{attempt}"})
            assert (status, payload["error"]["code"]) == (502, "upstream_broken")

    async def call(self, method: str, path: str, *, key: str | None = ADMIN_KEY) -> tuple[int, Any]:
        """A call of the control app."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        async with self.http.request(method, f"{self.gateway.url}{path}", headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """It ends with the test, with nothing outstanding."""
    async with AsyncExitStack() as stack:
        config = SimConfig(time_scale=0)
        servers = [await stack.enter_async_context(running_engine(config)) for _ in range(ENGINES)]
        model = ModelConfig("tiny", tuple(EngineConfig(server.url) for server in servers))
        whole = GatewayConfig((RoleConfig("rollout", (model,)),), port=0, admin_key=ADMIN_KEY)
        gateway = await stack.enter_async_context(Gateway(whole))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        bench = Bench({server.url: server.engine for server in servers}, gateway, http)
        await wait_until(lambda: bench.pool.statistics().census["eligible"] == ENGINES, "the engines are reached")
        yield bench
        assert bench.pool.statistics().outstanding == 0


async def test_the_third_engine_lives(bench: Bench) -> None:
    """The third attempt is refused with the evidence and no engine sees it; others' sessions go on."""
    innocent = [f"s-{number}" for number in range(6)]
    for session in innocent:
        assert (await bench.generate(greedy((1, 2), 4), session))[0] == 200
    await bench.kill_two()
    taken = bench.taken()
    for attempt in range(3):
        status, payload = await bench.generate({**POISON, "rid": f"again-{attempt}"}, f"new-{attempt}")
        assert (status, payload["error"]["code"], payload["error"]["retryable"]) == (422, "poison_suspected", False)
        evidence = payload["error"]["detail"]["poison"]
        assert (evidence["kind"], len(evidence["deaths"])) == ("request", 2)
    assert bench.taken() == taken
    for session in innocent:
        assert (await bench.generate(greedy((1, 2), 4), session))[0] == 200
    _, dropped = bench.pool.take_events()
    assert dropped == 0
    statistics = bench.pool.statistics()
    assert (statistics.engine_deaths, statistics.poison_refusals, statistics.poison_refused) == (2, 3, 1)


async def test_an_operator_lists_and_clears(bench: Bench) -> None:
    """The entry says which engines died; cleared, the request runs again (and kills the last engine)."""
    await bench.kill_two()
    assert (await bench.generate({**POISON, "rid": "again"}))[0] == 422
    status, listed = await bench.call("GET", "/rollout/poison")
    assert (status, listed["role"]) == (200, "rollout")
    (entry,) = listed["entries"]
    assert (entry["model"], entry["kind"], entry["refused"], entry["refusals"]) == ("tiny", "request", True, 1)
    assert {death["evidence"] for death in entry["deaths"]} == {"it refuses connections"}
    assert len({death["backend"] for death in entry["deaths"]}) == 2
    path = f"/rollout/poison/{entry['entry']}"
    assert await bench.call("DELETE", path) == (200, {"role": "rollout", "cleared": 1})
    status, payload = await bench.call("DELETE", path)
    assert (status, payload["error"]["code"]) == (404, "unknown_entry")
    assert (await bench.generate({**POISON, "rid": "at-last"}))[0] == 502
    status, cleared = await bench.call("DELETE", "/rollout/poison")
    assert (status, cleared["role"]) == (200, "rollout")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/rollout/poison"), ("DELETE", "/rollout/poison"), ("DELETE", "/rollout/poison/x")]
)
async def test_nobody_but_an_admin(bench: Bench, method: str, path: str) -> None:
    """Session keys and engines are the operator's business."""
    assert (await bench.call(method, path, key=None))[0] == 401
    assert (await bench.call(method, path, key="wrong"))[0] == 403


async def test_a_reported_death_counts_like_an_observed_one(bench: Bench) -> None:
    """Whoever runs the engines may report a death first, and remove the engine: its session is refused all the same."""
    for attempt in range(2):
        status, _ = await bench.generate({**POISON, "max_new_tokens": attempt}, "s")
        assert status == 502
        for url, engine in bench.engines.items():
            backend = next((each for each in bench.pool.backends() if each.url == url), None)
            if engine.crashed is not None and backend is not None:
                assert bench.pool.report_death(backend, "exit code 1")
                bench.pool.remove_backend(backend.id)
    status, payload = await bench.generate(greedy((1, 2), 4), "s")
    evidence = payload["error"]["detail"]["poison"]
    assert (status, evidence["session"]) == (422, "s")
    assert [death["evidence"] for death in evidence["deaths"]] == ["exit code 1", "exit code 1"]
