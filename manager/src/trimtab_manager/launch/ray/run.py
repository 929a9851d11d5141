"""A run: the connection to a cluster, and the sign of life by which others tell our groups from left-over ones."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import ray

from trimtab_manager.launch.ray import janitor
from trimtab_manager.launch.ray.connection import connect
from trimtab_manager.launch.ray.tags import NAMESPACE, check_run_id, marker_name
from trimtab_manager.launch.ray.waiting import in_thread, to_its_end
from trimtab_manager.launch.types import LaunchError

log = logging.getLogger(__name__)


class Marker:
    """An actor that does nothing. While it is registered, its run lives."""


class RayRun:
    """Shared by the launchers of one manager. Opened by the first launch.

    Args:
        address: The cluster, as ``ray.init`` takes it.
        run_id: Tag of everything it makes; by default a new one.
    """

    def __init__(self, *, address: str | None = None, run_id: str | None = None) -> None:
        self.run_id = check_run_id(run_id or uuid.uuid4().hex)
        self._address = address
        self._marker: Any = None
        self._opening = asyncio.Lock()
        self._connected = False
        """Whether the connection is ours, so that closing ends it; a driver that had one keeps it."""

    async def open(self) -> None:
        """Connects, marks the run as living, and removes groups of dead runs. Idempotent.

        Raises:
            LaunchError: There is no such cluster, or another run with this id lives.
        """
        async with self._opening:
            if self._marker is None:
                await to_its_end(self._open())

    async def close(self) -> None:
        """Takes the mark away, and the connection if it was made here. Idempotent; groups are to be gone by then."""
        async with self._opening:
            if self._marker is not None:
                marker, self._marker = self._marker, None
                await in_thread(ray.kill, marker)
            if self._connected:
                self._connected = False
                await in_thread(ray.shutdown)

    async def _open(self) -> None:
        if not ray.is_initialized():
            await connect(self._address)
            self._connected = True
        try:
            self._marker = await in_thread(self._mark)
        except ValueError as error:
            raise LaunchError(
                f"another manager with run id {self.run_id} lives on this Ray cluster ({error}): choose another run "
                f"id, or stop that one"
            ) from error
        await in_thread(janitor.sweep, self.run_id)

    def _mark(self) -> Any:
        # Restarted on another node when its own dies: the run lives on, and so do its groups elsewhere.
        actor = ray.remote(num_cpus=0, max_restarts=-1)(Marker)
        return actor.options(name=marker_name(self.run_id), namespace=NAMESPACE).remote()
