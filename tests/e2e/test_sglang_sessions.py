"""Forty sessions of five turns on two real engines: each stays on its engine, and the engines do the same work."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.serve import eventually
from tests.support.sglang_traffic import greedy, in_background, post

if TYPE_CHECKING:
    import aiohttp

    from tests.support.serve import GatewayProcess, Observer
    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

SESSIONS = 40
TURNS = 5
TOKENS = 12
GENERATED = "sglang:generation_tokens_total"


@dataclass
class Session:
    """One trajectory: its growing context, and what each turn said."""

    index: int
    context: list[int] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Contexts of two sessions differ from the first token on: a cached prefix can only be the session's own.
        self.context = [self.index, 255 - self.index, *range(100, 120)]

    @property
    def key(self) -> str:
        """The sticky key."""
        return f"rollout-{self.index:02d}"

    async def turn(self, http: aiohttp.ClientSession, url: str) -> None:
        """Send the context, append the answer and an observation. From the second turn the prefix must be cached."""
        answer, payload = await post(http, url, greedy(self.context, TOKENS), session=self.key)
        assert answer.status == 200, payload
        document = json.loads(payload)
        # All but the newest token of the last turn is in the engine's cache, the observation is not.
        known = len(self.context) - OBSERVATION - 1 if self.backends else 0
        assert document["meta_info"]["cached_tokens"] >= known, f"{self.key} lost its prefix"
        self.backends.append(answer.headers["x-trimtab-backend"])
        self.context += [*document["output_ids"], *range(200, 200 + OBSERVATION)]


OBSERVATION = 6


async def test_forty_sessions_stay_and_spread(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, observer: Observer, http: aiohttp.ClientSession
) -> None:
    """B30: forty simultaneous first turns split 20/20, all later turns stay, and both engines generate equally much.

    Slow engines keep every first turn outstanding until all forty were placed; from then on the split is exact. Later
    turns run freely, each session at its own pace.
    """
    url = f"{sglang_gateway.role_url}/generate"
    before = [server.metric(GENERATED) for server in sglang_pair]
    sessions = [Session(index) for index in range(SESSIONS)]
    for server in sglang_pair:
        server.slow_down(0.3)
    async with in_background(*(session.turn(http, url) for session in sessions)) as first:
        await eventually(observer.outstanding, SESSIONS, "all forty are outstanding at once")
        for server in sglang_pair:
            assert await observer.metric("trimtab_outstanding", backend=server.authority) == SESSIONS / 2
            server.slow_down(None)
        await asyncio.gather(*first)

    async def later_turns(session: Session) -> None:
        for _ in range(TURNS - 1):
            await session.turn(http, url)

    await asyncio.gather(*(later_turns(session) for session in sessions))

    await eventually(lambda: observer.leases("completed"), SESSIONS * TURNS, "every lease is settled as completed")
    assert all(len(session.backends) == TURNS for session in sessions)
    assert {session.key: set(session.backends) for session in sessions if len(set(session.backends)) > 1} == {}
    assert Counter(session.backends[0] for session in sessions) == {
        server.authority: SESSIONS // 2 for server in sglang_pair
    }
    for server, start in zip(sglang_pair, before, strict=True):
        assert await observer.metric("trimtab_sessions", backend=server.authority) == SESSIONS / 2
        assert server.metric(GENERATED) - start == SESSIONS // 2 * TURNS * TOKENS
        tokens = await observer.metric("trimtab_output_tokens_total", backend=server.authority)
        assert tokens == SESSIONS // 2 * TURNS * TOKENS
    assert await observer.metric("trimtab_picks_total", reason="new") == SESSIONS
    assert await observer.metric("trimtab_picks_total", reason="sticky") == SESSIONS * (TURNS - 1)


async def test_sequential_requests_without_session_alternate(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """B29: with nothing outstanding every pick is a tie; ties go to each engine in turn, not to the first."""
    picked = []
    for _ in range(6):
        answer, _ = await post(http, f"{sglang_gateway.role_url}/generate", greedy([1, 2, 3], 1))
        picked.append(answer.headers["x-trimtab-backend"])
    assert Counter(picked) == {server.authority: 3 for server in sglang_pair}


async def test_session_is_shared_by_all_routes(sglang_gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
    """One session key means one engine, whichever route, header alias or protocol a turn uses."""
    role = sglang_gateway.role_url
    turns = [
        ("/generate", greedy([1], 1)),
        ("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    ]
    for header in ("x-trimtab-session", "x-session-id"):
        backends = set()
        for path, body in turns:
            async with http.post(f"{role}{path}", json=body, headers={header: f"by {header}"}) as answer:
                assert answer.status == 200
                backends.add(answer.headers["x-trimtab-backend"])
                assert answer.headers["x-trimtab-session"] == f"by {header}"
        assert len(backends) == 1
