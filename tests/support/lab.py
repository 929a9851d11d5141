"""The bench a gateway test works at: engines, pools, data planes and clients that end in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.support.client import RawClient, ask
from tests.support.engine import ScriptedEngine
from tests.support.http1 import request_bytes
from tests.support.waiting import wait_until
from trimtab import _core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from tests.support.engine import Script
    from tests.support.http1 import Header, Response

Asker = Callable[..., Awaitable["Response"]]

ROLE = "rollout"
MODEL = "tiny"
NEVER_S = 3600.0
"""Probe interval of a test that is not about probes: the only evidence is what the test makes happen."""


def make_pool(
    engines: Iterable[ScriptedEngine | str],
    capacities: Sequence[float] | None = None,
    *,
    name: str = f"{ROLE}/{MODEL}",
    proven: bool = True,
    **options: Any,
) -> _core.Pool:
    """A pool over scripted engines (or addresses); ``options`` go to ``_core.Pool``."""
    pool = _core.Pool(name, **options)
    addresses = [engine if isinstance(engine, str) else engine.url for engine in engines]
    for address, capacity in zip(addresses, capacities or [1.0] * len(addresses), strict=True):
        pool.add_backend(address, capacity, proven=proven)
    return pool


class Gateway:
    """A running data plane and its pools, keyed by ``(role, model)``."""

    def __init__(self, plane: _core.DataPlane, pools: Mapping[tuple[str, str], _core.Pool]) -> None:
        self.plane = plane
        self.pools = dict(pools)
        self.host, self.port = plane.host, plane.port

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://{self.host}:{self.port}"

    @property
    def pool(self) -> _core.Pool:
        """The only pool."""
        (pool,) = self.pools.values()
        return pool

    @property
    def outstanding(self) -> int:
        """Executions in flight over all pools."""
        return sum(pool.statistics().outstanding for pool in self.pools.values())

    def outcomes(self) -> dict[str, int]:
        """Outcomes so far of the only pool, zeros left out."""
        return {outcome: count for outcome, count in self.pool.statistics().outcomes.items() if count}

    async def idle(self) -> None:
        """Wait until no execution is in flight."""
        await wait_until(lambda: self.outstanding == 0, "outstanding returns to 0")

    async def busy(self, count: int) -> None:
        """Wait until exactly ``count`` executions are in flight."""
        await wait_until(lambda: self.outstanding == count, f"{count} outstanding")

    async def post(self, path: str, body: bytes | None = b"{}", headers: Iterable[Header] = ()) -> Response:
        """POST on a connection of its own."""
        return await ask(self.host, self.port, path, body, headers)

    async def get(self, path: str, headers: Iterable[Header] = ()) -> Response:
        """GET on a connection of its own."""
        return await ask(self.host, self.port, path, None, headers, method="GET")

    async def shutdown(self, grace_s: float = 0.0) -> None:
        """Shut the data plane down without blocking the loop that the engines live in."""
        await asyncio.to_thread(self.plane.shutdown, grace_s)


def _suspected(pool: _core.Pool, backend: _core.Backend) -> bool:
    return any(b.id == backend.id and b.health == "suspect" for b in pool.statistics().backends)


class Lab:
    """Starts parts and stops them in reverse order: clients, then gateways, then engines."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._engines: dict[str, ScriptedEngine] = {}
        self._shared: tuple[ScriptedEngine, Asker] | None = None

    async def engine(self, script: Script, **options: Any) -> ScriptedEngine:
        """Start a scripted engine."""
        engine = await self._stack.enter_async_context(ScriptedEngine(script, **options))
        self._engines[engine.authority] = engine
        return engine

    async def engines(self, count: int, script: Script, **options: Any) -> list[ScriptedEngine]:
        """Start engines with the same script."""
        return [await self.engine(script, **options) for _ in range(count)]

    async def gateway(
        self,
        *engines: ScriptedEngine | str,
        capacities: Sequence[float] | None = None,
        pools: Mapping[tuple[str, str], _core.Pool] | None = None,
        pool_options: Mapping[str, Any] | None = None,
        role_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Gateway:
        """Start a data plane over one pool of ``engines``, or over ``pools`` keyed by ``(role, model)``.

        Args:
            engines: Engines (or addresses) of the one pool.
            capacities: Their capacities, 1.0 by default.
            pools: Ready pools, instead of engines.
            pool_options: Keywords of ``make_pool`` for the one pool.
            role_options: Keywords of ``_core.Role`` for every role.
            options: Keywords of ``_core.DataPlane.start``. By default there is only the first round of probes, which is
                over (and forgiven) when this returns, and aborts have a short grace.
        """
        if pools is None:
            pools = {(ROLE, MODEL): make_pool(engines, capacities, **(pool_options or {}))}
        models: dict[str, dict[str, _core.Pool]] = {}
        for (role, model), pool in pools.items():
            models.setdefault(role, {})[model] = pool
        roles = [_core.Role(name, members, **(role_options or {})) for name, members in models.items()]
        plane = _core.DataPlane.start(roles=roles, **{"probe_interval_s": NEVER_S, "abort_grace_s": 0.5, **options})
        gateway = Gateway(plane, pools)
        self._stack.push_async_callback(gateway.shutdown)
        if "probe_interval_s" not in options and (pool_options or {}).get("proven", True):
            await self._first_probes(gateway)
        return gateway

    async def _first_probes(self, gateway: Gateway) -> None:
        """Wait for the probes of the start, and take back what they held against addresses without an engine.

        A data plane probes every backend once as it starts. Left to chance, that probe would race with the test: it
        opens a connection, and it makes the backend that a test wants to be tried first a suspect.
        """
        backends = [(pool, backend) for pool in gateway.pools.values() for backend in pool.backends()]
        engines = [self._engines[backend.authority] for _, backend in backends if backend.authority in self._engines]
        probed = [engine for engine in engines if engine.model_info is not None]

        def over() -> bool:
            statistics = gateway.plane.statistics()
            answered = all(engine.probes for engine in probed)
            return answered and statistics["upstream_connections"] == statistics["upstream_idle"]

        await wait_until(over, "the first probes are answered")
        for pool, backend in backends:
            if backend.authority not in self._engines:
                await wait_until(functools.partial(_suspected, pool, backend), "the first probe has failed")
                pool.report_probe(backend, alive=True)

    async def shared_gateway(self, script: Script) -> tuple[ScriptedEngine, Asker]:
        """One engine, one gateway and one kept-alive client for all examples of a property test.

        Returns:
            The engine, and ``ask(path, body, headers)``.
        """
        if self._shared is None:
            engine = await self.engine(script)
            client = await self.client(await self.gateway(engine))

            async def asker(path: str, body: bytes, headers: Iterable[Header] = ()) -> Response:
                await client.send(request_bytes(path, body, headers))
                return await client.response()

            self._shared = engine, asker
        return self._shared

    async def client(self, gateway: Gateway, **options: Any) -> RawClient:
        """Connect a raw client."""
        return await self._stack.enter_async_context(RawClient(gateway.host, gateway.port, **options))

    def enter(self, manager: contextlib.AbstractContextManager[str]) -> str:
        """Enter a context that yields an address, for as long as the lab is open."""
        return self._stack.enter_context(manager)


@contextlib.asynccontextmanager
async def open_lab() -> AsyncIterator[Lab]:
    """A lab that closes in reverse order of what was started."""
    async with contextlib.AsyncExitStack() as stack:
        yield Lab(stack)
