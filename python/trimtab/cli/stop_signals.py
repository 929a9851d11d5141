"""Signals that end a process which has much to clean up: never without its cleanup, however many come."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import FrameType, TracebackType

    from typing_extensions import Self

logger = get_logger("serve")


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP of this process: the first asks for an end, the second for haste, others for nothing.

    A context manager around everything that needs cleanup, the event loop included: what comes before the loop hears
    them is kept for it. They stay ignored after the block, since the process is about to exit, and a loop that is
    closed, or an interpreter that ends, would leave them to the kernel, which kills.
    """

    def __init__(self) -> None:
        self._numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is under nohup
            self._numbers.append(signal.SIGHUP)
        self._came: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first, self._second = asyncio.Event(), asyncio.Event()

    def __enter__(self) -> Self:
        self._handle_with(self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle_with(signal.SIG_IGN)

    @asynccontextmanager
    async def heard(self, hurry: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
        """Hear them in the running event loop while the block runs.

        Args:
            hurry: Awaited beside the block at the second one; the block ends no sooner than this.
        """
        self._handle_with(self._on_signal)  # again: a library that was imported meanwhile may set its own, as Ray does
        self._loop = asyncio.get_running_loop()
        hurrying = asyncio.create_task(self._at_second(hurry), name="trimtab-hurry")
        self._tell()
        try:
            yield
        finally:
            self._loop = None
            if not self._second.is_set():
                hurrying.cancel()
            with suppress(asyncio.CancelledError):
                await hurrying

    async def wait(self) -> None:
        """Returns at the first signal."""
        await self._first.wait()

    def _handle_with(self, handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        for number in self._numbers:
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._came.append(number)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if self._came and not self._first.is_set():
            logger.info("stopping: running requests get a moment to finish", signal=_name(self._came[0]))
            self._first.set()
        if len(self._came) > 1 and not self._second.is_set():
            logger.info("ending now: running requests are cut", signal=_name(self._came[1]))
            self._second.set()

    async def _at_second(self, hurry: Callable[[], Awaitable[object]]) -> None:
        await self._second.wait()
        await hurry()


def _name(number: int) -> str:
    return signal.Signals(number).name
