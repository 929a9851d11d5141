"""Waiting for a parked acquire: a coroutine by a future of its loop, a thread by an event.

Both leave the queue when they are interrupted, so that no lease is granted to somebody who went away.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trimtab._core import Lease, ParkedAcquire

if TYPE_CHECKING:
    import asyncio

__all__ = ["wait_in_loop", "wait_in_thread"]


def wait_in_thread(parked: ParkedAcquire, wait_s: float) -> Lease:
    """Blocks until the lease is granted.

    Raises:
        TrimtabError: What it waited for, after ``wait_s`` seconds, or why waiting is in vain.
    """
    deadline = time.monotonic() + wait_s
    woken = threading.Event()
    try:
        while (lease := parked.poll(woken.set)) is None:
            if not woken.wait(max(0.0, deadline - time.monotonic())):
                return parked.give_up()
            woken.clear()
    except BaseException:
        parked.abandon()
        raise
    return lease


async def wait_in_loop(parked: ParkedAcquire, wait_s: float) -> Lease:
    """Waits until the lease is granted; the event loop goes on meanwhile.

    Raises:
        TrimtabError: What it waited for, after ``wait_s`` seconds, or why waiting is in vain.
    """
    import asyncio  # not before: it costs more than all of trimtab, and who waits here has it

    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    try:
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            lease = parked.poll(partial(_wake, loop, woken))
            if lease is not None:
                return lease
            await asyncio.wait((woken,), timeout=max(0.0, deadline - loop.time()))
            if not woken.done():
                return parked.give_up()
    except BaseException:
        parked.abandon()
        raise


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    # A closed loop has nobody who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, woken)


def _resolve(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
