"""The universal end-of-test check: what a test started is over, and every execution it counted is settled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from tests.support.sockets import child_processes, open_tcp_sockets

if TYPE_CHECKING:
    from tests.support.registry import Registry

PATIENCE_S = 3.0
"""Ends that another thread or the kernel still has to deliver (a FIN, a reaped child) may take this long."""


def _pool_violations(pool: Any) -> list[str]:
    snapshot = pool.statistics()
    if not snapshot.outstanding:
        return []
    where = {backend.id: backend.outstanding for backend in snapshot.backends if backend.outstanding}
    return [f"pool {snapshot.name}: {snapshot.outstanding} leases are open (on {where or 'removed backends'})"]


def _plane_violations(plane: Any) -> list[str]:
    snapshot = plane.statistics()
    return [
        f"data plane on port {plane.port}: {name} is {snapshot[name]}, not 0"
        for name in ("open_requests", "open_streams", "connections", "upstream_connections")
        if snapshot[name]
    ]


def violations_now(registry: Registry, tasks: set[asyncio.Task[Any]], children: set[tuple[int, str]]) -> list[str]:
    """Everything that should be over and is not.

    Args:
        registry: What the test created.
        tasks: Tasks that were there before the test.
        children: Child processes that were there before the test.
    """
    found = [line for pool in registry.pools for line in _pool_violations(pool)]
    found += [line for plane in registry.planes for line in _plane_violations(plane)]
    ports = {engine.port for engine in registry.engines} | {plane.port for plane in registry.planes}
    found += [f"open socket: {line}" for line in open_tcp_sockets(ports)] if ports else []
    current = asyncio.current_task()
    found += [
        f"pending task: {task!r}" for task in asyncio.all_tasks() - tasks if task is not current and not task.done()
    ]
    found += [f"child process {pid} ({name}) is alive" for pid, name in sorted(child_processes() - children)]
    return found


async def violations(
    registry: Registry,
    tasks: set[asyncio.Task[Any]],
    children: set[tuple[int, str]],
    *,
    patience_s: float | None = None,
) -> list[str]:
    """Violations that last longer than ``patience_s`` (``PATIENCE_S``). Nothing is cancelled or closed on the way."""
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        found = violations_now(registry, tasks, children)
        if not found or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(0.01)
