"""The gateway: pools, data plane and control app, started and stopped together."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from trimtab._core import AddressRules, DataPlane, Pool, Role
from trimtab_gateway.config.types import own_authorities
from trimtab_gateway.control import create_app
from trimtab_gateway.control.server import private_server
from trimtab_gateway.control.workers import Workers
from trimtab_gateway.descriptors import max_clients
from trimtab_gateway.events import log_events, log_failures
from trimtab_gateway.log import get_logger
from trimtab_gateway.loop_lag import LoopLag
from trimtab_gateway.mismatches import log_version_mismatches
from trimtab_gateway.publisher import Publisher, Watch
from trimtab_gateway.reachability import ReachabilityLog
from trimtab_gateway.snapshot import Fleet, ServedRole
from trimtab_gateway.statistics import GatewayStatistics
from trimtab_gateway.traces import exporting

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from trimtab.fleet import FleetControl
    from trimtab.spec.adapter import Genrm
    from trimtab_gateway.config import GatewayConfig, ModelConfig, RoleConfig
    from trimtab_gateway.control.exposition import Durations

TICK_S = 1.0
SHUTDOWN_GRACE_S = 5.0
logger = get_logger("gateway")


@final
class Gateway:
    """One address in front of every engine of a configuration.

    Use it as an async context manager: it serves inside the block. The engines of the configuration must run already;
    one that cannot be reached gets no request until a probe has reached it.

    Raises:
        StartError: On entering, when the address cannot be bound; nothing stays behind.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._roles = tuple(_serve(role) for role in config.roles)
        self._fleet: FleetControl | None = None
        self._publisher = Publisher(self._served)
        self._watch = Watch(self._publisher)
        self._address_rules = AddressRules(config.worker_allow)
        self._workers = Workers(
            self._roles,
            rules=self._address_rules,
            engine_key=config.engine_key,
            engine_ca=config.engine_ca,
            is_own=lambda authority: authority in own_authorities(config.host, self._running().port),
            manager=lambda: self._fleet,
        )
        self._reachability = ReachabilityLog()
        self._loop_lag = LoopLag()
        self._started = time.monotonic()
        self._data_plane: DataPlane | None = None
        self._resources = AsyncExitStack()

    @property
    def url(self) -> str:
        """Base URL for clients on this machine, such as ``http://127.0.0.1:8080``."""
        plane = self._running()
        host = "127.0.0.1" if plane.host == "localhost" else plane.host
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")  # noqa: PLR2004 -- IP version
        scheme = "http" if self.config.tls_cert is None else "https"
        return f"{scheme}://{address if address.version == 4 else f'[{address}]'}:{plane.port}"  # noqa: PLR2004 -- IP version

    def pool(self, role: str, model: str) -> Pool:
        """The pool of one model. Raises ``KeyError`` when it is not served."""
        return {served.name: served for served in self._roles}[role].models[model]

    def manage(self, fleet: FleetControl) -> None:
        """Let ``fleet`` run the engines, from now on.

        It carries out what is asked of them (``POST /<role>/pause`` and its kin), and epoch and ``topology_revision``
        are its own counts; a role that it does not count is counted here. The lease API no longer changes its engines.
        """
        self._fleet = fleet
        for role in self._roles:
            for model, pool in role.models.items():
                pool.managed = fleet.standing(role.name, model) is not None

    def statistics(self) -> GatewayStatistics:
        """The gateway at this moment."""
        counters: dict[str, Any] = {}
        lags: dict[str, Durations] = {"control": self._loop_lag}
        if self._data_plane is not None:
            counters = self._data_plane.statistics()
            lags["data"] = self._data_plane.loop_lag()
        return GatewayStatistics(self._publisher.current(), counters, time.monotonic() - self._started, lags)

    def _served(self) -> Fleet:
        if self._fleet is None:
            return Fleet(self._roles)
        count = self._fleet.topology_count()
        roles = tuple(replace(role, topology_revision=count.revisions.get(role.name)) for role in self._roles)
        return Fleet(roles, epoch=count.epoch)

    async def __aenter__(self) -> Gateway:
        async with AsyncExitStack() as resources:
            app = create_app(self._roles, self.statistics, self._watch, self._workers, lambda: self._fleet)
            socket = await resources.enter_async_context(private_server(app))
            self._data_plane = _start_data_plane(self.config, self._roles, socket, self._address_rules)
            resources.push_async_callback(self._stop_data_plane)
            ticker = asyncio.create_task(self._tick_for_ever(), name="trimtab-gateway-tick")
            resources.push_async_callback(_cancel, ticker)
            if self.config.traces:
                await resources.enter_async_context(exporting(self._data_plane))
            watch = asyncio.create_task(self._loop_lag.watch(), name="trimtab-gateway-loop-lag")
            resources.push_async_callback(_cancel, watch)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def cut(self) -> None:
        """End every running request now: its connections are closed and its engine is told to abort it.

        For a second signal during the grace of a shutdown; leaving the block still has to follow.
        """
        if self._data_plane is not None:
            await asyncio.to_thread(self._data_plane.shutdown, 0.0)

    async def _stop_data_plane(self) -> None:
        # Or whoever waits for a newer snapshot would be waited for.
        self._watch.close()
        # Waits for running requests, so it must not hold the loop: the control app answers until the end.
        await asyncio.to_thread(self._running().shutdown, SHUTDOWN_GRACE_S)
        self._tick()

    def _running(self) -> DataPlane:
        if self._data_plane is None:
            raise RuntimeError("the gateway is not running: use it as 'async with Gateway(config) as gateway'")
        return self._data_plane

    async def _tick_for_ever(self) -> None:
        # The first ticks come faster: whoever starts a gateway waits to read which engines answer.
        pause_s = TICK_S / 32
        while True:
            try:
                self._tick()
            except Exception:
                # Logs are worth less than the data plane that goes on without them.
                logger.exception("tick failed")
            await asyncio.sleep(pause_s)
            pause_s = min(TICK_S, 2 * pause_s)

    def _tick(self) -> None:
        pools = [pool for role in self._roles for pool in role.models.values()]
        log_events(pools)
        log_failures(self._running())
        log_version_mismatches(self._running())
        self._workers.tick()
        self._reachability.observe(self._publisher.current(), is_managed=self._fleet is not None)


