"""A real gateway over real HTTP for the tests of the control app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.snapshot import RoleSnapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOBODY = "127.0.0.1:9"
"""An engine address where nothing listens (the discard port)."""


def one_role(*engines: EngineConfig, **knobs: object) -> GatewayConfig:
    """A gateway for ``rollout`` / ``tiny`` on a free port."""
    role = RoleConfig("rollout", (ModelConfig("tiny", engines),))
    return GatewayConfig((role,), port=0, **knobs)  # type: ignore[arg-type]


def two_roles() -> GatewayConfig:
    """``rollout`` with two models and ``genrm`` with one, none of them reachable."""
    models = (ModelConfig("policy", (EngineConfig(NOBODY, 2.0, "e0"),)), ModelConfig("Qwen/Qwen3-0.6B"))
    return GatewayConfig(
        (RoleConfig("rollout", models, default_model="policy"), RoleConfig("genrm", (ModelConfig("judge"),))), port=0
    )


class Served:
    """A running gateway and a client of it."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.client = client

    async def get(self, path: str) -> httpx.Response:
        """GET a path."""
        return await self.client.get(path)

    async def json(self, path: str, status: int = 200) -> dict[str, Any]:
        """GET a path that must answer JSON with ``status``."""
        answer = await self.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        document: dict[str, Any] = answer.json()
        return document

    def role(self, name: str) -> RoleSnapshot:
        """The role as it is published now."""
        return self.gateway.statistics().snapshot.roles[name]

    async def eligible(self, count: int) -> None:
        """Wait until ``count`` engines of ``rollout`` / ``tiny`` may take a request, and the snapshot says so."""

        def eligible() -> int:
            return sum(backend.eligible for backend in self.role("rollout").models[0].pool.backends)

        await wait_until(lambda: eligible() == count, f"{count} eligible engines")

    async def forget_snapshot(self) -> None:
        """Wait until the published snapshot is newer than this call."""
        before = self.gateway.statistics().snapshot
        await wait_until(lambda: self.gateway.statistics().snapshot is not before, "a newer snapshot")


Start = Callable[[GatewayConfig], Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    """Starts gateways that end with the test."""
    async with AsyncExitStack() as stack:

        async def start(config: GatewayConfig) -> Served:
            gateway = await stack.enter_async_context(Gateway(config))
            client = httpx.AsyncClient(base_url=gateway.url, trust_env=False)
            return Served(gateway, await stack.enter_async_context(client))

        yield start
