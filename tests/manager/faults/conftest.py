"""Three simulated engines with small deadlines; whoever is condemned dies, as under a manager that replaces it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.update_scope import SmallScope, small_scope
from trimtab_manager.sim import SimConfig, running_engine
from trimtab_manager.weights import UpdateDeadlines, WeightUpdates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trimtab_manager.sim import SimEngine

CONFIG = SimConfig(model_path="sim://weights/1", time_scale=0.05, max_running_requests=8, weight_load_s=0.2)
STEP_S, DRAIN_S = 1.0, 3.0
DEADLINES = UpdateDeadlines(
    drain_s=DRAIN_S,
    idle_s=STEP_S,
    pause_s=STEP_S,
    transfer_s=STEP_S,
    flush_s=STEP_S,
    read_back_s=STEP_S,
    resume_s=STEP_S,
    verify_s=STEP_S,
    exclusive_s=STEP_S,
)


@dataclass(frozen=True)
class Fleet:
    """Engines ``e0`` to ``e2`` under updates; faults go to ``e1``."""

    engines: Mapping[str, SimEngine]
    scope: SmallScope
    updates: WeightUpdates

    @property
    def victim(self) -> SimEngine:
        """The engine that meets the fault."""
        return self.engines["e1"]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Engines that end with the test."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running_engine(CONFIG)) for _ in range(3)]
        for server in servers:
            server.engine.weights.relabel("1")
        scope = await stack.enter_async_context(small_scope([server.url for server in servers]))
        engines = {f"e{number}": server.engine for number, server in enumerate(servers)}

        async def kill(engine: str) -> None:
            engines[engine].disarm()
            engines[engine].crash("killed by its manager")

        scope.on_condemn = kill
        yield Fleet(engines, scope, WeightUpdates(scope, DEADLINES))
