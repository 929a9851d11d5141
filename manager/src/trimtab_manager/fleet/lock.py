"""One change of a model's engines at a time, and who makes it.

Updates, sleep, wake and the publication of a new or replaced engine exclude each other: an update reaches every engine
that is published when it begins, and an engine is published either before it or after it. Launching and killing happen
outside the lock, since they may take minutes and touch nothing that is published.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import UpdateInProgress
from trimtab_manager.engine.clock import SYSTEM, Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True)
class Holder:
    """Who changes the engines now.

    Attributes:
        what: The change, such as ``update to 7``.
        is_update: Whether it is an update of weights.
        since_s: When it began, on the clock of the lock.
    """

    what: str
    is_update: bool
    since_s: float


class FleetLock:
    """The lock of one model; first come, first served.

    Args:
        pool: What it is about, for messages: ``role/model``.
        clock: The time.
    """

    def __init__(self, pool: str, *, clock: Clock = SYSTEM) -> None:
        self._pool = pool
        self._clock = clock
        self._lock = asyncio.Lock()
        self._holder: Holder | None = None

    @property
    def holder(self) -> Holder | None:
        """Who has it."""
        return self._holder

    @asynccontextmanager
    async def held(self, what: str) -> AsyncIterator[None]:
        """Wait for it, and have it inside the block."""
        async with self._lock:
            with_it = Holder(what, is_update=False, since_s=self._clock.now_s())
            self._holder = with_it
            try:
                yield
            finally:
                self._holder = None

    @asynccontextmanager
    async def held_for_update(self, what: str) -> AsyncIterator[None]:
        """The same for an update of weights, which waits for anything but another update.

        Raises:
            UpdateInProgress: Another one is; the message says which, and since when.
        """
        if (holder := self._holder) is not None and holder.is_update:
            age_s = self._clock.now_s() - holder.since_s
            raise UpdateInProgress(
                f"{self._pool}: {what} is refused, {holder.what!r} has been running for {age_s:.1f} s;"
                " ask again when it is over"
            )
        async with self._lock:
            self._holder = Holder(what, is_update=True, since_s=self._clock.now_s())
            try:
                yield
            finally:
                self._holder = None
