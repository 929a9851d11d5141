"""The HTTP server around a simulated engine: routes, life cycle, and what a crash does to its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab_manager.sim import chat, completions, control, generate, info
from trimtab_manager.sim.bodies import ENGINE
from trimtab_manager.sim.config import SimConfig
from trimtab_manager.sim.control import TASKS, Tasks
from trimtab_manager.sim.engine import SimEngine
from trimtab_manager.sim.metrics import HTTP_METRICS, HttpMetrics, handle_metrics
from trimtab_manager.sim.middleware import IDLE_CLOSER, MIDDLEWARES
from trimtab_manager.sim.openapi import handle_openapi
from trimtab_manager.sim.reply import IdleCloser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_BODY_BYTES = 2**30
BACKLOG = 2048

_GET = ("GET",)
_POST = ("POST",)
_BOTH = ("GET", "POST")

ROUTES = (
    (("POST", "PUT"), "/generate", generate.handle_generate),
    (_POST, "/v1/chat/completions", chat.handle_chat),
    (_POST, "/v1/completions", completions.handle_completions),
    (_POST, "/abort_request", control.handle_abort),
    (_POST, "/pause_generation", control.handle_pause),
    (_POST, "/continue_generation", control.handle_continue),
    (_BOTH, "/flush_cache", control.handle_flush),
    (_BOTH, "/release_memory_occupation", control.handle_release),
    (_BOTH, "/resume_memory_occupation", control.handle_resume),
    (_POST, "/update_weights_from_disk", control.handle_update_from_disk),
    (_POST, "/update_weight_version", control.handle_update_version),
    (_BOTH, "/slow_down", control.handle_slow_down),
    (_GET, "/ready", info.handle_ready),
    (_GET, "/health", info.handle_health),
    (_GET, "/health_generate", info.handle_health),
    (_GET, "/model_info", info.handle_model_info),
    (_GET, "/get_model_info", info.handle_model_info),
    (_GET, "/server_info", info.handle_server_info),
    (_GET, "/get_server_info", info.handle_server_info),
    (_GET, "/v1/models", info.handle_models),
    (_GET, "/v1/models/{name:.+}", info.handle_model),
    (_GET, "/v1/loads", info.handle_loads),
    (_GET, "/metrics", handle_metrics),
    (_GET, "/openapi.json", handle_openapi),
    (("GET", "POST", "DELETE"), "/sim/faults", info.handle_faults),
    (_GET, "/sim/statistics", info.handle_statistics),
)


def create_app(engine: SimEngine) -> web.Application:
    """The application of an engine. It starts the engine with itself and stops it at its clean-up.

    Run it with ``handler_cancellation=True``: the disconnect of a client is then seen at once.
    """
    app = web.Application(middlewares=MIDDLEWARES, client_max_size=MAX_BODY_BYTES)
    app[ENGINE] = engine
    app[TASKS] = Tasks()
    app[HTTP_METRICS] = HttpMetrics(engine)
    app[IDLE_CLOSER] = IdleCloser()
    for methods, path, handler in ROUTES:
        resource = app.router.add_resource(path)
        for method in methods:
            resource.add_route(method, handler)
    app.on_response_prepare.append(control.drop_content_type)
    app.cleanup_ctx.append(_life)
    return app


async def _life(app: web.Application) -> AsyncIterator[None]:
    await app[ENGINE].start()
    yield
    app[IDLE_CLOSER].stop()
    await app[TASKS].stop()
    await app[ENGINE].stop()


class SimServer:
    """A listening simulated engine.

    A crash of the engine closes the listener and drops every connection at once, without an answer; ``crashed`` is then
    done, with the reason as its result.
    """

    def __init__(self, engine: SimEngine, host: str = "127.0.0.1", port: int = 0) -> None:
        self.engine = engine
        self._host = host
        self._port = port
        self._runner = web.AppRunner(
            create_app(engine),
            handler_cancellation=True,
            keepalive_timeout=engine.config.keep_alive_s,
            access_log=None,
        )
        self._listener: asyncio.Server | None = None
        self.crashed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def authority(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://{self.authority}"

    async def start(self) -> None:
        """Bind and serve. Raises ``OSError`` when the port is taken."""
        self.engine.on_crash(self._drop_everything)
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner has no server after setup")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                server, self._host, self._port, family=family, backlog=BACKLOG, reuse_address=True
            )
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and every connection, and end the engine."""
        self._close_listener()
        self._abort_connections()
        await self._runner.cleanup()
        if not self.crashed.done():
            self.crashed.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.crashed

    def _drop_everything(self, reason: str) -> None:
        self._close_listener()
        self._abort_connections()
        if not self.crashed.done():
            self.crashed.set_result(reason)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _abort_connections(self) -> None:
        server = self._runner.server
        for connection in list(server.connections if server is not None else ()):
            if connection.transport is not None:
                connection.transport.abort()


@asynccontextmanager
async def running_engine(
    config: SimConfig | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[SimServer]:
    """A simulated engine that serves as long as the block runs, on a free port unless one is named.

    Example:
        >>> async with running_engine(SimConfig(time_scale=0)) as server:
        ...     print(server.url, server.engine.statistics().running)
    """
    server = SimServer(SimEngine(config or SimConfig()), host, port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
