"""Waiting for a condition of another thread or process, with a deadline and a reason."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DEADLINE_S = 10.0
"""Far above what any step of a test needs: reaching it is a failure, never a measurement."""


async def wait_until(condition: Callable[[], T], what: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Return the first true value of ``condition``.

    The condition is looked at before any waiting and once more after the deadline, so a slow machine cannot turn a true
    condition into a failure. An exception of the condition is the test's own failure and is raised at once.

    Raises:
        AssertionError: still false after ``deadline_s`` seconds; the message has ``what`` and the last value.
    """
    deadline = time.monotonic() + deadline_s
    pause_s = 0.0
    while True:
        expired = time.monotonic() >= deadline
        if value := condition():
            return value
        if expired:
            raise AssertionError(f"not within {deadline_s} s: {what} (last value: {value!r})")
        await asyncio.sleep(pause_s)
        pause_s = min(0.005, pause_s + 0.0005)


async def settled(value: Callable[[], int], *, quiet_s: float = 0.3, deadline_s: float = DEADLINE_S) -> int:
    """Return ``value()`` once it has not changed for ``quiet_s``: how a test sees that a stream is stalled.

    A machine that stops for longer than ``quiet_s`` can only make the result too small; assert upper bounds on it.

    Raises:
        AssertionError: it still changes after ``deadline_s``.
    """
    deadline = time.monotonic() + deadline_s
    last, since = value(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() > deadline:
            raise AssertionError(f"still changing after {deadline_s} s (last value: {last})")
        await asyncio.sleep(0.01)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last
