"""The same sessions over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benches.balance.figures import Figures
from benches.balance.fleet import TP4
from benches.balance.http.compare import Pair, agreement, table, verdicts
from benches.balance.http.drive import Target, drive
from benches.balance.report import durations
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


def figures(durations_s: float) -> Figures:
    """A run of which only the sum of durations matters."""
    return Figures(0.1, 0.9, 1.1, durations_s, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 0.0)


def pair(name: str, measured: list[float], simulated: list[float]) -> Pair:
    """A router with these sums of durations, seed by seed."""
    return Pair(name, "p", [figures(value) for value in measured], [figures(value) for value in simulated])


def test_agreement_is_about_the_order() -> None:
    """Whatever the scales, equal orders agree wholly and reversed ones not at all; equal values share their rank."""
    same = [pair(str(value), [value, value + 2], [10 * value + 3] * 2) for value in (1.0, 5.0, 2.0)]
    assert agreement(same) == pytest.approx(1.0)
    turned = [
        pair(one.name, [1 / run.durations_s for run in one.measured], [one.simulated[0].durations_s] * 2)
        for one in same
    ]
    assert agreement(turned) == pytest.approx(-1.0)
    ties = [pair("a", [1.0, 1.0], [1.0, 1.0]), pair("b", [2.0, 2.0], [1.0, 1.0]), pair("c", [3.0, 3.0], [2.0, 2.0])]
    assert agreement(ties) == pytest.approx(0.75**0.5)
    assert "| 5.0 | p | 6 s | 53 s |" in table(same)


def test_only_what_the_simulation_separates_can_be_contradicted() -> None:
    """Two that differ less than their seeds scatter are left open; of the others each is the same or turned."""
    pairs = [
        pair("good", [100.0, 110.0, 120.0], [100.0, 110.0, 121.0]),
        pair("as good", [99.0, 111.0, 120.0], [101.0, 109.0, 121.0]),
        pair("bad", [150.0, 160.0, 170.0], [150.0, 161.0, 171.0]),
        pair("misjudged", [90.0, 90.0, 90.0], [200.0, 220.0, 240.0]),
    ]
    found = verdicts(pairs, durations)
    assert (found.same, found.open) == (2, 1)
    assert [text.partition(":")[0] for text in found.turned] == [
        "good against misjudged",
        "as good against misjudged",
        "bad against misjudged",
    ]
