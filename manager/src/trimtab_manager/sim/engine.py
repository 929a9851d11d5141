"""The simulated engine: scheduler, gates, weights and faults behind one object.

The HTTP handlers translate between SGLang's payloads and this class; a test can use it without HTTP. Its parts follow
the real server's: what SGLang does in its HTTP process is here and in ``admission``, what it does in the scheduler
process is in ``scheduler``.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trimtab_manager.sim.admission import Admission
from trimtab_manager.sim.faults import Fault, FaultBoard
from trimtab_manager.sim.loads import REMEMBERED, LoadSnapshot
from trimtab_manager.sim.sampling import RequestError
from trimtab_manager.sim.scheduler import Scheduler
from trimtab_manager.sim.stats import EngineStatistics
from trimtab_manager.sim.weights import Weights, loadable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from trimtab_manager.sim.config import SimConfig
    from trimtab_manager.sim.execution import Execution

MEMORY_TAGS = ("kv_cache", "weights", "cuda_graph")

NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)


class SimEngine:
    """One simulated SGLang engine. ``start`` needs a running event loop; ``stop`` ends its only task."""

    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.weights = Weights(config.model_path, config.model_name)
        self.faults = FaultBoard()
        self.scheduler = Scheduler(config, self.weights, self.crash)
        self.admission = Admission()
        self.startup_time = _startup_time()
        self.healthy = True
        self.disconnects = 0
        self._on_crash: list[Callable[[str], None]] = []
        self._open: dict[str, Execution] = {}
        self._received = 0
        self._pause_mode: str | None = None
        self._crashed: str | None = None
        self._abort_calls: deque[str] = deque(maxlen=REMEMBERED)
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        for fault in config.faults:
            self.arm(fault)

    async def start(self) -> None:
        """Begin to schedule."""
        self._task = asyncio.create_task(self.scheduler.run(), name="sim-engine-scheduler")

    async def stop(self) -> None:
        """End the scheduler's task and wait for it. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # Requests.

    @asynccontextmanager
    async def execute(self, executions: Sequence[Execution]) -> AsyncIterator[None]:
        """Run executions: register their ids, pass the gates, queue them. Whoever leaves early aborts what is left.

        Raises ``RequestError`` for an id that is in flight, or a prompt or output that is too long.
        """
        for execution in executions:
            if execution.rid in self._open:
                raise RequestError(f"Duplicate request ID detected: {execution.rid}")
        for execution in executions:
            self._register(execution)
        try:
            async with self.admission.request():
                for execution in executions:
                    self._check_length(execution)
                for execution in executions:
                    self._submit(execution)
                yield
        finally:
            for execution in executions:
                if execution.finish is None and execution.times.dispatched:
                    self.scheduler.abort(execution.rid)
                del self._open[execution.rid]

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """``/abort_request``: nothing happens unless ``rid`` is in flight; then all ids that begin with it abort.

        An id is aborted once only: one that was aborted at the pause gate, where it has no effect, cannot be aborted
        again. Both are SGLang's ways.
        """
        self._abort_calls.append("*" if everything else rid)
        if everything:
            self.scheduler.abort("")
            return
        execution = self._open.get(rid)
        if execution is not None and not execution.abort_sent:
            execution.abort_sent = True
            self.scheduler.abort(rid)

    # Control.

    @property
    def ready(self) -> bool:
        """What ``/ready`` reports: accepting, not paused, and not found unhealthy by the last ``/health``."""
        return self.healthy and not self.admission.paused

    @property
    def responsive(self) -> bool:
        """Whether a request sent now would get a token."""
        return not (self.admission.paused or self.scheduler.paused or self.scheduler.wedged)

    async def pause(self, mode: str) -> None:
        """Close the gate. ``in_place`` freezes the batch, ``retract`` empties it, ``abort`` ends its requests."""
        await self.admission.close(lambda: self._pause_scheduler(mode))

    async def resume_generation(self) -> None:
        """Open the gate and go on; harmless on an engine that is not paused."""

        async def unpause() -> None:
            async with self.scheduler.between_steps():
                self.scheduler.paused = False
                self._pause_mode = None

        await self.admission.open(unpause)

    async def flush(self, timeout_s: float = 0.0) -> str | None:
        """Empty the prefix cache, waiting up to ``timeout_s`` for an idle engine. Returns what went wrong, if so."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            async with self.scheduler.between_steps():
                # Waiting for idleness does not count a paused queue as idle, an immediate flush does (seen).
                waits = timeout_s > 0 and self.scheduler.waiting > 0
                if not waits and self.scheduler.flush():
                    return None
            if timeout_s <= 0:
                return "Flush cache failed.\n"
            if loop.time() >= deadline:
                return "Timed out waiting for idle state."
            await asyncio.sleep(min(0.02, max(deadline - loop.time(), 0)))

    async def update_from_disk(
        self, path: str, version: str | None = None, *, flush: bool = True, abort_all: bool = False
    ) -> tuple[bool, str]:
        """Replace the weights; whether it succeeded, and SGLang's message."""
        if abort_all:
            self.abort("", everything=True)
        async with self.admission.update():
            async with self.scheduler.between_steps():
                if not loadable(path):
                    return False, (
                        "Failed to get weights iterator: Repo id must use alphanumeric chars, '-', '_' or '.'. "
                        f"The name cannot start or end with '-' or '.' and the maximum length is 96: '{path}'.."
                    )
                await asyncio.sleep(self.config.weight_load_s * self.config.time_scale)
                self.weights.load(path, version)
                if flush and not self.scheduler.flush():
                    return False, NOT_FLUSHED
            self.weights.announce(path, version)
        message = "Succeeded to update model weights."
        return True, message if version is None else f"{message} Weight version updated to {version}."

    async def set_version(self, version: str, *, abort_all: bool = True) -> None:
        """Change the label only; by default this aborts all requests, as in SGLang."""
        if abort_all:
            self.abort("", everything=True)
        async with self.scheduler.between_steps():
            self.weights.relabel(version)

    async def release_memory(self, tags: Sequence[str] | None) -> None:
        """Mark memory as released. Kills an engine that is not idle."""
        async with self.scheduler.between_steps():
            self.scheduler.release(list(tags or MEMORY_TAGS))

    async def resume_memory(self, tags: Sequence[str] | None) -> None:
        """Mark memory as resumed. Kills the engine when a tag was not released."""
        async with self.scheduler.between_steps():
            self.scheduler.resume(list(tags or MEMORY_TAGS))

    # Life and observation.

    def arm(self, fault: Fault) -> None:
        """Have a fault from now on."""
        self.faults.arm(fault)
        if fault.kind == "wedge":
            self.scheduler.wedge(wedged=True)
        elif fault.kind == "no_flush":
            self.scheduler.keeps_cache = True

    def disarm(self) -> None:
        """Have no fault; held requests and a wedged scheduler go on."""
        self.faults.clear()
        self.scheduler.wedge(wedged=False)
        self.scheduler.keeps_cache = False

    def on_crash(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(reason)`` when the engine dies."""
        self._on_crash.append(callback)

    @property
    def crashed(self) -> str | None:
        """Why the engine died, or ``None``."""
        return self._crashed

    def crash(self, reason: str) -> None:
        """Die: nothing is answered any more. The server drops every connection and refuses new ones."""
        if self._crashed is not None:
            return
        self._crashed = reason
        for callback in self._on_crash:
            callback(reason)

    def loads(self) -> LoadSnapshot:
        """What ``/v1/loads`` and the metrics show; stale while paused."""
        return self.scheduler.loads()

    def statistics(self) -> EngineStatistics:
        """A frozen snapshot; always current."""
        counters, kv = self.scheduler.counters, self.scheduler.kv_statistics()
        return EngineStatistics(
            running=self.scheduler.running,
            waiting=self.scheduler.waiting,
            at_gate=self.admission.at_gate,
            requests_received=self._received,
            requests_finished=counters.requests_finished,
            requests_aborted=counters.requests_aborted,
            aborted_rids=tuple(counters.aborted),
            abort_calls=tuple(self._abort_calls),
            disconnects=self.disconnects,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            generated_tokens=counters.generated_tokens,
            kv_used=kv.used,
            kv_evictable=kv.evictable,
            weight_version=self.weights.version,
            paused=self._pause_mode,
            sessions=dict(self._sessions),
            crashed=self._crashed,
        )

    async def _pause_scheduler(self, mode: str) -> None:
        if mode == "abort":
            self._pause_mode = self._pause_mode or mode
            while True:
                self.scheduler.abort("")
                if not self.admission.occupied:
                    return
                await asyncio.sleep(self.config.pause_poll_s * self.config.time_scale)
        async with self.scheduler.between_steps():
            self.scheduler.paused = True
            self._pause_mode = mode
            if mode == "retract":
                self.scheduler.retract_all()

    def _register(self, execution: Execution) -> None:
        self._open[execution.rid] = execution
        self._received += 1
        if execution.session is not None:
            self._sessions[execution.session] = self._sessions.pop(execution.session, 0) + 1
            if len(self._sessions) > REMEMBERED:
                self._sessions.popitem(last=False)

    def _submit(self, execution: Execution) -> None:
        tokens, limit = len(execution.prompt), self.config.max_prompt_tokens
        execution.mark_dispatched()
        if tokens > limit:
            message = (
                f"Input length ({tokens} tokens) exceeds the maximum allowed length ({limit} tokens). Use a shorter "
                "input or enable --allow-auto-truncate."
            )
            if not execution.stream:
                raise RequestError(message)
            execution.refuse(message)
            return
        execution.prepare(
            seed=self.config.seed, ends_every=self.config.ends_every, max_tokens=self.config.max_request_tokens
        )
        self.scheduler.submit(execution)

    def _check_length(self, execution: Execution) -> None:
        tokens, limit = len(execution.prompt), self.config.context_length
        wanted = execution.params.max_new_tokens if execution.params.limit_given else None
        if tokens >= limit:
            raise RequestError(
                f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        if wanted is not None and tokens + wanted > limit:
            raise RequestError(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a "
                f"total of {tokens + wanted} tokens: {tokens} tokens from the input messages and {wanted} tokens for "
                "the completion. Please reduce the number of tokens in the input messages or the completion to fit "
                "within the limit."
            )


def _startup_time() -> dict[str, float]:
    """Durations of the start in seconds, of which no two starts have the same: who compares them tells two apart."""
    return {name: secrets.randbelow(10**15) / 10**15 for name in ("load_weight", "scheduler_e2e", "tokenizer_e2e")}
