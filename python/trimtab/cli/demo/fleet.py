"""The servers of the demo: simulated engines of unequal capacity, and the real gateway in front of them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.cli.demo.reconcile import Counts
from trimtab_gateway.config import EngineConfig, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.gateway import Gateway
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trimtab import BackendStatistics, Pool
    from trimtab_manager.sim import SimEngine

__all__ = ["Engine", "Fleet", "FleetError", "capacities", "engine_config", "running_fleet"]

CAPACITY_PATTERN = (16, 8, 8, 4)
ROLE = "rollout"
MODEL = "sim"
POLL_S = 0.02
READY_DEADLINE_S = 15.0
"""The gateway probes every engine when it starts; on loopback that takes milliseconds."""


class FleetError(Exception):
    """The fleet did not come up."""


@dataclass(frozen=True)
class Engine:
    """One simulated engine. Its capacity in the router is the number of requests it can run at once."""

    name: str
    capacity: int
    url: str
    sim: SimEngine


def capacities(count: int) -> list[int]:
    """Return the capacities of a fleet of ``count`` engines: unequal, the large ones first, repeating."""
    return [CAPACITY_PATTERN[index % len(CAPACITY_PATTERN)] for index in range(count)]


def engine_config(capacity: int, vocabulary: int, *, seed: int) -> SimConfig:
    """Return an engine whose rates grow with its capacity, so that equal load per capacity is equal speed.

    A full batch decodes at the same pace on every engine; prompt computation and cache are in proportion to capacity.
    """
    return SimConfig(
        model_name=MODEL,
        vocab_size=vocabulary,
        seed=seed,
        max_running_requests=capacity,
        max_total_tokens=16_384 * capacity,
        decode_step_s=0.005,
        decode_request_step_s=0.003 / capacity,
        prefill_tokens_per_s=4_000.0 * capacity,
        step_overhead_s=0.016 / capacity,
    )


class Fleet:
    """Running engines behind a running gateway."""

    def __init__(self, engines: tuple[Engine, ...], gateway: Gateway) -> None:
        self.engines = engines
        self.url = gateway.url
        self._pool: Pool = gateway.pool(ROLE, MODEL)

    def standing(self) -> dict[str, BackendStatistics]:
        """Return what the gateway knows of each engine now, by name."""
        return {backend.id: backend for backend in self._pool.statistics().backends}

    def close_session(self, session: str) -> None:
        """Tell the gateway that a session has ended."""
        self._pool.close_session(session)

    def leases_open(self) -> int:
        """Return the executions that the gateway still counts."""
        return self._pool.statistics().outstanding

    def spilled(self) -> int:
        """Return how often the gateway moved a session away from a crowded engine."""
        return self._pool.statistics().picks.get("spill", 0)

    def gateway_book(self) -> dict[str, Counts]:
        """Return completed requests and output tokens by engine, as the gateway counted them."""
        return {
            name: Counts(backend.outcomes.get("completed", 0), backend.output_tokens)
            for name, backend in self.standing().items()
        }

    def engine_book(self) -> dict[str, Counts]:
        """Return finished requests and generated tokens by engine, as each engine counted them itself."""
        counts = {}
        for engine in self.engines:
            own = engine.sim.statistics()
            counts[engine.name] = Counts(own.requests_finished, own.generated_tokens)
        return counts

    def engine_sessions(self) -> dict[str, set[str]]:
        """Return the keys of the sessions that each engine has seen; of very many it remembers the latest."""
        return {engine.name: set(engine.sim.statistics().sessions) for engine in self.engines}

    async def ready(self) -> None:
        """Wait until the gateway has reached every engine.

        Raises:
            FleetError: It has not within ``READY_DEADLINE_S``.
        """
        if not await _until(lambda: all(each.eligible for each in self.standing().values()), READY_DEADLINE_S):
            states = ", ".join(f"{name} is {each.health}" for name, each in self.standing().items())
            raise FleetError(f"the gateway did not reach every engine within {READY_DEADLINE_S:g} s: {states}")

    async def settled(self, deadline_s: float) -> None:
        """Wait until no lease is open: a lease ends when the gateway has seen the end of the answer it relayed."""
        await _until(lambda: self.leases_open() == 0, deadline_s)


async def _until(true: Callable[[], bool], deadline_s: float) -> bool:
    """Wait until a condition holds, and return whether it did within ``deadline_s``."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + deadline_s
    while not true():
        if clock() > give_up:
            return False
        await asyncio.sleep(POLL_S)
    return True


@contextlib.asynccontextmanager
async def running_fleet(count: int, *, vocabulary: int, seed: int) -> AsyncIterator[Fleet]:
    """Run ``count`` engines and a gateway on loopback; inside the block they are ready, after it they are gone.

    Raises:
        FleetError: The gateway did not reach every engine in time.
        StartError: The gateway found no port.
    """
    async with contextlib.AsyncExitStack() as servers:
        engines = []
        for index, capacity in enumerate(capacities(count)):
            server = await servers.enter_async_context(
                running_engine(engine_config(capacity, vocabulary, seed=seed + index))
            )
            engines.append(Engine(f"sim-{index}", capacity, server.url, server.engine))
        backends = tuple(EngineConfig(engine.url, engine.capacity, engine.name) for engine in engines)
        roles = (RoleConfig(ROLE, (ModelConfig(MODEL, backends),)),)
        gateway = await servers.enter_async_context(Gateway(GatewayConfig(roles, port=0)))
        fleet = Fleet(tuple(engines), gateway)
        await fleet.ready()
        yield fleet
