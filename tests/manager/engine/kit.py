"""A simulated engine under control, and the router's side of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from trimtab_manager.engine.capabilities import probe
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.clock import Clock
from trimtab_manager.engine.engine import SGLangEngine
from trimtab_manager.engine.limits import Limits, RetryPolicy
from trimtab_manager.sim import SimConfig, SimEngine, SimServer, running_engine

ENGINE = "policy/0"

QUICK = Limits(
    control_timeout_s=5,
    pause_timeout_s=5,
    memory_timeout_s=5,
    drain_deadline_s=10,
    flush_deadline_s=5,
    ready_deadline_s=5,
    poll_s=0.002,
    pulse_s=0.02,
    retry=RetryPolicy(first_gap_s=0.001, longest_gap_s=0.01),
)
"""Deadlines that no test reaches unless it means to, and looks without waiting."""

SIM = SimConfig(time_scale=0.002, max_running_requests=4, max_total_tokens=4_096, context_length=2_048)

LONG_RUNNING = replace(SIM, time_scale=1, health_interval_s=0.01, pause_poll_s=0.01)
"""Requests that last; what the control waits for does not."""


class CountingGate:
    """Routing to one engine, as a pool does it: a lease is given while it is open."""

    def __init__(self) -> None:
        self.is_open = False
        self.leases = 0
        self.history: list[str] = []

    def close(self) -> None:
        """No new lease."""
        if self.is_open:
            self.history.append("close")
        self.is_open = False

    def open(self) -> None:
        """New leases again."""
        self.history.append("open")
        self.is_open = True

    def outstanding(self) -> int:
        """Open leases."""
        return self.leases

    @contextmanager
    def lease(self) -> Iterator[bool]:
        """A lease for the block, if the gate is open."""
        if not self.is_open:
            yield False
            return
        self.leases += 1
        try:
            yield True
        finally:
            self.leases -= 1


class StepClock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Passes at once."""
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    @property
    def clock(self) -> Clock:
        """As engines take it."""
        return Clock(lambda: self.now_s, self.sleep)


class Controlled:
    """A simulated engine under control."""

    def __init__(
        self, server: SimServer, engine: SGLangEngine, gate: CountingGate, http: aiohttp.ClientSession
    ) -> None:
        self.server = server
        self.sim = server.engine
        self.engine = engine
        self.gate = gate
        self.http = http

    async def request(self, tokens: int = 8) -> str | None:
        """A generation under a lease; its finish reason. None when it got no lease or no answer."""
        body = {"text": "abc", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}
        with self.gate.lease() as granted:
            if not granted:
                return None
            try:
                async with self.http.post(f"{self.server.url}/generate", json=body) as response:
                    answer = await response.json()
            except aiohttp.ClientError:
                return None
        return str(answer["meta_info"]["finish_reason"]["type"])


@asynccontextmanager
async def controlled(config: SimConfig = SIM, limits: Limits = QUICK, **options: Any) -> AsyncIterator[Controlled]:
    """A simulated engine under control, in the state ``Starting``."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with running_engine(config) as server, aiohttp.ClientSession(connector=connector) as http:
        client = EngineClient(server.url, engine=ENGINE)
        gate = CountingGate()
        try:
            found = await probe(client)
            engine = SGLangEngine(ENGINE, 1, client, found, gate=gate, limits=limits, **options)
            yield Controlled(server, engine, gate, http)
        finally:
            await client.close()


def count_calls(sim: SimEngine, name: str) -> Callable[[], int]:
    """How often a coroutine method of the simulated engine ran from now on."""
    method, calls = getattr(sim, name), 0

    async def counted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        return await method(*arguments)

    setattr(sim, name, counted)
    return lambda: calls
