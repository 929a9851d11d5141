"""A fleet small enough to see through: engines at URLs, a pool, and nobody who replaces an engine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab import Backend, Pool
from trimtab_manager.engine.client import EngineClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from trimtab_manager.weights import Source


@dataclass(frozen=True)
class SmallMember:
    """One engine."""

    id: str
    backend: Backend
    client: EngineClient
    serves: bool = True


@dataclass
class SmallScope:
    """One model ``rollout/tiny``.

    Attributes:
        pool: Its pool.
        static: Whether its weights never change.
        on_condemn: What becomes of a condemned engine, for instance that its process is killed.
        condemned: Engines that were, with the reason.
        history: What was published.
    """

    pool: Pool
    static: bool = False
    role: str = "rollout"
    model: str = "tiny"
    on_condemn: Callable[[str], Awaitable[None]] | None = None
    condemned: dict[str, str] = field(default_factory=dict)
    history: list[tuple[int, Source]] = field(default_factory=list)
    fleet: dict[str, SmallMember] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, engine: str, url: str, *, weight_version: int | None = None) -> SmallMember:
        """Register an engine."""
        backend = self.pool.add_backend(url, 8.0, id=engine, weight_version=weight_version)
        self.fleet[engine] = SmallMember(engine, backend, EngineClient(url, engine=engine, timeout_s=20))
        return self.fleet[engine]

    def members(self) -> Sequence[SmallMember]:
        """All engines."""
        return tuple(self.fleet.values())

    @asynccontextmanager
    async def exclusive(self, what: str) -> AsyncIterator[None]:
        """One at a time."""
        async with self.lock:
            yield

    async def condemn(self, engine: str, reason: str) -> None:
        """Remember it, and do what the test says."""
        self.condemned[engine] = reason
        if self.on_condemn is not None:
            await self.on_condemn(engine)

    def published(self, version: int, source: Source) -> None:
        """Remember it."""
        self.history.append((version, source))

    def states(self) -> dict[str, str]:
        """``eligible``, ``tainted`` or ``pending`` for each engine."""
        return {
            backend.id: "eligible" if backend.eligible else "tainted" if backend.tainted else "pending"
            for backend in self.pool.statistics().backends
        }

    async def close(self) -> None:
        """End the clients."""
        for member in self.fleet.values():
            await member.client.close()


@asynccontextmanager
async def small_scope(
    urls: Sequence[str], *, weight_version: int | None = 1, on_drain_timeout: str = "report"
) -> AsyncIterator[SmallScope]:
    """A scope over engines ``e0``, ``e1``, ... whose published version is ``weight_version``, unless that is None."""
    pool = Pool("rollout/tiny", on_drain_timeout="fail" if on_drain_timeout == "fail" else "report")
    scope = SmallScope(pool)
    for number, url in enumerate(urls):
        scope.add(f"e{number}", url)
    if weight_version is not None:
        pool.publish("first", weight_version)
    try:
        yield scope
    finally:
        await scope.close()
