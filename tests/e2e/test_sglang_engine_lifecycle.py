"""Control of a real SGLang server: what it can do, sleep and wake as far as a CPU goes, and what would kill it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.waiting import wait_until
from trimtab_manager.engine.capabilities import BEGIN_UPDATE, CHECKSUMS, END_UPDATE, UPDATES, probe
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.engine import SGLangEngine
from trimtab_manager.engine.errors import FlushRefused
from trimtab_manager.engine.limits import Limits
from trimtab_manager.engine.states import Onloading, Ready, Sleeping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.sglang_server import SglangServer

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

LIMITS = Limits(control_timeout_s=20, drain_deadline_s=60, flush_deadline_s=2)


class Gate:
    """Routing to one engine."""

    def __init__(self) -> None:
        self.is_open = False
        self.leases = 0

    def close(self) -> None:
        """No new lease."""
        self.is_open = False

    def open(self) -> None:
        """New leases again."""
        self.is_open = True

    def outstanding(self) -> int:
        """Open leases."""
        return self.leases

    @contextmanager
    def lease(self) -> Iterator[None]:
        """One lease for the block."""
        self.leases += 1
        try:
            yield
        finally:
            self.leases -= 1


@pytest.fixture
async def engine(sglang_pair: tuple[SglangServer, SglangServer]) -> AsyncIterator[SGLangEngine]:
    """The first server under control, serving."""
    client = EngineClient(sglang_pair[0].url, engine="policy/0")
    try:
        engine = SGLangEngine("policy/0", 1, client, await probe(client), gate=Gate(), limits=LIMITS)
        await engine.activate()
        yield engine
    finally:
        await client.close()


async def generate(http: aiohttp.ClientSession, engine: SGLangEngine, tokens: int = 4) -> str:
    """The finish reason of a generation."""
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}
    gate = engine.gate
    assert isinstance(gate, Gate)
    with gate.lease():
        async with http.post(f"{engine.client.url}/generate", json=body) as response:
            return str((await response.json())["meta_info"]["finish_reason"]["type"])


async def test_b66_the_probe_of_a_real_server(engine: SGLangEngine) -> None:
    """Everything that this SGLang has; it goes on serving."""
    found = engine.capabilities
    assert found.serves(BEGIN_UPDATE, END_UPDATE, CHECKSUMS)
    assert all(found.serves(*endpoints) for endpoints in UPDATES.values())
    assert found.pause_modes == {"abort", "in_place", "retract"}
    assert (found.ranks, found.max_running_requests, found.update_sessions) == ((0,), 8, True)


async def test_two_servers_are_two_incarnations(
    engine: SGLangEngine, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """Same model, same flags; an identity that tells them apart and does not change."""
    other = EngineClient(sglang_pair[1].url)
    mine = engine.capabilities.server.incarnation
    assert (await other.server_info()).incarnation != mine
    assert (await engine.client.server_info()).incarnation == mine
    await other.close()


async def test_sleep_and_wake(engine: SGLangEngine, http: aiohttp.ClientSession) -> None:
    """Twice round, in parts, with every order given twice: nothing goes out that would kill it."""
    for _ in range(2):
        await asyncio.gather(engine.deactivate(), engine.deactivate())
        assert isinstance(engine.state, Sleeping)
        assert not await engine.client.ready()
        await asyncio.gather(engine.activate(["weights"]), engine.activate(["weights"]))
        assert isinstance(engine.state, Onloading)
        assert not await engine.client.ready()
        await asyncio.gather(engine.activate(), engine.activate())
        await engine.activate()
        assert isinstance(engine.state, Ready)
        assert await generate(http, engine) == "length"


async def test_sleep_under_load(
    engine: SGLangEngine, http: aiohttp.ClientSession, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """What runs and what waits is aborted, and the server lives."""
    sglang_pair[0].slow_down(0.03)
    running = [asyncio.create_task(generate(http, engine, 500)) for _ in range(12)]
    await sglang_pair[0].in_flight(12)
    await engine.deactivate()
    assert set(await asyncio.gather(*running)) == {"abort"}
    sglang_pair[0].slow_down(None)
    await engine.activate()
    assert await generate(http, engine) == "length"


async def test_a_request_at_the_pause_gate_of_a_sleep(
    engine: SGLangEngine, sglang_pair: tuple[SglangServer, SglangServer], http: aiohttp.ClientSession
) -> None:
    """It came after the pause, where no abort reaches it; it ends, and the engine sleeps."""
    await engine.pause("abort")
    late = asyncio.create_task(generate(http, engine, 500))
    await wait_until(lambda: engine.gate.outstanding() == 1, "it is on its way")
    # The server's own count of the requests that it has taken in: this one waits at the gate.
    await wait_until(
        lambda: sglang_pair[0].metric("sglang:http_requests_active", endpoint="/generate") == 1, "taken in"
    )
    await engine.deactivate()
    assert isinstance(engine.state, Sleeping)
    assert await late == "abort"
    await engine.activate()


@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_a_frozen_engine_is_put_to_sleep(
    engine: SGLangEngine, http: aiohttp.ClientSession, sglang_pair: tuple[SglangServer, SglangServer], mode: str
) -> None:
    """A pause of mode abort on top of that one would hang for ever; what was frozen is aborted all the same."""
    assert mode in {"in_place", "retract"}
    sglang_pair[0].slow_down(0.03)
    running = asyncio.create_task(generate(http, engine, 500))
    await sglang_pair[0].in_flight(1)
    await engine.pause("in_place" if mode == "in_place" else "retract")
    await engine.deactivate()
    assert await running == "abort"
    sglang_pair[0].slow_down(None)
    await engine.activate()
    assert await generate(http, engine) == "length"


async def test_b5_a_busy_server_refuses_a_flush(
    engine: SGLangEngine, http: aiohttp.ClientSession, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """Until the deadline; the error has what it says runs."""
    sglang_pair[0].slow_down(0.03)
    running = asyncio.create_task(generate(http, engine, 1_000))
    await sglang_pair[0].in_flight(1)
    with pytest.raises(FlushRefused, match=r"engine policy/0: .* 1 requests run and 0 wait"):
        await engine.control.flush(0.5)
    await engine.drain(policy="abort")
    assert await running == "abort"
    sglang_pair[0].slow_down(None)
    await engine.cancel_drain()
    assert await generate(http, engine) == "length"
