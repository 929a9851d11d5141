"""From rounds to tables, goals and a section of the documentation."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benches.gateway.cells import BODIES, FLEETS, STREAMS, Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benches.gateway.cells import Sample
    from benches.gateway.measure import Results

LLM_ROUTERS = ("smg", "sglang-router", "vllm-router")
_EVENTS = 64


def tables(results: Results) -> str:
    """All numbers, in Markdown."""
    parts = []
    for size in (2048, 65536):
        cells = [cell for cell in BODIES if cell.body_bytes == size]
        title = f"**{size // 1024} kB bodies, 64 engines**"
        parts.append(_table(results, cells, title, [f"{cell.connections} connections" for cell in cells]))
    fleets = [FLEETS[0], next(cell for cell in BODIES if cell == Cell(64, 64)), FLEETS[1]]
    names = [f"{cell.engines} engines" for cell in fleets]
    parts.append(_table(results, fleets, "**2 kB bodies, 64 connections**", names))
    title = "**Event streams of 64 events, 4 engines, 64 connections** (streams per second, CPU µs per *event*)"
    parts.append(_table(results, STREAMS, title, ["back to back", "one per 2 ms"], per=_EVENTS))
    return "\n\n".join(parts)


def _table(results: Results, cells: Sequence[Cell], title: str, columns: Sequence[str], per: int = 1) -> str:
    names = list(dict.fromkeys(name for cell in cells for name in results.get(cell, {})))
    lines = [title, "", "| router | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name in names:
        entries = []
        for cell in cells:
            samples = results[cell].get(name)
            entries.append(_entry(samples, per) if samples else "not run")
        lines.append(f"| {name} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def _entry(samples: Sequence[Sample], per: int) -> str:
    cpu = _median(samples, lambda sample: sample.cpu_us / per)
    speed = _median(samples, lambda sample: sample.per_second)
    p50, p99 = _median(samples, lambda sample: sample.p50_ms), _median(samples, lambda sample: sample.p99_ms)
    rss = max(sample.rss_mib for sample in samples)
    errors = sum(sample.errors for sample in samples)
    failed = f" · {errors} errors" if errors else ""
    return f"**{cpu:.1f} µs** · {speed:,.0f}/s · {p50:.2f} / {p99:.2f} ms · {rss:.0f} MiB{failed}"


def _median(samples: Iterable[Sample], of: Callable[[Sample], float]) -> float:
    return statistics.median(of(sample) for sample in samples)


def goals(results: Results, baseline_mib: float) -> str:
    """Each goal beside what was measured: medians over the rounds of ratios within a round."""
    lines = ["| goal (CPU of the router) | measured | |", "|---|---:|---|"]

    def row(goal: str, measured: float, bound: float, *, at_least: bool = False) -> None:
        reached = measured >= bound if at_least else measured <= bound
        lines.append(f"| {goal} | {measured:.2f} | {'reached' if reached else '**missed**'} |")

    for size, bound in ((2048, 1.3), (65536, 1.2)):
        for connections in (1, 16, 64, 256):
            cell = Cell(64, connections, size)
            if cell in results:
                clients = "1 connection" if connections == 1 else f"{connections} connections"
                what = f"at most {bound} x haproxy at {size // 1024} kB, {clients}"
                row(what, _ratio(results[cell], "trimtab", "haproxy"), bound)
    for size, bound in ((2048, 5.0), (65536, 15.0)):
        cell = Cell(64, 64, size)
        best = min(
            (_ratio(results[cell], name, "trimtab") for name in LLM_ROUTERS if name in results.get(cell, {})), default=0
        )
        row(f"at least {bound:.0f} x below the best LLM router at {size // 1024} kB", best, bound, at_least=True)
    grown = statistics.median(
        large.cpu_us / small.cpu_us
        for large, small in zip(results[Cell(1000, 64)]["trimtab"], results[Cell(64, 64)]["trimtab"], strict=True)
    )
    row("1,000 engines at most 1.2 x 64 engines", grown, 1.2)
    for cell, kind in zip(STREAMS, ("back to back", "paced"), strict=True):
        row(f"at most 1.3 x nginx per event, {kind}", _ratio(results[cell], "trimtab", "nginx"), 1.3)
    above = max(sample.rss_mib for sample in results[Cell(64, 256)]["trimtab"]) - baseline_mib
    row(f"at most 40 MiB above the Python baseline ({baseline_mib:.0f} MiB) at 256 connections", above, 40.0)
    return "\n".join(lines)


def _ratio(cell: dict[str, list[Sample]], of: str, to: str) -> float:
    return statistics.median(a.cpu_us / b.cpu_us for a, b in zip(cell[of], cell[to], strict=True))
