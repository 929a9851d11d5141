"""A client that goes away frees a real engine at once: connection closed, request aborted by id, lease settled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.serve import eventually
from tests.support.sglang_traffic import chat, greedy, in_background, next_event, post

if TYPE_CHECKING:
    import aiohttp

    from tests.support.serve import GatewayProcess, Observer
    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

STEP_S = 0.05
TOKENS = 400
UNDISTURBED_S = STEP_S * TOKENS  # at least

# SGLang itself sees a closed non-streaming connection only after about four seconds.
FREED_S = 2.5

BODIES = [("/generate", greedy([1, 2, 3], TOKENS)), ("/v1/chat/completions", chat("hello", TOKENS))]


@pytest.fixture
def slow_pair(sglang_pair: Pair) -> Pair:
    """The shared servers at 20 tokens a second, so that a request is in flight for 20 s. A reset ends it."""
    for server in sglang_pair:
        server.slow_down(STEP_S)
    return sglang_pair


async def freed(servers: Pair, observer: Observer) -> None:
    """Wait until no engine has a request and no lease is open."""
    started = time.monotonic()
    for server in servers:
        await server.idle(FREED_S)
    await eventually(observer.outstanding, 0, "every lease is settled", FREED_S)
    assert time.monotonic() - started < UNDISTURBED_S / 4


@pytest.mark.parametrize(("path", "body"), BODIES, ids=["generate", "chat"])
async def test_b8_disconnect_frees_a_streaming_request(
    *,
    path: str,
    body: dict[str, Any],
    slow_pair: Pair,
    sglang_gateway: GatewayProcess,
    observer: Observer,
    http: aiohttp.ClientSession,
) -> None:
    """B8: a stream that is dropped after its first event stops generating, long before its end."""
    async with http.post(f"{sglang_gateway.role_url}{path}", json={**body, "stream": True}) as answer:
        assert answer.status == 200
        await next_event(answer)
        assert await in_flight(slow_pair) == 1
        answer.close()
    await freed(slow_pair, observer)
    assert await observer.leases("cancelled") == 1


@pytest.mark.parametrize(("path", "body"), BODIES, ids=["generate", "chat"])
async def test_b8_disconnect_frees_a_request_that_has_not_answered_yet(
    *,
    path: str,
    body: dict[str, Any],
    slow_pair: Pair,
    sglang_gateway: GatewayProcess,
    observer: Observer,
    http: aiohttp.ClientSession,
) -> None:
    """B8: a non-streaming request is noticed and aborted by id as well: sooner than the engine could notice it."""
    async with in_background(post(http, f"{sglang_gateway.role_url}{path}", body)):
        await eventually(observer.outstanding, 1, "the execution is counted")
        await eventually(lambda: in_flight(slow_pair), 1, "an engine runs it")
    await freed(slow_pair, observer)
    assert await observer.leases("cancelled") == 1
    assert [engine["direct_eligible"] for engine in (await observer.engines()).values()] == [True, True]


async def test_b8_abort_reaches_a_request_that_waits_in_the_engines_queue(
    slow_pair: Pair, sglang_gateway: GatewayProcess, observer: Observer, http: aiohttp.ClientSession
) -> None:
    """B8: more requests than an engine runs at once: the queued ones are freed by a disconnect too."""
    count = 2 * (8 + 3)
    bodies = [greedy([index, 2, 3], TOKENS) for index in range(count)]
    async with in_background(*(post(http, f"{sglang_gateway.role_url}/generate", body) for body in bodies)):
        for server in slow_pair:
            await server.in_flight(count // 2)
    await freed(slow_pair, observer)
    assert await observer.leases("cancelled") == count


async def test_b1_disconnects_at_many_points_leak_nothing(
    slow_pair: Pair, sglang_gateway: GatewayProcess, observer: Observer, http: aiohttp.ClientSession
) -> None:
    """B1: clients that leave at once, while they wait, or after n events: leases are settled, engines are free."""
    url = f"{sglang_gateway.role_url}/generate"

    async def leave_after(count: int, index: int) -> None:
        body = greedy([index, 7], TOKENS, stream=True)
        async with http.post(url, json=body, headers={"x-trimtab-session": f"s{index}"}) as answer:
            for _ in range(count):
                await next_event(answer)
            answer.close()

    async def leave_unanswered(ticks: int, index: int) -> None:
        request = asyncio.ensure_future(post(http, url, greedy([index, 9], TOKENS)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    await asyncio.gather(
        *(leave_after(index % 6, index) for index in range(24)),
        *(leave_unanswered(index, 100 + index) for index in range(16)),
    )
    await freed(slow_pair, observer)
    ended = {outcome: await observer.leases(outcome) for outcome in ("cancelled", "ambiguous", "completed", "failed")}
    assert ended["cancelled"] >= 24, ended
    assert ended["ambiguous"] == ended["completed"] == ended["failed"] == 0, ended


async def in_flight(servers: Pair) -> int:
    """Requests that the engines run or queue."""
    return sum(server.requests_in_flight() for server in servers)
