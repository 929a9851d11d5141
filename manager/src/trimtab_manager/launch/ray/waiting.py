"""Calls of Ray that block, made from a coroutine, and steps that must not be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """The result of a blocking call. A caller that is cancelled waits until the call is over."""
    return await to_its_end(asyncio.to_thread(call, *arguments))


async def to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """The step's result. A cancellation comes through after the step, never in the middle of it."""
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:  # noqa: PERF203  # the wait goes on
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: it is the cancellation that the caller hears of
        raise cancelled
    return task.result()
