"""A gateway and a manager on the same pools, over simulated engines in the test's own process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from tests.manager.fleet.conftest import QUICK, model_spec
from tests.support.sim_launcher import SimLauncher
from tests.support.waiting import wait_until
from trimtab.spec import InferenceRoleSpec
from trimtab_gateway import Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.fleet import InferenceManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Served:
    """A gateway, the manager behind it, and a client."""

    url: str
    gateway: Gateway
    client: httpx.AsyncClient
    manager: InferenceManager
    launcher: SimLauncher

    async def model(self, role: str = "rollout") -> dict[str, Any]:
        """What ``/status`` says of the role's model, as it is now."""
        await self.forget_snapshot()
        document = (await self.client.get("/status")).json()
        model: dict[str, Any] = document["roles"][role]["models"]["policy"]
        return model

    async def forget_snapshot(self) -> None:
        """Wait until what the gateway publishes is newer than this call."""
        before = self.gateway.statistics().snapshot
        await wait_until(lambda: self.gateway.statistics().snapshot is not before, "a newer snapshot")

    async def standing(self, role: str = "rollout") -> dict[str, tuple[str, str | None]]:
        """State and reason of every engine, as the manager says."""
        rows = (await self.model(role))["manager"]["engines"]
        return {row["engine_id"]: (row["state"], row["reason"]) for row in rows}

    def engines(self, role: str = "rollout") -> list[str]:
        """Ids of the published engines."""
        return [engine.id for engine in self.manager.topology(role).models["policy"]]


@asynccontextmanager
async def serving(
    replicas: int = 1, *, start: bool = True, roles: tuple[str, ...] = ("rollout",), **options: Any
) -> AsyncIterator[Served]:
    """Roles with one managed model each."""
    specs = [InferenceRoleSpec(role=name, models=(model_spec(replicas, **options),)) for name in roles]
    served = tuple(RoleConfig(name, (ModelConfig("policy"),)) for name in roles)
    gateway = Gateway(GatewayConfig(served, port=0, probe_interval_s=0.05))
    pools = {(name, "policy"): gateway.pool(name, "policy") for name in roles}
    launcher = SimLauncher()
    manager = InferenceManager(specs, pools=pools, launchers={"local": launcher}, settings=QUICK)
    gateway.manage(manager)
    async with (
        manager,
        gateway,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as client,
    ):
        if start:
            await manager.activate()
        yield Served(gateway.url, gateway, client, manager, launcher)