def _serve(role: RoleConfig) -> ServedRole:
    return ServedRole(
        name=role.name,
        models={model.name: _create_pool(role.name, model) for model in role.models},
        default_model=role.effective_default_model,
        route_keys=role.route_keys,
        router_urls=role.router_urls,
        lenient_model=role.lenient_model,
        session_fields=role.session_fields,
        expose_engine_urls=role.expose_engine_urls,
    )


def _create_pool(role: str, model: ModelConfig) -> Pool:
    pool = model.create_pool(f"{role}/{model.name}")
    for engine in model.engines:
        pool.add_backend(engine.url, engine.capacity, id=engine.id, proven=False)
    if model.router_url is not None:
        pool.add_backend(model.router_url, 1.0, proven=False)
    return pool


def _judges(role: RoleConfig) -> dict[str, Genrm]:
    return {model.name: model.genrm for model in role.models if model.adapter is not None}


def _start_data_plane(
    config: GatewayConfig, roles: tuple[ServedRole, ...], control_socket: Path, address_rules: AddressRules
) -> DataPlane:
    configured = {role.name: role for role in config.roles}
    return DataPlane.start(
        roles=[
            Role(
                role.name,
                role.models,
                default_model=role.default_model,
                lenient_model=role.lenient_model,
                route_keys=role.route_keys,
                router_urls=role.router_urls,
                session_fields=role.session_fields,
                genrm=_judges(configured[role.name]),
            )
            for role in roles
        ],
        host=config.host,
        port=config.port,
        control_socket=str(control_socket),
        lease_socket=config.lease_socket,
        traces=config.traces,
        worker_threads=config.worker_threads,
        max_body_bytes=config.max_body_bytes,
        max_clients=max_clients(config),
        connect_timeout_s=config.connect_timeout_s,
        first_byte_timeout_s=config.first_byte_timeout_s,
        idle_timeout_s=config.idle_timeout_s,
        total_timeout_s=config.total_timeout_s,
        engine_keepalive_s=config.engine_keepalive_s,
        abort_grace_s=config.abort_grace_s,
        probe_interval_s=config.probe_interval_s,
        probe_timeout_s=config.probe_timeout_s,
        client_key=config.client_key,
        admin_key=config.admin_key,
        engine_key=config.engine_key,
        metrics_need_key=config.metrics_need_key,
        address_rules=address_rules,
        tls_cert=config.tls_cert,
        tls_key=config.tls_key,
        engine_ca=config.engine_ca,
        min_ready={
            f"{role.name}/{model.name}": model.min_ready_engines for role in config.roles for model in role.models
        },
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
