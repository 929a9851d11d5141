"""The last word: a panel that says in plain words what was shown and how it came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trimtab.cli.demo.summary import EVEN_CV
from trimtab.cli.demo.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.cli.demo.summary import Summary

__all__ = ["report"]

GOOD, NOTE, BAD = "green", "yellow", "bold red"
FAILURES_SHOWN = 5
PANEL_WIDTH = 96


def report(summary: Summary) -> Panel:
    """Return the panel."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row("What ran", _setting(summary))
    for style, title, text in _findings(summary):
        grid.add_row("", "")
        grid.add_row(Text(title, style=style), text)
    verdict = "the demo passed" if summary.passed else "the demo FAILED"
    return Panel(
        grid,
        title=f"trimtab demo: {verdict}",
        border_style=GOOD if summary.passed else BAD,
        width=PANEL_WIDTH,
        padding=(1, 2),
    )


def _setting(summary: Summary) -> str:
    """Say what ran."""
    capacities = [f"{capacity:g}" for capacity in summary.capacities]
    fleet = f"{count(len(capacities), 'simulated engine')} of capacity {listed(capacities)}"
    length = f"of {summary.turns / max(summary.sessions, 1):.1f} turns on average"
    return (
        f"{fleet} behind one gateway. {count(summary.sessions, 'coding session')} {length} went through it in"
        f" {summary.elapsed_s:.1f} s: {summary.requests:,} requests ({summary.requests_per_s:,.0f} per second),"
        f" {summary.output_tokens:,} output tokens."
    )


def _findings(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield (style, title, text) of everything the demo shows."""
    yield _load(summary)
    yield (
        BAD if summary.sticky_violations else GOOD,
        "Sessions stay",
        (
            f"The gateway moved a session away from a crowded engine {count(summary.spilled, 'time')};"
            f" {count(summary.sticky_violations, 'answer')} came from another engine without that."
            f" {summary.cached_share:.0%} of all prompt tokens were already in the engine's prefix cache."
        ),
    )
    yield (
        BAD if summary.errors or summary.leases_open else GOOD,
        "Nothing is lost",
        f"{count(summary.errors, 'error')}; {count(summary.leases_open, 'lease')} left open in the gateway.",
    )
    for message, times in summary.failures[:FAILURES_SHOWN]:
        yield BAD, f"  {times} x", message
    if not summary.disagreements:
        yield GOOD, "Counts agree", "Clients, gateway and engines each counted the same requests and the same tokens."
    for line in summary.disagreements:
        yield BAD, "Counts differ", line


def _load(summary: Summary) -> tuple[str, str, str]:
    """Say how even the load was; uneven is a note, since a short run holds too few sessions to even out."""
    ratios = summary.tokens_per_capacity
    even = summary.cv_output_tokens <= EVEN_CV
    text = (
        f"Per unit of capacity each engine generated {min(ratios):,.0f} to {max(ratios):,.0f} tokens: a coefficient of"
        f" variation of {summary.cv_output_tokens:.3f} (0 is perfect, up to {EVEN_CV:.2f} is even)."
    )
    if not even:
        text += " Sessions differ greatly in length: more seconds, or fewer engines, let them even out."
    return (GOOD, "Load is even", text) if even else (NOTE, "Load is uneven", text)
