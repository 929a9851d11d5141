"""Continuous batching: a queue, a running batch, and one task that does a step at a time.

A step is a prefill of whatever can be admitted (first come, first served, up to the batch size and the KV cache), or
else one decode of the whole batch. The task holds the step lock from the start of a step to its end; control calls take
the same lock, so they happen between steps, as messages do in SGLang's event loop. Only marks for an abort are set at
once: queued requests end there and then, running ones at the end of their step.

An engine with nothing to do waits on an event and uses no CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trimtab_manager.sim.batching import Batch
from trimtab_manager.sim.execution import ABORTED, ABORTED_IN_QUEUE, Execution
from trimtab_manager.sim.loads import Counters, LoadSnapshot
from trimtab_manager.sim.timing import Pacer, TimingModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trimtab_manager.sim.config import SimConfig
    from trimtab_manager.sim.kv import KvStatistics
    from trimtab_manager.sim.weights import Weights


class Scheduler:
    """The part of the engine that real SGLang runs in a process of its own."""

    def __init__(self, config: SimConfig, weights: Weights, on_crash: Callable[[str], None]) -> None:
        self._config = config
        self._weights = weights
        self._on_crash = on_crash
        self._timing = TimingModel.of(config)
        self._pacer = Pacer(config.time_scale)
        self._batch = Batch(config.max_total_tokens, config.max_running_requests)
        self._waiting: deque[Execution] = deque()
        self._step = asyncio.Lock()
        self._wake = asyncio.Event()
        self._unwedged = asyncio.Event()
        self._unwedged.set()
        self._released: set[str] = set()
        self._snapshot: LoadSnapshot | None = None
        self.paused = False
        self.keeps_cache = False
        self.forward_sleep_s = 0.0
        self.counters = Counters()

    # What it does.

    async def run(self) -> None:
        """Step for ever; the engine runs this as a task."""
        while True:
            await self._wake.wait()
            async with self._step:
                await self._unwedged.wait()
                if self.paused or not (self._waiting or self._batch.running):
                    self._wake.clear()
                    self._pacer.restart()
                    continue
                if self._config.memory_saver and self._released:
                    self._on_crash("illegal memory access: a step without its memory")
                    await asyncio.Event().wait()  # a dead scheduler never does another step
                started = time.perf_counter()
                before = self.counters.generated_tokens
                if not await self._prefill():
                    await self._decode()
                self.counters.note_step(self.counters.generated_tokens - before, time.perf_counter() - started)
                self._snapshot = self._take_snapshot()

    def submit(self, execution: Execution) -> None:
        """Queue a prepared execution. A token id outside the vocabulary, or no token, kills the engine at its turn."""
        self._waiting.append(execution)
        self._wake.set()

    def abort(self, prefix: str) -> None:
        """Abort everything whose request id starts with ``prefix``; the empty prefix means all."""
        matching = [execution for execution in self._waiting if execution.rid.startswith(prefix)]
        for execution in matching:
            self._waiting.remove(execution)
            execution.end(ABORTED_IN_QUEUE)
            self.counters.note_end(execution.rid, aborted=True)
        for execution in self._batch.running:
            if execution.rid.startswith(prefix):
                execution.aborting = True

    # What control calls do, between steps.

    @asynccontextmanager
    async def between_steps(self) -> AsyncIterator[None]:
        """Hold the scheduler still. Hangs while it is wedged."""
        async with self._step:
            await self._unwedged.wait()
            yield
            self._wake.set()

    def retract_all(self) -> None:
        """Running requests go back to the queue and lose their KV; their output so far stays."""
        self._waiting.extendleft(reversed(self._batch.retract_all()))

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch.running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits unless a pause makes it wait: the condition for a flush."""
        return not self._batch.running and (self.paused or not self._waiting)

    def flush(self) -> bool:
        """Empty the prefix cache; refused unless idle."""
        if self.idle:
            if not self.keeps_cache:
                self._batch.kv.flush()
            return True
        return False

    def release(self, tags: list[str]) -> None:
        """Mark memory as released. Kills the engine unless it is idle."""
        if not self.idle:
            self._on_crash("release_memory_occupation should be called only when server is idle.")
            return
        if self._config.memory_saver:
            if again := self._released.intersection(tags):
                self._on_crash(f"memory saver: {min(again)} is paused already")
                return
            if "weights" in tags:
                self._weights.lose()
        self._released.update(tags)
        if "kv_cache" in tags:
            self._batch.kv.flush()

    def resume(self, tags: list[str]) -> None:
        """Mark memory as resumed. Kills the engine when a tag is not released."""
        for tag in tags:
            if tag not in self._released:
                self._on_crash(f"KeyError: {tag!r}")
                return
            self._released.remove(tag)

    def wedge(self, *, wedged: bool) -> None:
        """Stop (or continue) as a hung scheduler does: every other task goes on, nothing here does."""
        if wedged:
            self._unwedged.clear()
        else:
            self._unwedged.set()

    @property
    def wedged(self) -> bool:
        """Whether a fault hung the scheduler."""
        return not self._unwedged.is_set()

    def loads(self) -> LoadSnapshot:
        """What the scheduler last published: current when idle, from the last step when busy, stale while paused."""
        if self._snapshot is None or (self.idle and not self.paused and not self.wedged):
            self._snapshot = self._take_snapshot()
        return self._snapshot

    def kv_statistics(self) -> KvStatistics:
        """The KV cache now."""
        return self._batch.kv.statistics()

    # Steps.

    async def _prefill(self) -> bool:
        admitted = self._batch.admit(self._waiting)
        if not admitted:
            return False
        for execution in admitted:
            if problem := self._fatal(execution):
                self._on_crash(problem)
                await asyncio.Event().wait()  # a dead scheduler never does another step; the engine cancels the task
            execution.times.forwarded = time.time()
        uncached = sum(execution.private_tokens for execution in admitted)
        await self._pacer.work(self._timing.prefill_s(uncached), self.forward_sleep_s)
        for execution in admitted:
            execution.times.prefilled = time.time()
            self._batch.share(execution)
            if not execution.retractions:
                self.counters.note_prompt(len(execution.prompt), execution.cached_tokens)
        self._advance(admitted)
        return True

    async def _decode(self) -> None:
        self._waiting.extendleft(self._batch.make_room())
        running = self._batch.running
        contexts = sum(len(execution.prompt) + len(execution.tokens) for execution in running)
        await self._pacer.work(self._timing.decode_s(len(running), contexts), self.forward_sleep_s)
        self._advance(list(running))

    def _advance(self, executions: list[Execution]) -> None:
        for execution in executions:
            # An aborted one still gets the token of this step, under whatever label the weights have now (seen).
            before = len(execution.tokens)
            execution.append(self._weights.loaded, self._weights.token_version)
            self.counters.generated_tokens += len(execution.tokens) - before
            if execution.aborting:
                execution.end(ABORTED)
        for execution in [done for done in self._batch.running if done.finish is not None]:
            self._batch.remove(execution)
            self.counters.note_end(execution.rid, aborted=execution.finish is ABORTED)

    def _fatal(self, execution: Execution) -> str | None:
        if not execution.prompt:
            return "RuntimeError: cannot reshape tensor of 0 elements"
        if ord(max(execution.prompt)) >= self._config.vocab_size:
            return "IndexError: index out of range in self"
        return None

    def _take_snapshot(self) -> LoadSnapshot:
        return LoadSnapshot(
            timestamp=time.time(),
            running=self.running,
            waiting=self.waiting,
            waiting_tokens=sum(len(execution.prompt) for execution in self._waiting),
            sequence_tokens=sum(len(item.prompt) + len(item.tokens) for item in self._batch.running),
            kv=self._batch.kv.statistics(),
            max_running=self._config.max_running_requests,
            throughput=self.counters.throughput if self._batch.running else 0.0,
            hit_rate=self.counters.hit_rate,
        )
