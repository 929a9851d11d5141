"""How far the measured runs and the simulated ones say the same."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from benches.balance.figures import change
from benches.balance.report import column, durations, makespan, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.balance.figures import Figures


@dataclass(frozen=True)
class Pair:
    """One router over HTTP, and the simulation of its policy, on the same sessions: a run of each for each seed."""

    name: str
    policy: str
    measured: list[Figures]
    simulated: list[Figures]


def table(pairs: Sequence[Pair]) -> str:
    """Measured and simulated side by side: means over the seeds."""
    lines = [
        (
            "| router | its policy | Σ rollouts: HTTP | simulated | makespan: HTTP | simulated | spread: HTTP "
            "| simulated | cached: HTTP | simulated |"
        ),
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for pair in pairs:
        cells = []
        for of, form in ((durations, ",.0f"), (makespan, ".0f"), (spread, ".3f"), (_cached, ".1%")):
            unit = " s" if of in (durations, makespan) else ""
            cells += [f"{_mean(runs, of):{form}}{unit}" for runs in (pair.measured, pair.simulated)]
        lines.append(f"| {pair.name} | {pair.policy} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def agreement(pairs: Sequence[Pair], of: Callable[[Figures], float] = durations) -> float:
    """Rank correlation (Spearman) of the means over the seeds, measured and simulated."""
    measured = [_mean(pair.measured, of) for pair in pairs]
    simulated = [_mean(pair.simulated, of) for pair in pairs]
    return statistics.correlation(_ranks(measured), _ranks(simulated))


@dataclass(frozen=True)
class Verdicts:
    """What became of the comparisons that the simulation decides.

    Attributes:
        same: Pairs of routers that both put into the same order.
        turned: Descriptions of those that they do not.
        open: How many pairs the simulation does not separate.
    """

    same: int
    turned: tuple[str, ...]
    open: int


def verdicts(pairs: Sequence[Pair], of: Callable[[Figures], float]) -> Verdicts:
    """Look at every two routers that the simulation separates beyond the 95 % interval over the same seeds."""
    same, turned, undecided = 0, [], 0
    for one, other in combinations(pairs, 2):
        simulated = change(column(one.simulated, of), column(other.simulated, of))
        if abs(simulated.mean) <= simulated.half:
            undecided += 1
            continue
        measured = change(column(one.measured, of), column(other.measured, of))
        if measured.mean * simulated.mean > 0:
            same += 1
        else:
            turned.append(
                f"{one.name} against {other.name}: simulated {simulated.mean:+.1f} ± {simulated.half:.1f} %, "
                f"HTTP {measured.mean:+.1f} ± {measured.half:.1f} %"
            )
    return Verdicts(same, tuple(turned), undecided)


def distance(pairs: Sequence[Pair], of: Callable[[Figures], float]) -> tuple[float, str]:
    """The largest difference of the means in percent, and whose it is."""
    return max((abs(100.0 * (_mean(pair.measured, of) / _mean(pair.simulated, of) - 1.0)), pair.name) for pair in pairs)


def _cached(run: Figures) -> float:
    return run.cached


def _mean(runs: Sequence[Figures], of: Callable[[Figures], float]) -> float:
    return statistics.fmean(column(runs, of))


def _ranks(values: Sequence[float]) -> list[float]:
    """Equal values share the mean of their ranks."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]
