"""The two gates between an HTTP request and the scheduler, in SGLang's order and with its pitfalls.

1. The *pause gate*. ``/pause_generation`` of any mode closes it; requests wait there, silently, until
   ``/continue_generation``. They are not in the scheduler yet, so an abort does not reach them.
2. The *update lock*: requests share it, an update from disk on an engine that is not paused takes it alone. The update
   thus waits for every running request, and newer requests wait behind the update.

A pause of mode ``abort`` keeps the pause gate's mutex until the aborted requests are gone. When they cannot end,
because a pause of mode ``in_place`` froze the scheduler before, that call and every ``/continue_generation`` after it
hang (seen on SGLang 0.5.23); the disconnect of those requests' clients ends it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Admission:
    """Pause gate and update lock of one engine."""

    def __init__(self) -> None:
        self._mutex = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._change = asyncio.Condition()
        self._inside = 0
        self._updates_waiting = 0
        self._updating = False
        self.at_gate = 0

    @property
    def paused(self) -> bool:
        """Whether the pause gate is closed."""
        return not self._open.is_set()

    @property
    def occupied(self) -> bool:
        """Whether any request, or an update, is past the gates."""
        return self._inside > 0 or self._updating

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Pass both gates, waiting as long as it takes; leave at the end of the block."""
        self.at_gate += 1
        try:
            async with self._mutex:
                pass
            await self._open.wait()
            async with self._change:
                await self._change.wait_for(lambda: not (self._updating or self._updates_waiting))
                self._inside += 1
        finally:
            self.at_gate -= 1
        try:
            yield
        finally:
            self._inside -= 1
            await self._notify()

    @asynccontextmanager
    async def update(self) -> AsyncIterator[None]:
        """The right to change weights: at once on a paused engine, else when no request is inside."""
        async with self._mutex:
            paused = self.paused
        if paused:
            yield
            return
        self._updates_waiting += 1
        try:
            async with self._change:
                await self._change.wait_for(lambda: not (self._inside or self._updating))
                self._updating = True
        finally:
            self._updates_waiting -= 1
            await self._notify()
        try:
            yield
        finally:
            self._updating = False
            await self._notify()

    async def close(self, then: Callable[[], Awaitable[None]]) -> None:
        """Close the pause gate and do ``then`` before anybody else may open or close it."""
        async with self._mutex:
            self._open.clear()
            await then()

    async def open(self, then: Callable[[], Awaitable[None]]) -> None:
        """Do ``then`` and let the waiting requests pass."""
        async with self._mutex:
            await then()
            self._open.set()

    async def _notify(self) -> None:
        async with self._change:
            self._change.notify_all()
