"""A fleet of simulated engines behind a real manager and real pools."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sim_launcher import SimLauncher
from tests.support.waiting import wait_until
from trimtab.spec import EngineGroupSpec, InferenceModelSpec, InferenceRoleSpec, ManagerSpec
from trimtab_manager.engine.clock import SYSTEM, Clock
from trimtab_manager.fleet import InferenceManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab import Pool
    from trimtab_manager.fleet import ModelFleet, Resync, Topology

QUICK = ManagerSpec(
    start_deadline_s=10,
    stop_grace_s=0.2,
    control_timeout_s=2,
    drain_deadline_s=5,
    pause_deadline_s=2,
    flush_deadline_s=2,
    release_deadline_s=2,
    wake_deadline_s=5,
    health_interval_s=3600,
    health_timeout_s=1,
    restart_backoff_s=0.01,
)
"""Short deadlines, and no health checks unless a test is about them."""

KEY = ("rollout", "policy")


@dataclass
class Fleet:
    """One model under a manager."""

    manager: InferenceManager
    launcher: SimLauncher
    pool: Pool
    fleet: ModelFleet

    @property
    def topology(self) -> Topology:
        """What is published."""
        return self.manager.topology("rollout")

    def published(self) -> dict[str, int]:
        """Generation of each published engine."""
        return {engine.id: engine.generation for engine in self.topology.models["policy"]}

    def eligible(self) -> set[str]:
        """Ids of the engines that may get a request now."""
        return {backend.id for backend in self.pool.statistics().backends if backend.eligible}

    def lease_ids(self, count: int = 8) -> set[str]:
        """Where so many requests would go."""
        leases = [self.pool.acquire() for _ in range(count)]
        for lease in leases:
            lease.settle("cancelled")
        return {lease.backend_id for lease in leases}

    async def replaced(self, engine: str, generation: int) -> None:
        """Wait until this incarnation is published."""
        await wait_until(lambda: self.published().get(engine) == generation, f"{engine}#{generation} is published")

    async def publish_from_disk(self, path: str, version: int) -> None:
        """An update of all engines."""
        result = await self.manager.update_from_disk("rollout", path=path, version=version)
        assert result.ok, result


def model_spec(replicas: int = 3, **options: Any) -> InferenceModelSpec:
    """A model of simulated engines that a trainer updates."""
    group = options.pop("group", None) or EngineGroupSpec(name="all", replicas=replicas, engine="sim")
    return InferenceModelSpec(
        name="policy",
        model_path="sim://weights/0",
        engine_groups=(group,),
        **{
            "weight_source": "trainer",
            "elastic_enabled": options.get("weight_source", "trainer") != "static",
            **options,
        },
    )


@asynccontextmanager
async def running_fleet(
    replicas: int = 3,
    *,
    settings: ManagerSpec = QUICK,
    launcher: SimLauncher | None = None,
    start: bool = True,
    clock: Clock = SYSTEM,
    resync: Resync | None = None,
    **options: Any,
) -> AsyncIterator[Fleet]:
    """A manager whose engines serve inside the block."""
    role = InferenceRoleSpec(role="rollout", models=(model_spec(replicas, **options),))
    pool = role.models[0].create_pool("rollout/policy")
    launcher = launcher or SimLauncher()
    manager = InferenceManager(
        [role],
        pools={KEY: pool},
        launchers={"local": launcher},
        settings=settings,
        clock=clock,
        resync={KEY: resync} if resync else None,
    )
    async with manager:
        if start:
            (result,) = await manager.activate()
            assert result.ok, result
        yield Fleet(manager, launcher, pool, manager.fleet("rollout"))


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Three engines that serve, unpublished weights."""
    async with running_fleet() as running:
        yield running
