"""An update of weights from disk on two real SGLang servers, in the order of AReaL's training step, under traffic."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.serve import Observer, eventually
from tests.support.sglang_traffic import greedy, post
from tests.support.trajectories import OWNER, Trajectory, everywhere, first_version, update_from_disk
from trimtab import RouterAdmin, RouterClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp

    from tests.support.serve import GatewayProcess
    from tests.support.sglang_server import Installation, SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

LENGTH = 60
EACH_WAY = 5
STEP_S = 0.3
PROBE = [3, 1, 4, 1, 5, 9, 2, 6]
REQUESTS = "sglang:num_requests_total"
GENERATED = "sglang:generation_tokens_total"


@pytest.fixture
def admin(sglang_gateway: GatewayProcess) -> Iterator[RouterAdmin]:
    """A controller of the gateway's one pool."""
    with RouterAdmin(sglang_gateway.url) as admin:
        yield admin


async def test_sessions_cross_an_update_unharmed(
    sglang_installation: Installation,
    sglang_gateway: GatewayProcess,
    sglang_pair: Pair,
    admin: RouterAdmin,
    http: aiohttp.ClientSession,
) -> None:
    """No request fails, none is executed twice, and each token has the label of its lease, which its engine gave it.

    Five sessions go through the gateway, five belong to a sender with leases of its own. The pause of the engines cuts
    all of them in the middle; they wait in the router, and go on with the new weights.
    """
    urls = [server.url for server in sglang_pair]
    observer = Observer(http, sglang_gateway)
    await first_version(http, admin, urls, 1)
    old = await probe(http, sglang_gateway)
    assert old == sglang_pair[0].generate(greedy(PROBE, 8))["output_ids"]

    proxied = [Trajectory(f"gateway-{index}", (index, 100), LENGTH) for index in range(EACH_WAY)]
    direct = [Trajectory(f"sender-{index}", (index, 200), LENGTH) for index in range(EACH_WAY)]
    everyone = proxied + direct
    before = executed(sglang_pair)
    # Slow enough that nobody comes to an end before the update.
    await everywhere(http, urls, "/slow_down", {"forward_sleep_time": STEP_S})

    def nothing_runs() -> None:
        assert [server.call("/v1/loads")["loads"][0]["num_running_reqs"] for server in sglang_pair] == [0, 0]

    async with RouterClient(sglang_gateway.url, sender="rollout/0", owner=OWNER) as router:
        running = [asyncio.ensure_future(each.proxied(http, sglang_gateway.role_url)) for each in proxied]
        running += [asyncio.ensure_future(each.direct(http, router)) for each in direct]
        await eventually(observer.outstanding, len(everyone), "everybody has begun")
        await update_from_disk(
            http, admin, urls, version=2, path=str(sglang_installation.models[1]), while_drained=nothing_runs
        )
        await asyncio.gather(*running)

    segments = [segment for each in everyone for segment in each.segments]
    assert [label for segment in segments for label in segment.labels if label != str(segment.version)] == []
    assert all([segment.version for segment in each.segments] == [1, 2] for each in everyone)
    assert all([segment.aborted for segment in each.segments] == [True, False] for each in everyone)
    assert all(len(each.tokens) == LENGTH for each in everyone)
    assert len({segment.rid for segment in segments}) == len(segments)

    await eventually(lambda: observer.leases("completed"), len(everyone) + 1, "every lease is settled")
    assert await observer.leases("aborted") == len(everyone)
    for outcome in ("rejected", "failed", "ambiguous", "cancelled", "lost", "not_sent"):
        assert await observer.leases(outcome) == 0, outcome
    requests, tokens = (after - start for after, start in zip(executed(sglang_pair), before, strict=True))
    assert (requests, tokens) == (len(segments), len(everyone) * LENGTH)

    new = await probe(http, sglang_gateway)
    assert new == sglang_pair[1].generate(greedy(PROBE, 8))["output_ids"]
    assert new != old
    for server in sglang_pair:
        assert server.call("/model_info")["weight_version"] == "2"


async def probe(http: aiohttp.ClientSession, gateway: GatewayProcess) -> Any:
    """What the weights say to a fixed prompt, through the gateway."""
    answer, payload = await post(http, f"{gateway.role_url}/generate", greedy(PROBE, 8))
    assert answer.status == 200, payload
    return json.loads(payload)["output_ids"]


def executed(servers: Pair) -> tuple[float, float]:
    """Requests that the engines ran to an end, aborted ones included, and tokens that they generated."""
    requests, tokens = (sum(server.metric(name) for server in servers) for name in (REQUESTS, GENERATED))
    return requests, tokens
