"""Three simulated engines whose modelled time costs little, on version 1, and their updates."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.update_scope import SmallScope, small_scope
from trimtab_manager.sim import SimConfig, running_engine
from trimtab_manager.weights import UpdateDeadlines, WeightUpdates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimEngine, SimServer

CONFIG = SimConfig(model_path="sim://weights/1", time_scale=0.02, max_running_requests=8)
DEADLINES = UpdateDeadlines(
    drain_s=5, idle_s=2, pause_s=2, transfer_s=5, flush_s=1, read_back_s=2, resume_s=2, verify_s=2, exclusive_s=2
)


@dataclass(frozen=True)
class Fleet:
    """Simulated engines ``e0`` to ``e2`` under updates."""

    servers: tuple[SimServer, ...]
    scope: SmallScope
    updates: WeightUpdates

    @property
    def engines(self) -> tuple[SimEngine, ...]:
        """What is behind the servers."""
        return tuple(server.engine for server in self.servers)

    @property
    def versions(self) -> list[str]:
        """What each engine says."""
        return [engine.weights.version for engine in self.engines]

    @property
    def paused(self) -> list[bool]:
        """Which engines are paused."""
        return [engine.admission.paused for engine in self.engines]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Engines that end with the test."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running_engine(CONFIG)) for _ in range(3)]
        for server in servers:
            server.engine.weights.relabel("1")
        scope = await stack.enter_async_context(small_scope([server.url for server in servers]))
        yield Fleet(tuple(servers), scope, WeightUpdates(scope, DEADLINES))
