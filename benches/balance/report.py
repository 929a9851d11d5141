"""From results to tables, goals and a section of the documentation."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benches.balance.figures import Estimate, Figures, change, estimate
from benches.balance.policies.registry import CONTENDERS, OFF, TRIMTAB, UNCLOSED
from benches.balance.scenarios import REFERENCE, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.balance.sweep import Results

SPREAD_GOAL = 0.05
DURATIONS_GOAL = -6.1
OURS = ("trimtab", "variant")


def column(runs: Sequence[Figures], of: Callable[[Figures], float]) -> list[float]:
    """One number of every run."""
    return [of(run) for run in runs]


def spread(run: Figures) -> float:
    """Coefficient of variation of output tokens per capacity."""
    return run.spread


def durations(run: Figures) -> float:
    """Sum of rollout durations."""
    return run.durations_s


def makespan(run: Figures) -> float:
    """Time of the whole step."""
    return run.makespan_s


def goals(results: Results) -> str:
    """Each goal beside what was measured."""
    reference = results[REFERENCE]
    lines = ["| goal (trimtab's default) | measured | |", "|---|---:|---|"]
    for name, where in ((TRIMTAB, ""), (UNCLOSED, ", sessions never closed")):
        value = estimate(column(reference[name], spread))
        lines.append(
            f"| spread of output tokens at most {SPREAD_GOAL} on the reference shape{where} "
            f"| {value.mean:.4f} ± {value.half:.4f} | {_verdict(value.mean <= SPREAD_GOAL)} |"
        )
    for name in (REFERENCE, "light", "medium", "saturated"):
        if name in results:
            of = change(column(results[name][TRIMTAB], durations), column(results[name][OFF], durations))
            lines.append(
                f"| sum of rollout durations at least {-DURATIONS_GOAL} % below routing off, {name} | {signed(of)} "
                f"| {_verdict(of.mean <= DURATIONS_GOAL)} |"
            )
    better = beaten(results)
    lines.append(
        "| no peer has a shorter makespan beyond the confidence interval, in any scenario | "
        f"{'none' if not better else '; '.join(better)} | {_verdict(not better)} |"
    )
    return "\n".join(lines)


def beaten(results: Results) -> list[str]:
    """Peers with a makespan significantly below that of trimtab's default, and where."""
    found = []
    for scenario, policies in results.items():
        ours = column(policies[TRIMTAB], makespan)
        for name, runs in policies.items():
            if CONTENDERS[name].whose in OURS:
                continue
            difference = change(column(runs, makespan), ours)
            if difference.mean + difference.half < 0:
                found.append(f"{scenario}: {name} {signed(difference)}")
    return found


def full_table(policies: dict[str, list[Figures]]) -> str:
    """One scenario, every number."""
    lines = [
        (
            "| policy | spread of tokens | least .. most | Σ rollouts | longest rollout | makespan | tokens/s | cached "
            "| turn p50 / p99 | moved |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    off = policies[OFF]
    for name, runs in policies.items():
        value = estimate(column(runs, spread))
        mean = {
            field: statistics.fmean(getattr(run, field) for run in runs)
            for field in ("least", "most", "longest_s", "tokens_per_s", "cached", "turn_p50_s", "turn_p99_s", "moved")
        }
        lines.append(
            f"| {_name(name)} | {value.mean:.3f} ± {value.half:.3f} | {mean['least']:.2f} .. {mean['most']:.2f} "
            f"| {_versus(runs, off, durations)} | {mean['longest_s']:,.0f} s | {_versus(runs, off, makespan)} "
            f"| {mean['tokens_per_s']:,.0f} | {mean['cached']:.1%} "
            f"| {mean['turn_p50_s']:.1f} / {mean['turn_p99_s']:.1f} s | {mean['moved']:,.0f} |"
        )
    return "\n".join(lines)


def matrix(results: Results, entry: Callable[[list[Figures], dict[str, list[Figures]]], str]) -> str:
    """Policies by scenarios, for the policies that run everywhere."""
    names = [name for name, contender in CONTENDERS.items() if contender.everywhere]
    lines = ["| policy | " + " | ".join(results) + " |", "|---|" + "---:|" * len(results)]
    for name in names:
        cells = [entry(policies[name], policies) if name in policies else "" for policies in results.values()]
        lines.append(f"| {_name(name)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread_entry(runs: list[Figures], policies: dict[str, list[Figures]]) -> str:
    """Spread with its interval."""
    del policies
    value = estimate(column(runs, spread))
    return f"{value.mean:.3f} ± {value.half:.3f}"


def durations_entry(runs: list[Figures], policies: dict[str, list[Figures]]) -> str:
    """Sum of durations against routing off."""
    return signed(change(column(runs, durations), column(policies[OFF], durations)))


def makespan_entry(runs: list[Figures], policies: dict[str, list[Figures]]) -> str:
    """Makespan against trimtab's default."""
    return signed(change(column(runs, makespan), column(policies[TRIMTAB], makespan)))


def legend() -> str:
    """What the names of policies mean."""
    return "\n".join(f"* `{name}`: {contender.what}" for name, contender in CONTENDERS.items())


def scenarios() -> str:
    """What the scenarios are."""
    return "\n".join(f"* **{scenario.name}**: {scenario.what}" for scenario in SCENARIOS.values())


def _versus(runs: list[Figures], base: list[Figures], of: Callable[[Figures], float]) -> str:
    mean = statistics.fmean(column(runs, of))
    if runs is base:
        return f"{mean:,.0f} s"
    return f"{mean:,.0f} s, {signed(change(column(runs, of), column(base, of)))}"


def signed(value: Estimate) -> str:
    """A change in percent with its interval."""
    return f"{value.mean:+.1f} ± {value.half:.1f} %"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**missed**"


def _name(name: str) -> str:
    return f"**{name}**" if name == TRIMTAB else name
