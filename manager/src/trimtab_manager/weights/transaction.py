r"""One update: from the fence to the publication, and back to order on every way out.

The order, and who may fail where::

    begin_update   nothing is granted from here on                                the pool
    drain          running requests end: aborted, or waited for                   DrainTimeout ends the update
    idle           engines say so themselves, twice                            \
    prime          a probe prompt enters their KV caches                        |
    pause          their own gates close                                        |  an engine that fails or is late in
    transfer       the new weights and their label                              |  one of these takes part no more
    flush          KV caches of the old weights are emptied                     |
    read back      each names the new version (and, when asked, checksums)      |
    resume         gates open; the pool's fence still holds                     |
    verify         the probe prompt is no more cached                          /
    conclude       who did not confirm is tainted; then end_server_pause, publish

An update that is *disturbed* (cancelled, an exception, a drain that is late) skips to ``flush``: who got the weights by
then goes on to the end, and who did not is dealt with like one that failed. There is one end for all ways out:

* Some engines confirmed the new version: it is published, and every other engine is tainted. All routable engines then
  run what is published, which is what a trainer needs; how many they are is in the rows. Going back is no alternative:
  the old weights are gone on those who confirmed.
* None did: the published version stays. An engine whose weights were surely not touched, and which is surely not
  paused, serves on with them; the others are tainted.

A tainted engine gets no request until an update that brings all of its weights succeeds on it. One that cannot be
resumed is condemned as well: whoever can replace it does.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from trimtab.errors import InvalidTransition, PoolClosed, PoolFailed, TrimtabError
from trimtab_manager.weights.drain import drain
from trimtab_manager.weights.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from trimtab_manager.weights.plan import Plan
    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import UpdateScope
    from trimtab_manager.weights.transfer import Transfer

T = TypeVar("T")


class Transaction:
    """One update of one pool.

    Args:
        scope: The model.
        plan: What to do.
        transfer: How the weights get there.
        rows: The engines that take part.
    """

    def __init__(self, scope: UpdateScope, plan: Plan, transfer: Transfer, rows: Sequence[Row]) -> None:
        self._scope = scope
        self._plan = plan
        self._transfer = transfer
        self._rows = rows
        self._steps = Steps(plan.id, plan.version, rows, plan.deadlines)
        before = scope.pool.weight_version
        tells_apart = plan.epoch is None and (before is None or plan.version > before)
        tainted = {backend.id for backend in scope.pool.statistics().backends if backend.tainted}
        self._label_is_new = {row.id: tells_apart and row.id not in tainted for row in rows}
        self.step = "begin"
        self.seconds: dict[str, float] = {}
        self.published: int | None = None

    async def run(self) -> BaseException | None:
        """Carry it out; what disturbed it, if anything did. Engines' failures are in their rows.

        Raises:
            UpdateInProgress, VersionRegression, PoolFailed, PoolClosed: The pool refused it; nothing happened.
        """
        pool, plan = self._scope.pool, self._plan
        pool.begin_update(plan.id)
        disturbance: BaseException | None = None
        try:
            await self._bring()
        except BaseException as error:  # noqa: BLE001 - it must be ended whatever happens, and the caller learns of it
            disturbance = error
        cancelled = await unharmed(self._settle(disturbance is None))
        return disturbance or cancelled

    async def _bring(self) -> None:
        plan, steps, deadlines = self._plan, self._steps, self._plan.deadlines
        draining = drain(self._scope, plan.id, self._rows, plan.running, deadline_s=deadlines.drain_s)
        await self._timed("drain", draining)
        if self._transfer.touches:
            await self._timed("idle", steps.idle())
            if plan.flush == "flush":
                await self._timed("prime", steps.prime())
            await self._timed("pause", steps.pause())
        send = self._transfer.send(self._rows, plan.version, flush=False, deadline_s=deadlines.transfer_s)
        await self._timed("transfer", send)

    async def _settle(self, is_complete: bool) -> None:
        """The one way out."""
        plan, steps = self._plan, self._steps
        try:
            await self._transfer.close()
            self._hear_the_doubtful(is_complete)
            if self._transfer.touches:
                if plan.flush == "flush":
                    await self._timed("flush", steps.flush())
                await self._timed("read_back", steps.read_back())
                if plan.checksums:
                    await self._timed("checksums", steps.compare_checksums())
                await self._timed("resume", steps.resume(self._rows))
                if plan.flush == "flush":
                    await self._timed("verify", steps.verify())
            else:
                await self._timed("read_back", steps.read_back())
            for row in self._rows:
                row.confirmed = row.well
        finally:
            await self._timed("conclude", self._conclude())

    def _hear_the_doubtful(self, is_complete: bool) -> None:
        for row in self._rows:
            if row.transfer == "done":
                continue
            if row.transfer == "unknown" and self._label_tells(row):
                row.give_benefit_of_the_doubt()
            else:
                how = "got no new weights" if is_complete else "got no new weights before the update was broken off"
                row.fail("transfer", "error", f"engine {row.id} {how}")

    def _label_tells(self, row: Row) -> bool:
        transfer = self._transfer
        return transfer.label_proves and (self._label_is_new[row.id] or not transfer.touches)

    async def _conclude(self) -> None:
        scope, plan = self._scope, self._plan
        confirmed = [row for row in self._rows if row.confirmed]
        self._tell_what_runs(confirmed)
        try:
            scope.pool.end_server_pause(plan.id)
            if confirmed:
                scope.pool.publish(plan.id, plan.version, epoch=plan.epoch)
                self.published = plan.version
                self._report(confirmed)  # a new count of versions forgot what engines said before
            else:
                self._go_back()
        except TrimtabError as error:  # most likely somebody else failed or closed the pool
            self._take_back(confirmed, error)
        for row in self._rows:
            if row.paused:
                await scope.condemn(row.id, f"it could not be resumed after update {plan.id}: {row.error}")

    def _tell_what_runs(self, confirmed: Sequence[Row]) -> None:
        self._report(confirmed)
        for row in self._rows:
            if not row.confirmed and (confirmed or not row.intact or row.paused):
                self._scope.pool.taint_backend(row.member.backend)

    def _report(self, confirmed: Sequence[Row]) -> None:
        for row in confirmed:
            self._scope.pool.report_weights(row.member.backend, self._plan.version, reloaded=self._transfer.complete)

    def _take_back(self, confirmed: Sequence[Row], error: TrimtabError) -> None:
        """The router does not publish what engines run: they are out, and it must not wait for that for ever."""
        with suppress(PoolFailed, PoolClosed):
            for row in confirmed:
                row.fail("publish", "error", str(error))
                self._scope.pool.taint_backend(row.member.backend)
            self._go_back()

    def _go_back(self) -> None:
        pool = self._scope.pool
        try:
            pool.cancel_update(self._plan.id)
        except InvalidTransition:
            # It was told that nothing is outstanding, and wants to hear which version that was for: the one before.
            if (before := pool.weight_version) is None:
                raise
            pool.publish(self._plan.id, before)

    async def _timed(self, step: str, work: Awaitable[T]) -> T:
        self.step = step
        began = time.perf_counter()
        try:
            return await work
        finally:
            self.seconds[step] = time.perf_counter() - began


async def unharmed(work: Coroutine[None, None, object]) -> asyncio.CancelledError | None:
    """Run ``work`` to its end, whoever is cancelled meanwhile; the cancellation that came, if any did."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        cancelled = await _wait(task) or cancelled
    task.result()
    return cancelled


async def _wait(task: asyncio.Task[object]) -> asyncio.CancelledError | None:
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError as error:
        return error
    return None
