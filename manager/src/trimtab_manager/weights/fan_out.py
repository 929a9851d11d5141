"""One step on all engines at once, each with the same deadline and a row of its own."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError
from trimtab_manager.engine.errors import Ambiguous, ControlError, Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from trimtab_manager.weights.rows import Row

GAP_S, LONGEST_GAP_S = 0.05, 1.0
"""Between two tries of a call; each gap is twice as long as the one before."""

UNREACHABLE_TRIES = 3


async def fan_out(
    step: str, rows: Sequence[Row], action: Callable[[Row, float], Awaitable[None]], deadline_s: float
) -> None:
    """Do ``action(row, at_s)`` for every row that is well; whoever fails or is late takes part no more.

    ``at_s`` is the deadline on the event loop's clock, for calls that have time-outs of their own. Never raises for an
    engine. Cancelled, it cancels what runs.
    """
    at_s = asyncio.get_running_loop().time() + deadline_s
    tasks = {asyncio.ensure_future(_one(step, row, action, at_s)): row for row in rows if row.well}
    if not tasks:
        return
    try:
        # The calls' own deadlines come first and tell more; this one is for what has none.
        _, late = await asyncio.wait(tasks, timeout=deadline_s + GAP_S)
    except BaseException:
        await _end(tasks)
        raise
    for task in late:
        tasks[task].fail(step, "timeout", f"engine {tasks[task].id}: {step} was not over after {deadline_s:g} s")
    await _end(late)
    for task in tasks.keys() - late:
        task.result()  # a mistake of ours, not an engine's failure


async def _one(step: str, row: Row, action: Callable[[Row, float], Awaitable[None]], at_s: float) -> None:
    began = time.perf_counter()
    try:
        await action(row, at_s)
    except Ambiguous as error:
        row.fail(step, "timeout", str(error))
    except TrimtabError as error:
        row.fail(step, "error", str(error))
    finally:
        row.seconds[step] = row.seconds.get(step, 0.0) + time.perf_counter() - began


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def left_s(at_s: float) -> float:
    """Seconds until a deadline, at least a moment: a call needs a time-out above 0."""
    return max(0.001, at_s - asyncio.get_running_loop().time())


async def repeat(call: Callable[[float], Awaitable[None]], at_s: float, *, refusals: bool = False) -> None:
    """A call that is harmless twice, until it succeeds or its deadline has come; the gaps grow.

    Args:
        call: Takes its time-out in seconds. A try gets a third of the time that is left, so that a lost answer leaves
            room for another one.
        at_s: The deadline, on the event loop's clock.
        refusals: Whether any refusal may be over soon, not only those that say so.

    Raises:
        ControlError: The last one. An engine that nobody listens for is given up after a few tries, since all the
            others wait for it.
    """
    gap_s, unreachable = GAP_S, 0
    while True:
        try:
            return await call(left_s(at_s) / 3)
        except ControlError as error:
            unreachable += isinstance(error, Unreachable)
            final = isinstance(error, Refused) and not (refusals or error.retryable)
            if final or unreachable == UNREACHABLE_TRIES or left_s(at_s) <= gap_s:
                raise
        await asyncio.sleep(gap_s)
        gap_s = min(LONGEST_GAP_S, gap_s * 2)
