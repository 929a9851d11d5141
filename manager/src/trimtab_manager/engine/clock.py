"""Time as an argument: tests of deadlines pass when they say so, not when the wall clock does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """What the control of an engine knows of time.

    Attributes:
        now_s: Seconds on a clock that never goes back.
        sleep: Waits that many seconds.
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


SYSTEM = Clock()


@dataclass(frozen=True)
class Until:
    """A moment on a clock by which something must have happened."""

    clock: Clock
    at_s: float

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM) -> Until:
        """The moment ``seconds`` from now."""
        return cls(clock, clock.now_s() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self.at_s - self.clock.now_s())

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.left_s <= 0
