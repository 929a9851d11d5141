"""From runs to numbers, and from numbers to means with confidence intervals."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benches.balance.simulate import Run


@dataclass(frozen=True)
class Figures:
    """One run in numbers.

    Attributes:
        spread: Coefficient of variation of the output tokens per capacity, over the replicas.
        least: The fewest output tokens per capacity of a replica, as a part of the mean.
        most: The most.
        durations_s: Sum of the rollouts' durations.
        longest_s: The longest of them.
        makespan_s: Until the last of the step ended.
        tokens_per_s: Output tokens of the fleet over the makespan.
        cached: Share of prompt tokens that were in the cache.
        turn_p50_s: Median latency of a turn.
        turn_p99_s: The slowest hundredth.
        moved: Turns on another replica than the one before.
        retractions: Requests that lost their memory to others.
    """

    spread: float
    least: float
    most: float
    durations_s: float
    longest_s: float
    makespan_s: float
    tokens_per_s: float
    cached: float
    turn_p50_s: float
    turn_p99_s: float
    moved: float
    retractions: float


def figures(run: Run, capacities: Sequence[float]) -> Figures:
    """The numbers of a run."""
    shares = [tokens / capacity for tokens, capacity in zip(run.output_tokens, capacities, strict=True)]
    mean = statistics.fmean(shares)
    turns = sorted(run.turns_s)
    return Figures(
        spread=statistics.pstdev(shares) / mean,
        least=min(shares) / mean,
        most=max(shares) / mean,
        durations_s=sum(run.durations_s),
        longest_s=max(run.durations_s),
        makespan_s=run.makespan_s,
        tokens_per_s=(sum(run.output_tokens) - run.lost_tokens) / run.makespan_s,
        cached=run.cached_tokens / run.prompt_tokens,
        turn_p50_s=turns[len(turns) // 2],
        turn_p99_s=turns[len(turns) * 99 // 100],
        moved=run.moved,
        retractions=run.retractions,
    )


@dataclass(frozen=True)
class Estimate:
    """A mean, and half the width of its 95 % confidence interval."""

    mean: float
    half: float


def estimate(values: Sequence[float]) -> Estimate:
    """Of independent values; without an interval when there is only one."""
    if len(values) == 1:
        return Estimate(values[0], math.inf)
    half = _student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(statistics.fmean(values), half)


def change(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """By how many percent ``values`` differ from ``base``, pair by pair: the same seed is the same work."""
    return estimate([100.0 * (value / other - 1.0) for value, other in zip(values, base, strict=True)])


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution, to a percent from five degrees on."""
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2
