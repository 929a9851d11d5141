"""A clock for the manager whose time passes when the test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from trimtab_manager.engine.clock import Clock

ROUNDS = 20
"""Turns of the event loop in which what was woken gets to its next wait, unless it waits for a socket."""


class ManualTime:
    """Time that stands still until ``advance``.

    Attributes:
        now_s: The time.
        clock: What the manager takes for the time.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = Clock(now_s=lambda: self.now_s, sleep=self._sleep)
        self._numbers = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    async def advance(self, seconds: float) -> None:
        """Let time pass; whoever is due on the way wakes at its own time, and may sleep again."""
        end = self.now_s + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now_s, _, event = heapq.heappop(self._sleepers)
            event.set()
            await self._settle()
        self.now_s = end

    async def _sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        heapq.heappush(self._sleepers, (self.now_s + seconds, next(self._numbers), event))
        await event.wait()

    async def _settle(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
