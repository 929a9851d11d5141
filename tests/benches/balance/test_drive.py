"""The same sessions over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benches.balance.figures import Figures
from benches.balance.fleet import TP4
from benches.balance.http.drive import Target, drive
from benches.balance.http.validate import Pair, agreement, table
from benches.balance.workload import LogNormal, WorkloadModel, generate
from trimtab_manager.sim import running_engine

MODEL = WorkloadModel(
    tasks=2,
    samples=2,
    system_tokens=50,
    task_tokens=LogNormal(50, 0.5, 100),
    turns=LogNormal(2, 0.3, 3),
    output_tokens=LogNormal(10, 0.5, 20),
    observation_tokens=LogNormal(10, 0.5, 20),
)
CONFIG = TP4.config(time_scale=0.001, context_tokens=4_096)


async def test_every_session_gets_its_tokens_and_finds_its_cache() -> None:
    """Outputs are those of the plan, counted by the engines; later turns find what the earlier ones left."""
    workload = generate(MODEL, 1)
    async with running_engine(CONFIG) as first, running_engine(CONFIG) as second:
        run = await drive(workload, Target((first.url, second.url)), 0.001)
    assert sum(run.output_tokens) == sum(plan.output_tokens for plan in workload.sessions)
    assert run.prompt_tokens == sum(turn.prompt_tokens for plan in workload.sessions for turn in plan.turns)
    later = sum(turn.prompt_tokens - 60 for plan in workload.sessions for turn in plan.turns[1:])
    assert run.cached_tokens > later // 2
    assert len(run.durations_s) == len(workload.sessions)
    assert max(run.durations_s) <= run.makespan_s


async def test_a_refused_turn_ends_the_run() -> None:
    """With the session, the address and the answer."""
    async with running_engine(replace(CONFIG, context_length=64)) as engine:
        with pytest.raises(RuntimeError, match=r"task-\d-\d at http://127\.0\.0\.1:\d+/generate: 400"):
            await drive(generate(MODEL, 1), Target((engine.url,)), 0.001)


def test_agreement_is_about_the_order() -> None:
    """Whatever the scales, equal orders agree wholly and reversed ones not at all."""

    def figures(durations_s: float) -> Figures:
        return Figures(0.1, 0.9, 1.1, durations_s, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 0.0)

    same = [Pair(str(value), "p", figures(value), figures(10 * value + 3)) for value in (1.0, 5.0, 2.0)]
    assert agreement(same) == pytest.approx(1.0)
    turned = [replace(pair, simulated=figures(-pair.measured.durations_s)) for pair in same]
    assert agreement(turned) == pytest.approx(-1.0)
    assert "| 5.0 | p | 5 s | 53 s |" in table(same)
