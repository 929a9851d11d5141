"""Until nothing is outstanding in the pool.

Requests that run are either waited for, or aborted: the engines are asked to abort everything again and again, so that
one that was leased before the update and reaches its engine late is caught, too. (Pausing the engines first would leave
it at their gate, where no abort reaches it, and the drain would wait for it and it for the drain.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from trimtab.errors import DrainTimeout, TrimtabError
from trimtab_manager.weights.fan_out import left_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab import Pool
    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import UpdateScope

Running = Literal["abort", "wait"]
"""What becomes of requests that run when an update begins."""

POLL_S, LONGEST_POLL_S = 0.001, 0.05
ABORT_GAP_S, LONGEST_ABORT_GAP_S = 0.05, 1.0
CALL_S, CALLS = 5.0, 8
"""Seconds for one call to an engine, and how many of them the deadline must leave room for."""

LOST_AFTER = 3
"""Calls in a row that an engine leaves unanswered before it counts as lost."""


async def drain(
    scope: UpdateScope, update_id: str, rows: Sequence[Row], running: Running, *, deadline_s: float
) -> None:
    """Return when nothing is outstanding.

    Args:
        scope: The model.
        update_id: The update that has begun.
        rows: Its engines. One that answers no abort fails, and is condemned, so that what hangs in it ends.
        running: ``abort`` or ``wait``.
        deadline_s: Seconds until ``DrainTimeout``.

    Raises:
        DrainTimeout: The message names the oldest blockers.
        PoolFailed, PoolClosed: The pool is over.
    """
    aborting = (
        asyncio.ensure_future(_abort(scope, rows, min(CALL_S, deadline_s / CALLS))) if running == "abort" else None
    )
    at_s = asyncio.get_running_loop().time() + deadline_s
    poll_s = POLL_S
    try:
        while not _drained(scope.pool, update_id, deadline_s, at_s):
            await asyncio.sleep(poll_s)
            poll_s = min(LONGEST_POLL_S, poll_s * 1.5)
    finally:
        if aborting is not None:
            aborting.cancel()
            await asyncio.gather(aborting, return_exceptions=True)


def _drained(pool: Pool, update_id: str, deadline_s: float, at_s: float) -> bool:
    if pool.weight_version is not None:
        return pool.drain(update_id, timeout_s=deadline_s).phase != "quiescing"
    # A pool that was told can end the update by a publication only, and this one has no version to go back to.
    status = pool.update_status(update_id)
    if status.phase == "quiescing" and left_s(at_s) <= LONGEST_POLL_S:
        raise DrainTimeout(
            f"update {update_id}: {status.outstanding} executions are outstanding after {deadline_s:g} s"
        )
    return status.phase != "quiescing"


async def _abort(scope: UpdateScope, rows: Sequence[Row], call_s: float) -> None:
    """Abort what runs on engines that hold leases, until cancelled. An engine that hangs holds up nobody."""
    gap_s = ABORT_GAP_S
    unanswered = dict.fromkeys((row.id for row in rows), 0)
    calls: dict[str, asyncio.Task[None]] = {}

    async def one(row: Row) -> None:
        try:
            await row.member.client.abort_all(timeout_s=call_s)
        except TrimtabError as error:
            unanswered[row.id] += 1
            if unanswered[row.id] == LOST_AFTER:
                row.fail("drain", "timeout", str(error))
                scope.pool.taint_backend(row.member.backend)
                await scope.condemn(row.id, f"it did not abort what runs on it: {error}")
        else:
            unanswered[row.id] = 0

    try:
        while True:
            busy = {backend.id for backend in scope.pool.statistics().backends if backend.outstanding}
            for row in rows:
                if row.well and row.id in busy and (row.id not in calls or calls[row.id].done()):
                    calls[row.id] = asyncio.ensure_future(one(row))
            await asyncio.sleep(gap_s)
            gap_s = min(LONGEST_ABORT_GAP_S, gap_s * 2)
    finally:
        for call in calls.values():
            call.cancel()
        await asyncio.gather(*calls.values(), return_exceptions=True)
