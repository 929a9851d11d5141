"""A real engine dies under traffic: clients can tell, nothing is replayed, sessions move, counts return to zero."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import openai
import pytest

from tests.support.serve import GatewayProcess, Observer, eventually, stopped_at_the_end
from tests.support.sglang_traffic import DONE, greedy, in_background, next_event, post
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(500)]

STEP_S = 0.05
TOKENS = 400
SESSIONS = [f"s-{index}" for index in range(6)]
QUESTION: Any = [{"role": "user", "content": "hello"}]


class Scene:
    """A gateway over an engine that will die and one that survives, with sessions pinned to both."""

    def __init__(self, gateway: GatewayProcess, victim: SglangServer, survivor: SglangServer) -> None:
        self.gateway = gateway
        self.victim = victim
        self.survivor = survivor
        self.survivor_generated = 0.0
        self.pinned: dict[str, str] = {}

    async def pin(self, http: aiohttp.ClientSession) -> None:
        """One short turn for every session; then the victim becomes slow."""
        self.pinned = {session: await self.turn(http, session) for session in SESSIONS}
        assert sorted(self.pinned.values()) == sorted([self.victim.authority, self.survivor.authority] * 3)
        await self.survivor.idle()
        self.survivor_generated = self.generated_by_survivor()
        self.victim.slow_down(STEP_S)

    async def turn(self, http: aiohttp.ClientSession, session: str) -> str:
        """One short turn; the id of the backend that served it."""
        answer, payload = await post(http, f"{self.gateway.role_url}/generate", greedy([1, 2, 3], 2), session=session)
        assert answer.status == 200, payload
        return str(answer.headers["x-trimtab-backend"])

    def sessions_of(self, server: SglangServer) -> list[str]:
        """Sessions whose first turn went to ``server``."""
        return [session for session, backend in self.pinned.items() if backend == server.authority]

    def generated_by_survivor(self) -> float:
        """Tokens that the survivor has generated so far."""
        return self.survivor.metric("sglang:generation_tokens_total")


@pytest.fixture
async def scene(
    start_sglang: Callable[..., SglangServer],
    sglang_pair: Pair,
    http: aiohttp.ClientSession,
    tmp_path: Path,
) -> AsyncIterator[Scene]:
    """A private engine that the test kills, beside one of the shared ones."""
    victim, survivor = start_sglang(), sglang_pair[0]
    with stopped_at_the_end(GatewayProcess([victim.url, survivor.url], tmp_path / "gateway.log")) as gateway:
        await gateway.start()
        made = Scene(gateway, victim, survivor)
        await made.pin(http)
        yield made
        await eventually(Observer(http, gateway).outstanding, 0, "no lease is open after the test")
        await survivor.idle()


async def read_broken_stream(answer: aiohttp.ClientResponse) -> list[bytes]:
    """Read to the end, which has to be an unclean one; the data of the events that came."""
    received = b""
    try:
        async for piece in answer.content.iter_any():
            received += piece
    except aiohttp.ClientPayloadError:
        return [block.removeprefix(b"data: ") for block in received.split(b"\n\n") if block]
    pytest.fail("the stream ended as if it were complete")


async def consume(stream: openai.AsyncStream[Any]) -> int:
    """Read an OpenAI stream to its end; the number of chunks."""
    return len([chunk async for chunk in stream])


async def moved_to_the_survivor(scene: Scene, observer: Observer, http: aiohttp.ClientSession) -> None:
    """After the death: nothing outstanding, ready with one engine, and every session served by the survivor."""
    await eventually(observer.outstanding, 0, "every lease is settled")
    for session in SESSIONS:
        for _ in range(2):
            assert await scene.turn(http, session) == scene.survivor.authority

    async def eligible() -> dict[str, bool]:
        return {name: engine["direct_eligible"] for name, engine in (await observer.engines()).items()}

    expected = {scene.victim.authority: False, scene.survivor.authority: True}
    await eventually(eligible, expected, "discovery says which engine is dead")
    status, ready = await observer.ready()
    assert (status, ready["ready"]) == (200, True)
    assert [(pool["eligible"], pool["down"], pool["registered"]) for pool in ready["pools"].values()] == [(1, 1, 2)]
    moved = len(scene.sessions_of(scene.victim))
    repins = [await observer.metric("trimtab_picks_total", reason=f"repin:{why}") for why in ("down", "excluded")]
    assert sum(repins) == moved


async def test_b13_b48_kill_minus_nine_mid_stream(scene: Scene, http: aiohttp.ClientSession) -> None:
    """B7, B13, B48: streams break visibly, whole answers become 502, nothing runs twice, sessions move and stay."""
    observer = Observer(http, scene.gateway)
    session = scene.sessions_of(scene.victim)[0]
    url, headers = f"{scene.gateway.role_url}/generate", {"x-trimtab-session": session}
    # The client's own retries are on: the gateway has to tell it that this failure is not one to retry.
    async with (
        openai.AsyncOpenAI(
            base_url=f"{scene.gateway.role_url}/v1", api_key="none", max_retries=2, timeout=60
        ) as client,
        http.post(url, json=greedy([4, 5], TOKENS, stream=True), headers=headers) as raw,
    ):
        await next_event(raw)
        exact: Any = {"max_tokens": TOKENS, "extra_body": {"ignore_eos": True}, "extra_headers": headers}
        chat = await client.chat.completions.create(model="tiny", messages=QUESTION, stream=True, **exact)
        async with in_background(
            post(http, url, greedy([6, 7], TOKENS), session=session),
            client.chat.completions.create(model="tiny", messages=QUESTION, **exact),
        ) as (whole, whole_chat):
            await scene.victim.in_flight(4)
            assert await observer.metric("trimtab_outstanding", backend=scene.victim.authority) == 4
            scene.victim.kill()

            *_, error = await read_broken_stream(raw)
            assert error != DONE
            assert json.loads(error)["error"]["code"] == "upstream_broken"
            with pytest.raises(openai.APIError):
                await consume(chat)
            answer, payload = await whole
            assert answer.status == 502
            assert answer.headers["x-trimtab-error"] == "upstream_broken"
            assert answer.headers["x-should-retry"] == "false"
            document = json.loads(payload)["error"]
            assert (document["code"], document["retryable"]) == ("upstream_broken", False)
            assert document["detail"]["maybe_executed"] is True
            with pytest.raises(openai.InternalServerError) as caught:
                await whole_chat
            assert caught.value.status_code == 502
    assert scene.generated_by_survivor() == scene.survivor_generated, "a request was replayed"
    await eventually(lambda: observer.leases("ambiguous"), 4, "four leases are settled as ambiguous")
    await moved_to_the_survivor(scene, observer, http)


async def test_b7_a_request_that_kills_its_engine_kills_only_one(scene: Scene, http: aiohttp.ClientSession) -> None:
    """B7: SGLang dies of an out-of-vocabulary token. Replayed on the next engine it would take down the whole fleet."""
    observer = Observer(http, scene.gateway)
    session = scene.sessions_of(scene.victim)[0]
    answer, payload = await post(http, f"{scene.gateway.role_url}/generate", greedy([99999], 1), session=session)
    assert answer.status == 502, payload
    assert json.loads(payload)["error"]["detail"]["maybe_executed"] is True
    await wait_until(lambda: not scene.victim.running(), "the engine is dead", deadline_s=30)
    assert scene.survivor.health() == 200
    await moved_to_the_survivor(scene, observer, http)
