"""An update of weights while sessions run, over simulated engines: what is asserted of real ones in ``tests/e2e``."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.sglang_traffic import greedy
from tests.support.trajectories import OWNER, Trajectory, call, everywhere, first_version, update_from_disk
from tests.support.waiting import wait_until
from trimtab import Pool, RouterAdmin, RouterClient
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimEngine

LENGTH = 60
OLD, NEW = "sim://weights/0", "sim://weights/1"


@dataclass(frozen=True)
class Fleet:
    """Two simulated engines behind a gateway, on version 1."""

    engines: tuple[SimEngine, ...]
    urls: tuple[str, ...]
    gateway: Gateway
    admin: RouterAdmin
    http: aiohttp.ClientSession

    @property
    def pool(self) -> Pool:
        """The only pool."""
        return self.gateway.pool("rollout", "tiny")

    def executed(self) -> tuple[int, int]:
        """Requests that the engines ever took, and tokens that they generated."""
        taken = [engine.statistics() for engine in self.engines]
        return sum(each.requests_received for each in taken), sum(each.generated_tokens for each in taken)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Two engines and a gateway that end with the test."""
    async with AsyncExitStack() as stack:
        config = SimConfig(model_path=OLD, time_scale=0.05)
        servers = [await stack.enter_async_context(running_engine(config)) for _ in range(2)]
        urls = tuple(server.url for server in servers)
        model = ModelConfig("tiny", tuple(map(EngineConfig, urls)))
        gateway = await stack.enter_async_context(Gateway(GatewayConfig((RoleConfig("rollout", (model,)),), port=0)))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        admin = stack.enter_context(RouterAdmin(gateway.url))
        fleet = Fleet(tuple(server.engine for server in servers), urls, gateway, admin, http)
        await wait_until(lambda: fleet.pool.statistics().census["eligible"] == 2, "both engines are reached")
        await first_version(http, admin, urls, 1)
        yield fleet


async def test_sessions_cross_an_update_unharmed(fleet: Fleet) -> None:
    """No request fails, none is executed twice, and each token has the label of its lease and of its weights.

    Six sessions through the gateway and six of a sender with leases of its own are cut in the middle by the pause of
    the engines, wait in the router, and go on with the new weights.
    """
    proxied = [Trajectory(f"gateway-{index}", (index, 100), LENGTH) for index in range(6)]
    direct = [Trajectory(f"sender-{index}", (index, 200), LENGTH) for index in range(6)]
    everyone = proxied + direct
    before = fleet.executed()
    # Slow enough that nobody comes to an end before the update, and quick enough that everybody has begun.
    await everywhere(fleet.http, fleet.urls, "/slow_down", {"forward_sleep_time": 0.05})

    def nothing_runs() -> None:
        assert [engine.statistics().running + engine.statistics().at_gate for engine in fleet.engines] == [0, 0]

    async with RouterClient(fleet.gateway.url, sender="rollout/0", owner=OWNER) as router:
        running = [asyncio.ensure_future(each.proxied(fleet.http, f"{fleet.gateway.url}/rollout")) for each in proxied]
        running += [asyncio.ensure_future(each.direct(fleet.http, router)) for each in direct]
        await wait_until(lambda: all(e.statistics().generated_tokens > 12 for e in fleet.engines), "all generate")
        await update_from_disk(fleet.http, fleet.admin, fleet.urls, version=2, path=NEW, while_drained=nothing_runs)
        await asyncio.gather(*running)

    segments = [segment for each in everyone for segment in each.segments]
    assert [label for segment in segments for label in segment.labels if label != str(segment.version)] == []
    assert all([segment.version for segment in each.segments] == [1, 2] for each in everyone)
    assert all([segment.aborted for segment in each.segments] == [True, False] for each in everyone)
    assert all(len(each.tokens) == LENGTH for each in everyone)
    requests, tokens = (after - start for after, start in zip(fleet.executed(), before, strict=True))
    assert (requests, tokens) == (len(segments), len(everyone) * LENGTH)
    assert len({segment.rid for segment in segments}) == len(segments)
    statistics = fleet.pool.statistics()
    assert {outcome: count for outcome, count in statistics.outcomes.items() if count} == {
        "aborted": len(everyone),
        "completed": len(everyone),
    }
    assert (statistics.outstanding, statistics.waiters, statistics.unexpected_aborts) == (0, 0, 0)
    assert (statistics.state, statistics.weight_version, statistics.generation) == ("serving", 2, 1)
    await weights_explain_every_token(fleet, everyone)


async def test_weights_that_moved_behind_the_router_are_reported(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine that was updated without its router answers with another label: counted, and one line names it."""
    caplog.set_level("WARNING", "trimtab.gateway")
    body = {"new_version": "7", "abort_all_requests": False}
    await everywhere(fleet.http, fleet.urls[:1], "/update_weight_version", body)
    for index in range(4):
        prompt = greedy((index,), 2)
        await call(fleet.http, f"{fleet.gateway.url}/rollout/generate", prompt)

    def lines() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if "other weights" in record.getMessage()]

    await wait_until(lambda: sum(line["count"] for line in lines()) == 2, "both answers are in the log")
    engine = fleet.urls[0].removeprefix("http://")
    for line in lines():
        assert (line["pool"], line["backend"], line["expected"], line["observed"]) == ("rollout/tiny", engine, 1, 7)
    assert fleet.pool.statistics().version_mismatches == 2


async def test_an_engine_that_was_restarted_in_place_is_reported(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Until its next probe an engine started anew answers under the published version: its text for a label counts."""
    caplog.set_level("WARNING", "trimtab.gateway")

    def probes() -> int:
        return int(fleet.gateway.statistics().data_plane["probes_total"])

    # An engine has one probe at a time: of four that have begun the first of either engine is over.
    enough = probes() + 4
    await wait_until(lambda: probes() >= enough, "both engines have named their version")
    await everywhere(fleet.http, fleet.urls, "/slow_down", {"forward_sleep_time": 0.05})
    url = f"{fleet.gateway.url}/rollout/generate"
    running = [asyncio.ensure_future(call(fleet.http, url, greedy((index,), 10))) for index in range(2)]
    await wait_until(lambda: all(e.statistics().generated_tokens > 1 for e in fleet.engines), "both engines generate")
    body = {"new_version": "default", "abort_all_requests": False}
    await everywhere(fleet.http, fleet.urls[:1], "/update_weight_version", body)
    await asyncio.gather(*running)

    def lines() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if "other weights" in record.getMessage()]

    await wait_until(lambda: len(lines()) == 1, "the answer is in the log")
    engine = fleet.urls[0].removeprefix("http://")
    seen = [(line["backend"], line["expected"], line["observed"], line["count"]) for line in lines()]
    assert seen == [(engine, 1, None, 1)]
    assert fleet.pool.statistics().version_mismatches == 1


async def weights_explain_every_token(fleet: Fleet, everyone: list[Trajectory]) -> None:
    """Asked again with its context, an engine of the same weights gives the very tokens of a segment."""
    for version, path in ((2, NEW), (1, OLD)):
        body = {"model_path": path, "weight_version": str(version)}
        await everywhere(fleet.http, fleet.urls, "/update_weights_from_disk", body)
        differing = 0
        for each in everyone:
            for segment in each.segments:
                answer = await call(
                    fleet.http, f"{fleet.urls[0]}/generate", greedy(segment.context, len(segment.tokens))
                )
                same = tuple(answer["output_ids"]) == segment.tokens
                assert same or segment.version != version, (each.session, segment)
                differing += not same
        assert differing, "the two sets of weights say the same"
