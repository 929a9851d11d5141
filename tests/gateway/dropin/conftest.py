"""A gateway that starts without engines, and simulated engines for the launchers of other frameworks to register."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.waiting import wait_until
from trimtab_gateway import Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimServer

FAST = SimConfig(time_scale=0, max_running_requests=8, max_total_tokens=16_384, context_length=4_096)
SLOW = SimConfig(time_scale=1, decode_step_s=0.02, max_running_requests=64)
"""Its generations take as long as their tokens: something to abort."""


class Fleet:
    """Gateways and engines that end with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def gateway(self, *roles: RoleConfig, **knobs: Any) -> Served:
        """A gateway whose pools are empty, for one lenient role unless others are given."""
        served = roles or (RoleConfig("rollout", (ModelConfig("default"),), lenient_model=True),)
        config = GatewayConfig(served, port=0, **{"probe_interval_s": 0.05, **knobs})
        gateway = await self._stack.enter_async_context(Gateway(config))
        headers = {} if config.admin_key is None else {"Authorization": f"Bearer {config.admin_key}"}
        client = httpx.AsyncClient(base_url=gateway.url, trust_env=False, headers=headers, timeout=30)
        return Served(gateway, await self._stack.enter_async_context(client))

    async def engine(self, config: SimConfig = FAST) -> SimServer:
        """A simulated engine that nobody knows yet."""
        return await self._stack.enter_async_context(running_engine(config))


class Served:
    """A running gateway and a client of it, with the admin key if there is one."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.client = client

    @property
    def url(self) -> str:
        """Base URL."""
        return self.gateway.url

    async def register(self, url: str, path: str = "/workers", **more: object) -> str:
        """Register an engine; its worker id."""
        answer = await self.client.post(path, json={"url": url, **more})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["worker_id"])

    async def workers(self, path: str = "/workers") -> list[dict[str, Any]]:
        """Who is listed."""
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        listed: list[dict[str, Any]] = answer.json()["workers"]
        return listed

    async def eligible(self, count: int, role: str = "rollout", model: str = "default") -> None:
        """Wait until ``count`` engines of a pool may take a request."""
        pool = self.gateway.pool(role, model)
        await wait_until(lambda: pool.statistics().census["eligible"] == count, f"{count} eligible engines")


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Starts gateways and engines."""
    async with AsyncExitStack() as stack:
        yield Fleet(stack)
