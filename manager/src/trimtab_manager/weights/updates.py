"""The updates of one model: one at a time, each with an id, a progress and a result."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import InvalidRequest, NoEligibleBackend, UnknownUpdate, UpdateInProgress, VersionRegression
from trimtab.fleet import EngineResult, OperationResult
from trimtab_manager.weights.deadlines import UpdateDeadlines
from trimtab_manager.weights.errors import UpdateCancelled, UpdateFailed
from trimtab_manager.weights.plan import FlushPolicy, Plan
from trimtab_manager.weights.rows import Row
from trimtab_manager.weights.source import kind_of
from trimtab_manager.weights.transaction import Transaction, unharmed
from trimtab_manager.weights.transfer import transfer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.drain import Running
    from trimtab_manager.weights.scope import UpdateScope
    from trimtab_manager.weights.source import Source
    from trimtab_manager.weights.transfer import Transfer

LOG = logging.getLogger("trimtab.manager.weights")


@dataclass(frozen=True)
class Progress:
    """The update that runs now.

    Attributes:
        id: Its id.
        version: The version that it brings.
        kind: ``disk``, ``tensor``, ``distributed`` or ``none``.
        step: What it does now.
        age_s: Seconds since it was asked for.
    """

    id: str
    version: int
    kind: str
    step: str
    age_s: float


class WeightUpdates:
    """Updates of one model.

    Args:
        scope: The model.
        deadlines: Seconds per step, for updates that bring none of their own.
    """

    def __init__(self, scope: UpdateScope, deadlines: UpdateDeadlines | None = None) -> None:
        self._scope = scope
        self._deadlines = deadlines or UpdateDeadlines()
        self._running: _Running | None = None

    @property
    def progress(self) -> Progress | None:
        """How the update that runs now stands."""
        running = self._running
        return None if running is None else running.progress()

    async def update(
        self,
        source: Source,
        version: int,
        *,
        update_id: str | None = None,
        running: Running | None = None,
        flush: FlushPolicy = "flush",
        checksums: bool = False,
        epoch: int | None = None,
        deadlines: UpdateDeadlines | None = None,
    ) -> OperationResult:
        """Bring new weights to every engine and publish their version.

        Args:
            source: Where they come from.
            version: Their number, not below the published one. The published one again repairs engines whose update
                failed; the weights must be the same then.
            update_id: Names this update, for ``cancel``; a new one by default.
            running: Whether requests that run are aborted (``abort``; their clients see what was generated) or waited
                for (``wait``). By default a label waits and everything else aborts.
            flush: ``flush`` empties the KV caches and proves it with a probe prompt; ``keep`` keeps them on purpose.
            checksums: Also compare the checksums of the engines with each other.
            epoch: Begins a new count of versions, when it is above the current one.
            deadlines: Seconds per step.

        Returns:
            One row per engine. The version is published; ``ok`` is false when it is so for some engines only, and the
            others are tainted.

        Raises:
            InvalidRequest: The model is static, or an argument or tensor does not fit. Nothing happened.
            UpdateInProgress: Another update runs; the message has its id and age. Nothing happened.
            VersionRegression, PoolFailed, PoolClosed: As they say. Nothing happened.
            UpdateFailed: No engine confirmed the version, so it is not published.
            UpdateCancelled: The same, by ``cancel``.
        """
        scope = self._scope
        if scope.static:
            raise InvalidRequest(
                f'{scope.role}/{scope.model} is static (weight_source = "static"): its weights are never updated'
            )
        by_default: Running = "wait" if kind_of(source) == "none" else "abort"
        plan = Plan(
            id=update_id or f"update-{version}-{uuid.uuid4().hex[:8]}",
            source=source,
            version=version,
            running=running or by_default,
            flush=flush,
            checksums=checksums,
            epoch=epoch,
            deadlines=deadlines or self._deadlines,
        )
        if (other := self.progress) is not None:
            raise UpdateInProgress(
                f"{scope.role}/{scope.model}: update {other.id} to version {other.version} runs since"
                f" {other.age_s:.1f} s, in step {other.step}; cancel it by its id, or wait"
            )
        self._check_version(plan)
        self._running = mine = _Running(plan, asyncio.ensure_future(self._run(plan)))
        try:
            result = await _join(mine)
        finally:
            self._running = None
        if result is None:
            nothing = OperationResult("update_weights", scope.role, scope.model, (), 0.0, scope.pool.weight_version)
            raise UpdateCancelled(f"update {plan.id} was cancelled before it began; nothing happened", nothing)
        return result

    def cancel(self, update_id: str) -> None:
        """Break the update off; ``update`` then ends in its own time, with the engines in order.

        Raises:
            UnknownUpdate: No update of that id runs.
        """
        running = self._running
        if running is None or running.plan.id != update_id:
            raise UnknownUpdate(f"{self._scope.role}/{self._scope.model}: no update {update_id} runs")
        running.cancelled = True
        running.task.cancel()

    async def _run(self, plan: Plan) -> OperationResult:
        scope = self._scope
        began = time.perf_counter()
        transfer = transfer_of(plan.source)
        try:
            await transfer.prepare(scope.members())
            async with AsyncExitStack() as stack:
                await self._take(stack, plan)
                self._check_version(plan)  # whoever had the engines meanwhile may have published
                rows, skipped = self._rows(transfer)
                transaction = Transaction(scope, plan, transfer, rows)
                if self._running is not None:
                    self._running.transaction = transaction
                disturbance = await transaction.run()
                if transaction.published is not None:
                    scope.published(plan.version, plan.source)
        finally:
            await transfer.close()
        result = self._result(plan, transaction, rows, skipped, time.perf_counter() - began)
        self._log(plan, result, transaction.published)
        if transaction.published is not None:
            return result
        raise self._failure(plan, result, disturbance) from disturbance

    async def _take(self, stack: AsyncExitStack, plan: Plan) -> None:
        """Have the engines of the model to itself for as long as ``stack`` lasts."""
        exclusive = self._scope.exclusive(f"update {plan.id} to {plan.version}")
        try:
            await asyncio.wait_for(stack.enter_async_context(exclusive), plan.deadlines.exclusive_s)
        except asyncio.TimeoutError:
            raise UpdateInProgress(
                f"{self._scope.role}/{self._scope.model}: something else has changed its engines for"
                f" {plan.deadlines.exclusive_s:g} s; update {plan.id} did not begin"
            ) from None

    def _check_version(self, plan: Plan) -> None:
        """Refuse what the router would refuse to publish: by then the engines had the weights already."""
        pool = self._scope.pool
        published, epoch = pool.weight_version, pool.statistics().epoch
        where = f"{self._scope.role}/{self._scope.model}"
        if plan.epoch is not None and epoch is not None and plan.epoch < epoch:
            raise VersionRegression(f"{where}: epoch {plan.epoch} is below the current {epoch}; epochs only grow")
        if plan.epoch in (None, epoch) and published is not None and plan.version < published:
            raise VersionRegression(
                f"{where}: version {plan.version} is below the published {published}; versions grow within an epoch"
                f" (it is {epoch}): a new count needs a higher one"
            )

    def _rows(self, transfer: Transfer) -> tuple[list[Row], list[EngineResult]]:
        """The engines that take part, and those that it could not make whole."""
        pool = self._scope.pool
        members = self._scope.members()
        if not members:
            raise NoEligibleBackend(f"{self._scope.role}/{self._scope.model} has no engine that could be updated")
        if transfer.complete:
            return [Row(member) for member in members], []
        standing = {backend.id: backend for backend in pool.statistics().backends}
        rows, skipped = [], []
        for member in members:
            backend = standing[member.id]
            if backend.tainted or not (backend.weights_fit or pool.weight_version is None):
                state = "tainted" if backend.tainted else "pending_version"
                why = f"engine {member.id} is {state}: it needs an update that brings all of the weights"
                skipped.append(EngineResult(member.id, "skipped", 0.0, why, state))
            else:
                rows.append(Row(member))
        if not rows:
            raise NoEligibleBackend("; ".join(str(row.error) for row in skipped))
        return rows, skipped

    def _result(
        self, plan: Plan, transaction: Transaction, rows: Sequence[Row], skipped: Sequence[EngineResult], seconds: float
    ) -> OperationResult:
        scope = self._scope
        standing = {backend.id: backend for backend in scope.pool.statistics().backends}

        def state(row: Row) -> str:
            backend = standing.get(row.id)
            if backend is None or backend.generation != row.member.backend.generation:
                return "gone"
            if backend.tainted:
                return "tainted"
            return "ready" if backend.weights_fit else "pending_version"

        engines = [*(row.result(state(row)) for row in rows), *skipped]
        detail = {
            "update": plan.id,
            "kind": kind_of(plan.source),
            "version": plan.version,
            "steps_s": {step: round(taken, 6) for step, taken in transaction.seconds.items()},
        }
        return OperationResult(
            "update_weights", scope.role, scope.model, engines, seconds, scope.pool.weight_version, detail
        )

    def _failure(self, plan: Plan, result: OperationResult, disturbance: BaseException | None) -> UpdateFailed:
        where = f"{self._scope.role}/{self._scope.model}"
        serving = f"version {result.weight_version} stays published"
        running = self._running
        if running is not None and running.cancelled:
            return UpdateCancelled(f"{where}: update {plan.id} was cancelled; {serving}", result)
        first = next((row.error for row in result.engines if row.error), None)
        cause = f"{type(disturbance).__name__}: {disturbance}" if disturbance is not None else first
        return UpdateFailed(f"{where}: update {plan.id} to version {plan.version} failed, {serving}: {cause}", result)

    def _log(self, plan: Plan, result: OperationResult, published: int | None) -> None:
        bad = [row for row in result.engines if row.status != "ok"]
        LOG.log(
            logging.WARNING if bad or published is None else logging.INFO,
            "update %s of %s/%s to version %s: %s on %s of %s engines after %.3f s%s",
            plan.id,
            result.role,
            result.model,
            plan.version,
            "published" if published is not None else "not published",
            len(result.engines) - len(bad),
            len(result.engines),
            result.seconds,
            "".join(f"; {row.error}" for row in bad),
        )


@dataclass(eq=False)
class _Running:
    plan: Plan
    task: asyncio.Task[OperationResult]
    transaction: Transaction | None = None
    cancelled: bool = False

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def progress(self) -> Progress:
        plan, transaction = self.plan, self.transaction
        step = "prepare" if transaction is None else transaction.step
        return Progress(plan.id, plan.version, kind_of(plan.source), step, time.monotonic() - self._began)


async def _join(running: _Running) -> OperationResult | None:
    """The result of an update, None when it was cancelled before it began.

    A caller that is cancelled takes the update with it, and waits until it is in order.
    """
    task = running.task
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await unharmed(_ended(task))
        raise
    return None if task.cancelled() else task.result()


async def _ended(task: asyncio.Task[OperationResult]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # whoever would have asked for it is gone
