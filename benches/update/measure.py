"""Updates of many engines, and how much longer than the engines themselves they took."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab import Pool
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.weights import FlushPolicy, FromDisk, Source, WeightUpdates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from trimtab import Backend


@dataclass(frozen=True)
class Sample:
    """One update.

    Attributes:
        total_s: From the fence to the publication, as the pool counts it.
        engine_s: What the engines took of that.
        cpu_s: CPU time of the manager, before the fence and after the publication included.
        steps_s: How long each step took.
    """

    total_s: float
    engine_s: float
    cpu_s: float
    steps_s: dict[str, float]

    @property
    def overhead_s(self) -> float:
        """What is ours."""
        return self.total_s - self.engine_s


@dataclass(frozen=True)
class Member:
    """One engine."""

    id: str
    backend: Backend
    client: EngineClient
    serves: bool = True


class Scope:
    """One model with nothing but engines."""

    role, model, static = "rollout", "bench", False

    def __init__(self, ports: Sequence[int]) -> None:
        self.pool = Pool("rollout/bench")
        self._members = [self._member(port) for port in ports]
        self.pool.publish("first", 1)

    def _member(self, port: int) -> Member:
        url = f"http://127.0.0.1:{port}"
        return Member(str(port), self.pool.add_backend(url, 8.0, id=str(port)), EngineClient(url, engine=str(port)))

    def members(self) -> Sequence[Member]:
        """All."""
        return self._members

    @asynccontextmanager
    async def exclusive(self, what: str) -> AsyncIterator[Any]:
        """Nobody else is here."""
        yield

    async def condemn(self, engine: str, reason: str) -> None:
        """A bench has no spare engines."""
        raise RuntimeError(f"engine {engine}: {reason}")

    def published(self, version: int, source: Source) -> None:
        """Nobody comes later."""

    async def close(self) -> None:
        """End the clients."""
        for member in self._members:
            await member.client.close()


async def measure(ports: Sequence[int], load_s: float, updates: int, flush: FlushPolicy) -> list[Sample]:
    """``updates`` updates of the engines on ``ports``, each of which loads for ``load_s``; one more warms up."""
    scope = Scope(ports)
    samples = []
    try:
        weights = WeightUpdates(scope)
        before = 0.0
        for version in range(2, updates + 3):
            cpu_s = time.process_time()
            result = await weights.update(FromDisk("/new"), version, flush=flush)
            cpu_s = time.process_time() - cpu_s
            if not result.ok:
                raise RuntimeError(f"an engine failed: {[row.error for row in result.engines if row.error][:3]}")
            taken = scope.pool.statistics().update_seconds["weights"]["total"].sum_s
            samples.append(Sample(taken - before, load_s, cpu_s, dict(result.detail["steps_s"])))
            before = taken
    finally:
        await scope.close()
    return samples[1:]
