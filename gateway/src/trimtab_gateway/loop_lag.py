"""How late the event loop of the control app runs what is due.

A handler that computes for too long, or a thread that keeps the interpreter, holds up everybody: health endpoints
first.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import accumulate

from trimtab._core import Histogram

PERIOD_S = 0.1


class LoopLag:
    """The lags that were measured, counted in the buckets of ``trimtab._core.Histogram``."""

    def __init__(self) -> None:
        self._counts = [0] * (len(Histogram.BOUNDS_S) + 1)
        self.sum_s = 0.0

    @property
    def cumulative(self) -> list[int]:
        """How many lags are at most as long as each bound, and then how many there are."""
        return list(accumulate(self._counts))

    def record(self, late_s: float) -> None:
        """Count a timer that ran so much too late; a negative number is a timer that ran in time."""
        late_s = max(late_s, 0.0)
        self._counts[bisect_left(Histogram.BOUNDS_S, late_s)] += 1
        self.sum_s += late_s

    async def watch(self) -> None:
        """Measure for ever, ten times a second."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self.record(loop.time() - due)
