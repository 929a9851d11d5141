"""The demo's workload: seeded, heavy-tailed, in groups that share a prompt."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import pytest

from trimtab.cli.demo.workload import LogNormal, SessionPlan, WorkloadConfig, plan_sessions, seeded, token_ids


def plans(count: int, *, seed: int = 1, **shape: Any) -> list[SessionPlan]:
    """The first sessions of a workload."""
    return list(itertools.islice(plan_sessions(WorkloadConfig(**shape), seed), count))


def test_the_same_seed_gives_the_same_sessions_and_another_one_does_not() -> None:
    """A run can be repeated: everything is drawn from the seed."""
    assert plans(100, seed=7) == plans(100, seed=7)
    assert plans(100, seed=7) != plans(100, seed=8)


def test_samples_of_a_group_share_their_prompt_and_nothing_else() -> None:
    """Samples of one task have equal prompts, keys of their own, and lengths of their own."""
    groups = [plans(24, group_size=8)[at : at + 8] for at in (0, 8, 16)]
    prompts = {(plan.prompt_seed, plan.prompt_tokens) for group in groups for plan in group}
    assert len(prompts) == 3
    assert len({plan.key for group in groups for plan in group}) == 24
    assert all(len({plan.turns for plan in group}) == 8 for group in groups)


def test_session_lengths_are_heavy_tailed_within_their_bounds() -> None:
    """The longest tenth of the sessions generates over a quarter of the tokens, and some differ by more than 20x."""
    lengths = sorted(plan.output_tokens for plan in plans(2_000))
    assert sum(lengths[-200:]) > sum(lengths) / 4
    assert lengths[-20] > 20 * lengths[20]
    assert statistics.fmean(lengths) > statistics.median(lengths)


def test_every_turn_is_within_the_configured_shape() -> None:
    """Clamps hold; the first turn appends no tool answer and the last one is followed by no tool."""
    config = WorkloadConfig()
    for plan in plans(500):
        assert config.turns.least <= len(plan.turns) <= config.turns.most
        assert plan.turns[0].added_tokens == 0
        assert plan.turns[-1].pause_s == 0
        assert all(config.output.least <= turn.output_tokens <= config.output.most for turn in plan.turns)
        assert all(config.tool.least <= turn.added_tokens <= config.tool.most for turn in plan.turns[1:])
        assert all(config.pause_s.least <= turn.pause_s <= config.pause_s.most for turn in plan.turns[:-1])


def test_the_share_of_streams_is_kept() -> None:
    """About the configured share of the turns asks for an event stream, and 0 and 1 mean none and all."""
    turns = [turn for plan in plans(500, stream_share=0.3) for turn in plan.turns]
    assert 0.25 < statistics.fmean(turn.stream for turn in turns) < 0.35
    assert not any(turn.stream for plan in plans(50, stream_share=0.0) for turn in plan.turns)
    assert all(turn.stream for plan in plans(50, stream_share=1.0) for turn in plan.turns)


def test_the_median_of_a_log_normal_is_its_median() -> None:
    """The parameter is what it says, whatever the spread."""
    shape = LogNormal(median=50, sigma=0.8, least=1, most=10_000)
    rng = seeded(3)
    assert 45 < statistics.median(shape.draw(rng) for _ in range(4_000)) < 55


@pytest.mark.parametrize(
    ("median", "sigma", "least", "most"),
    [(5, 1, 0, 9), (5, 1, 6, 9), (5, 1, 1, 4), (5, -1, 1, 9), (5, float("nan"), 1, 9), (5, 1, 1, float("inf"))],
)
def test_a_shape_that_cannot_be_drawn_from_is_refused(median: float, sigma: float, least: float, most: float) -> None:
    """Bounds in the wrong order and impossible spreads are errors at construction."""
    with pytest.raises(ValueError, match="log-normal"):
        LogNormal(median, sigma, least, most)


def test_token_ids_are_repeatable_and_in_the_vocabulary() -> None:
    """Two samples that draw from the same prompt seed send the same tokens."""
    assert token_ids(seeded("1/4"), 300, 2_000) == token_ids(seeded("1/4"), 300, 2_000)
    assert all(1_000 <= token < 2_000 for token in token_ids(seeded("x"), 300, 2_000))
