"""One operation at a time on an engine; who asks for what is being done already waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from trimtab.errors import InvalidTransition


@dataclass
class _Running:
    name: str
    task: asyncio.Task[None]
    stopped_by: str | None = None


class Operations:
    """Runs operations as tasks of their own, so that a caller who is cancelled does not take others' work with him.

    An operation goes on without any caller, to its own deadline. Asking again joins it.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._running: _Running | None = None

    @property
    def running(self) -> str | None:
        """Name of the operation in progress."""
        running = self._running
        return None if running is None or running.task.done() else running.name

    async def run(self, name: str, operation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does it, after whatever else is being done; or joins the one of the same name.

        Raises:
            InvalidTransition: It was stopped by a ``preempt``.
        """
        while (running := self._running) is not None and not running.task.done():
            if running.name == name:
                break
            await asyncio.wait({running.task})
        else:
            task = asyncio.create_task(operation(), name=f"{name} {self._engine}")
            # Without a caller nobody looks at its error; the state it left says what became of it.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            running = self._running = _Running(name, task)
        try:
            await asyncio.shield(running.task)
        except asyncio.CancelledError:
            if running.stopped_by is not None and running.task.cancelled():
                message = f"engine {self._engine}: {name} was stopped by {running.stopped_by}"
                raise InvalidTransition(message) from None
            raise

    async def preempt(self, by: str) -> None:
        """Cancels the operation in progress, unless it is ``by`` itself, and waits for its end."""
        running = self._running
        if running is not None and running.name != by and not running.task.done():
            running.stopped_by = by
            running.task.cancel()
            await asyncio.wait({running.task})
