"""Ctrl-C and SIGTERM, cleanly: the running task is cancelled, its cleanup runs, and then the signal is reported."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["InterruptedRunError", "run_until_signal"]

T = TypeVar("T")


class InterruptedRunError(Exception):
    """A signal ended the run; everything it had started has stopped."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


def run_until_signal(coroutine: Coroutine[None, None, T]) -> T:
    """Run a coroutine on a uvloop event loop and return its result.

    Raises:
        InterruptedRunError: SIGINT or SIGTERM came first.
    """
    caught: list[int] = []

    async def guarded() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(coroutine)

        def stop(signum: int) -> None:
            caught.append(signum)
            task.cancel()

        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, stop, signum)
        try:
            return await task
        finally:
            for signum in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signum)

    # A loop leaves the default behind, which is not what was there when somebody ignores the signal.
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        return uvloop.run(guarded())
    except asyncio.CancelledError:
        if not caught:
            raise
        raise InterruptedRunError(caught[0]) from None
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
