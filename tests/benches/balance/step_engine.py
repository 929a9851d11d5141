"""The simulated engine's own batch, cache and timing, a step at a time: what the bench's engine jumps over."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from trimtab_manager.sim.batching import Batch
from trimtab_manager.sim.timing import TimingModel

if TYPE_CHECKING:
    from benches.balance.fleet import EngineModel
    from benches.balance.workload import SessionPlan
    from trimtab_manager.sim.execution import Execution
    from trimtab_manager.sim.kv import Node


@dataclass(eq=False)
class StepExecution:
    """What ``Batch`` needs of an execution."""

    prompt: str
    output: str
    tokens: list[int] = field(default_factory=list)
    node: Node | None = None
    private_tokens: int = 0
    retractions: int = 0
    cached_tokens: int = 0
    ended_s: float = -1.0

    @property
    def sequence(self) -> str:
        """Prompt and output so far."""
        return self.prompt + self.output[: len(self.tokens)]


def context(plan: SessionPlan, length: int) -> str:
    """Tokens of a session's context: shared, the task's, then its own, all distinct where they should be."""
    own = chr(1_000 + plan.task * 64 + plan.sample)
    text = "s" * plan.shared_tokens + chr(200 + plan.task) * plan.task_tokens
    return text + own * max(length - len(text), 0)


def step_run(model: EngineModel, arrivals: list[tuple[float, StepExecution]]) -> None:
    """Run executions that arrive at their times; sets ``ended_s`` of each."""
    timing = TimingModel.of(model.config(time_scale=0, context_tokens=65_536))
    batch = Batch(model.kv_tokens, model.max_running)
    waiting: deque[Any] = deque()
    pending = deque(sorted(arrivals, key=lambda arrival: arrival[0]))
    now_s = 0.0
    while pending or waiting or batch.running:
        if not waiting and not batch.running:
            now_s = max(now_s, pending[0][0])
        while pending and pending[0][0] <= now_s:
            waiting.append(pending.popleft()[1])
        now_s = _step(timing, batch, waiting, now_s)


def _step(timing: TimingModel, batch: Batch, waiting: deque[Any], now_s: float) -> float:
    admitted = cast("list[Any]", batch.admit(waiting))
    if admitted:
        now_s += timing.prefill_s(sum(execution.private_tokens for execution in admitted))
        for execution in admitted:
            batch.share(execution)
        stepped = admitted
    else:
        waiting.extendleft(batch.make_room())
        stepped = list[Any](batch.running)
        contexts = sum(len(execution.prompt) + len(execution.tokens) for execution in stepped)
        now_s += timing.decode_s(len(stepped), contexts)
    for execution in stepped:
        execution.tokens.append(0)
        if len(execution.tokens) == len(execution.output):
            batch.remove(cast("Execution", execution))
            execution.ended_s = now_s
    return now_s
