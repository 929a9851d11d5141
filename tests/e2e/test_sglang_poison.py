"""One request that kills real SGLang servers: the client that repeats it is refused before it kills the last one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.serve import GatewayProcess, Observer, eventually, stopped_at_the_end
from tests.support.sglang_server import SglangServer, start_servers, stop_servers
from tests.support.sglang_traffic import greedy, post

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from tests.support.sglang_server import Installation

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(900)]

ENGINES = 3
SESSIONS = [f"s-{index}" for index in range(6)]
POISON: dict[str, Any] = greedy([1, 2, 99_999], 4)
"""Its last token id is outside the vocabulary: the scheduler dies of it, and the server with its scheduler."""


@pytest.fixture
async def servers(sglang_installation: Installation, tmp_path: Path) -> AsyncIterator[list[SglangServer]]:
    """Three private servers, started at the same time."""
    made = [SglangServer(sglang_installation, log=tmp_path / f"engine-{number}.log") for number in range(ENGINES)]
    try:
        await asyncio.to_thread(start_servers, made)
        yield made
    finally:
        await asyncio.to_thread(stop_servers, made)


async def test_a_poison_request_is_refused_before_the_third_engine(
    servers: list[SglangServer], http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """It kills two engines, then it is refused with the evidence; the third lives, and the sessions of others go on."""
    gateway = GatewayProcess([server.url for server in servers], tmp_path / "gateway.log")
    with stopped_at_the_end(gateway):
        await gateway.start()
        generate = f"{gateway.role_url}/generate"

        async def everybody_else() -> None:
            for session in SESSIONS:
                answer, payload = await post(http, generate, greedy([1, 2, 3], 2), session=session)
                assert answer.status == 200, payload

        await everybody_else()
        for attempt in range(2):
            answer, payload = await post(http, generate, {**POISON, "rid": f"attempt-{attempt}"})
            assert (answer.status, json.loads(payload)["error"]["code"]) == (502, "upstream_broken")
        for attempt in range(3):
            answer, payload = await post(http, generate, {**POISON, "rid": f"again-{attempt}"})
            error = json.loads(payload)["error"]
            assert (answer.status, error["code"]) == (422, "poison_suspected")
            assert len(error["detail"]["poison"]["deaths"]) == 2
        await everybody_else()
        assert sorted(server.health() == 200 for server in servers) == [False, False, True]
        await eventually(Observer(http, gateway).outstanding, 0, "no lease is open after the test")
