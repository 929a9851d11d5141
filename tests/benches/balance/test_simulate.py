"""Runs: nothing gets lost, and the same seed is the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benches.balance.figures import change, estimate, figures
from benches.balance.fleet import TP4, Fleet, Outage, Replica, even
from benches.balance.policies.registry import CONTENDERS, OFF, TRIMTAB
from benches.balance.simulate import simulate
from benches.balance.traces import load
from benches.balance.workload import LogNormal, SessionPlan, Turn, Workload, WorkloadModel, generate

if TYPE_CHECKING:
    from benches.balance.simulate import Run

MODEL = WorkloadModel(tasks=6, samples=3, window=3, turns=LogNormal(4, 0.5, 10))
TIGHT = replace(TP4, kv_tokens=40_000, max_running=8)
OUTAGE = replace(even(3, TIGHT), outage=Outage(1, 40.0, 90.0))
UPDATES = replace(even(3, TIGHT), publish_every_groups=2)


def run(name: str, fleet: Fleet, seed: int = 1) -> Run:
    """A small run."""
    return simulate(generate(MODEL, seed), fleet, CONTENDERS[name].make, seed)


@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("fleet", [OUTAGE, UPDATES], ids=["outage", "updates"])
def test_tokens_in_are_tokens_out(name: str, fleet: Fleet) -> None:
    """Under every policy, with memory pressure, a lost engine or updates, every session gets all its tokens."""
    result = run(name, fleet)
    sessions = generate(MODEL, 1).sessions
    assert sum(result.output_tokens) - result.lost_tokens == sum(plan.output_tokens for plan in sessions)
    assert len(result.turns_s) == sum(len(plan.turns) for plan in sessions)
    assert len(result.groups_s) == MODEL.tasks
    assert min(result.turns_s) > 0
    assert max(result.durations_s) <= result.makespan_s
    assert result.prompt_tokens >= sum(turn.prompt_tokens for plan in sessions for turn in plan.turns)


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    """To the last digit."""
    assert run(name, UPDATES) == run(name, UPDATES)


def test_a_lost_engine_costs_its_sessions_their_turn() -> None:
    """What it had generated is lost, its sessions move, and it takes part again when it is back."""
    result = run(TRIMTAB, OUTAGE)
    assert result.lost_tokens > 0
    assert result.moved > 0
    assert result.makespan_s > run(TRIMTAB, even(3, TIGHT)).makespan_s


def test_an_update_empties_the_caches() -> None:
    """Nothing is lost, and the next turns compute their prompts again."""
    result, without = run(TRIMTAB, UPDATES), run(TRIMTAB, even(3, TIGHT))
    assert result.lost_tokens == 0
    assert result.cached_tokens / result.prompt_tokens < without.cached_tokens / without.prompt_tokens


def test_an_update_waits_for_what_ends_in_the_same_step() -> None:
    """Two sessions end at once and the first of them ends its group: the other has its answer before the pause."""
    turn = (Turn(100, 20, 0.0),)
    plans = [SessionPlan(task, 0, 1.0, 50, 10, turn) for task in range(3)]
    fleet = replace(even(1), publish_every_groups=1, publish_pause_s=30.0)
    result = simulate(Workload(tuple((plan,) for plan in plans), 2), fleet, CONTENDERS[TRIMTAB].make, 0)
    assert result.groups_s[0] == result.groups_s[1]
    assert result.lost_tokens == 0
    assert sum(result.output_tokens) == 60


def test_leaving_an_engine_costs_its_cache() -> None:
    """Requests that go anywhere find less of their prompts than sessions that stay."""
    fleet = even(4)
    scattered, sticky = run("round robin", fleet), run(TRIMTAB, fleet)
    assert scattered.cached_tokens < 0.8 * sticky.cached_tokens
    assert scattered.moved > 0 == sticky.moved


def test_a_window_bounds_the_groups_in_flight() -> None:
    """With a window of one the groups follow each other."""
    model = replace(MODEL, window=1)
    result = simulate(generate(model, 1), even(2), CONTENDERS[OFF].make, 1)
    wide = simulate(generate(replace(model, window=6), 1), even(2), CONTENDERS[OFF].make, 1)
    assert result.makespan_s > 2 * wide.makespan_s


def test_a_trace_runs() -> None:
    """Recorded sessions arrive when they did."""
    workload = load(Path(__file__).parents[3] / "benches" / "balance" / "example.jsonl")
    result = simulate(workload, even(2), CONTENDERS[TRIMTAB].make, 0, sample_s=5.0)
    assert sum(result.output_tokens) == sum(plan.output_tokens for plan in workload.sessions)
    assert len(result.load) == int(result.makespan_s // 5.0)


def test_figures_of_unequal_engines_are_per_capacity() -> None:
    """Four times the tokens on four times the capacity is no spread."""
    result = run(TRIMTAB, Fleet((Replica(TP4, 4.0), Replica(TP4, 1.0))))
    fair = replace(result, output_tokens=(400, 100))
    assert figures(fair, (4.0, 1.0)).spread == pytest.approx(0.0)
    assert figures(fair, (1.0, 1.0)).spread == pytest.approx(0.6)


def test_intervals_are_those_of_student() -> None:
    """Six values with a known interval; pairs differ by less than their sets do."""
    value = estimate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert value.mean == 3.5
    assert value.half == pytest.approx(2.571 * 1.8708 / 6**0.5, rel=0.01)
    paired = change([110.0, 220.0], [100.0, 200.0])
    assert paired.mean == pytest.approx(10.0)
    assert paired.half == pytest.approx(0.0, abs=1e-9)
