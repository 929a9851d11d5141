"""Generated sessions, and recorded ones."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benches.balance.traces import TraceError, dump, load
from benches.balance.workload import LogNormal, SessionPlan, WorkloadModel, generate

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = WorkloadModel(tasks=6, samples=3)
EXAMPLE = Path(__file__).parents[3] / "benches" / "balance" / "example.jsonl"


def test_a_seed_is_a_workload() -> None:
    """The same seed gives the same sessions, another one others, and more tasks leave the first ones alone."""
    once = asdict(generate(MODEL, 1))
    assert asdict(generate(MODEL, 1)) == once
    assert asdict(generate(MODEL, 2)) != once
    assert asdict(generate(replace(MODEL, tasks=9), 1))["groups"][:6] == once["groups"]


def test_prompts_grow_by_the_output_and_more() -> None:
    """Every prompt contains the turn before it, begins with what is shared, and fits into the context."""
    model = replace(MODEL, context_tokens=12_000)
    for plan in generate(model, 3).sessions:
        assert plan.turns[0].prompt_tokens == plan.shared_tokens + plan.task_tokens
        for before, after in pairwise(plan.turns):
            assert after.prompt_tokens > before.prompt_tokens + before.output_tokens
        assert all(turn.prompt_tokens + turn.output_tokens <= model.context_tokens for turn in plan.turns)


def test_a_group_shares_its_prompt_and_its_difficulty() -> None:
    """Sessions of one task id have the same prefix, and lengths that are more alike than those of two task ids."""
    groups = generate(WorkloadModel(turns=LogNormal(16, 0.0, 50), early_end=0.0), 1).groups
    for group in groups:
        assert len({plan.task_tokens for plan in group}) == 1
        assert len({len(plan.turns) for plan in group if plan.turns[-1].prompt_tokens < 50_000}) <= 1
    assert len({len(group[0].turns) for group in groups}) > 10


def test_some_sessions_end_early_and_some_write_on() -> None:
    """The shares are those of the model."""
    model = WorkloadModel(stragglers=0.25, early_end=0.0)
    usual, slow = generate(replace(model, stragglers=0.0), 1), generate(model, 1)
    mean = [sum(plan.output_tokens for plan in work.sessions) for work in (usual, slow)]
    assert 1.2 < mean[1] / mean[0] < 2.0
    early = generate(replace(model, early_end=1.0), 1)
    assert sum(len(plan.turns) for plan in early.sessions) < 0.7 * sum(len(plan.turns) for plan in usual.sessions)


def test_the_example_is_a_trace() -> None:
    """What is committed loads, and says what the generator wrote."""
    workload = load(EXAMPLE)
    assert [len(group) for group in workload.groups] == [2, 2, 2]
    assert workload.window == 3
    assert all(plan.arrival_s is not None and plan.turns for plan in workload.sessions)


def test_a_written_trace_reads_back(tmp_path: Path) -> None:
    """Turns, groups and shared prefixes survive."""
    workload = generate(MODEL, 4)
    dump(workload, tmp_path / "trace.jsonl")
    again = load(tmp_path / "trace.jsonl")

    def shape(plan: SessionPlan) -> list[tuple[int, int]]:
        return [(turn.prompt_tokens, turn.output_tokens) for turn in plan.turns]

    assert [shape(plan) for plan in again.sessions] == [shape(plan) for plan in workload.sessions]
    assert [plan.task_tokens for plan in again.sessions] == [
        plan.shared_tokens + plan.task_tokens for plan in workload.sessions
    ]


LINE = {"session": "a", "turn": 0, "arrival_s": 0, "prompt_tokens": 9, "output_tokens": 2, "tool_s": 0.5}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no turns"),
        (["{"], "trace.jsonl:1: not JSON"),
        (["[]"], "trace.jsonl:1: not an object"),
        ([{**LINE, "session": 3}], "session and task must be strings"),
        ([{**LINE, "output_tokens": 0}], "output_tokens must be a whole number of at least 1, got 0"),
        ([{**LINE, "prompt_tokens": True}], "prompt_tokens must be a whole number of at least 1, got True"),
        ([{**LINE, "tool_s": -1}], "tool_s must be a finite number, not negative, got -1"),
        ([{**LINE, "arrival_s": None}], "arrival_s must be a finite number"),
        ([LINE, LINE], "trace.jsonl:2: turn 0 of session 'a' is there twice"),
        ([LINE, {**LINE, "turn": 2, "prompt_tokens": 20}], "session 'a' lacks turn 1"),
        ([{**LINE, "turn": 1}], "session 'a' lacks turn 0"),
        ([LINE, {**LINE, "turn": 1, "prompt_tokens": 10}], "turn 1 of session 'a' does not contain the turn before"),
    ],
)
def test_a_bad_trace_is_refused_with_its_place(tmp_path: Path, lines: list[Any], message: str) -> None:
    """File, line or session, and the rule."""
    path = tmp_path / "trace.jsonl"
    encode: Callable[[Any], str] = lambda line: line if isinstance(line, str) else json.dumps(line)  # noqa: E731
    path.write_text("\n".join(encode(line) for line in lines))
    with pytest.raises(TraceError, match=r"trace\.jsonl") as error:
        load(path)
    assert message in str(error.value)
