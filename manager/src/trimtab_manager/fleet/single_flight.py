"""Concurrent duplicates of an operation join the one that runs."""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from trimtab.errors import InvalidTransition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

T = TypeVar("T")


class SingleFlight:
    """Runs operations in tasks of their own, one per key.

    A caller that is cancelled leaves the operation to the others who wait for it; the last one to leave cancels it.

    Args:
        what: Whose operations they are, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}
        self._waiting: dict[asyncio.Task[Any], int] = {}
        self._closed = False

    async def run(self, key: Hashable, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the operation of this key that runs, or of a new one.

        Raises:
            InvalidTransition: ``cancel`` came before it ended.
        """
        if self._closed:
            raise self._over(key)
        task: asyncio.Task[T] | None = self._flights.get(key)
        if task is None or task.done():
            task = asyncio.create_task(operation(), name=f"trimtab-manager-{self._what}-{key}")
            self._flights[key] = task
            self._waiting[task] = 0
            task.add_done_callback(functools.partial(self._landed, key))
        self._waiting[task] += 1
        try:
            await asyncio.wait({task})
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                if not task.done():
                    task.cancel()
                    # Whoever asked for it must not return while it still cleans up.
                    await asyncio.wait({task})
        if task.cancelled():
            raise self._over(key)
        return task.result()

    async def close(self) -> None:
        """Cancel every operation that runs, wait until all have ended, and start no more."""
        self._closed = True
        while tasks := set(self._flights.values()):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    task.exception()
            await asyncio.sleep(0)

    def _landed(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._flights.get(key) is task:
            del self._flights[key]

    def _over(self, key: Hashable) -> InvalidTransition:
        return InvalidTransition(f"{self._what}: {key} is refused, its engines are being shut down for good")
