"""From rounds to a table, and from a table into the documentation."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- benches/lease: begin -->", "<!-- benches/lease: end -->"


@dataclass(frozen=True, slots=True)
class Sample:
    """One router in one round."""

    pairs: int
    user_s: float
    kernel_s: float

    @property
    def user_us_per_pair(self) -> float:
        """CPU microseconds of the router's own code for one acquire and its settlement."""
        return self.user_s / self.pairs * 1e6

    @property
    def cpu_us_per_pair(self) -> float:
        """CPU microseconds of the router and of the kernel for it, for one acquire and its settlement."""
        return (self.user_s + self.kernel_s) / self.pairs * 1e6

    @property
    def pairs_per_core_s(self) -> float:
        """Pairs in one second of one busy core."""
        return self.pairs / (self.user_s + self.kernel_s)


def table(samples: dict[str, list[Sample]], peak_mib: dict[str, float]) -> str:
    """Medians over the rounds, in Markdown."""
    lines = [
        "| router | CPU µs per pair | its own code | the kernel | pairs per second per core | peak RSS |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, rounds in samples.items():
        cpu = statistics.median(sample.cpu_us_per_pair for sample in rounds)
        core = statistics.median(sample.pairs_per_core_s for sample in rounds)
        user = statistics.median(sample.user_us_per_pair for sample in rounds)
        kernel = statistics.median(sample.cpu_us_per_pair - sample.user_us_per_pair for sample in rounds)
        lines.append(f"| {name} | {cpu:.1f} | {user:.1f} | {kernel:.1f} | {core:,.0f} | {peak_mib[name]:.0f} MiB |")
    return "\n".join(lines)


def comparison(ours: list[Sample], theirs: list[Sample]) -> str:
    """How many times more pairs a core does with ours, round by round, and what bounds that."""
    rounds = list(zip(ours, theirs, strict=True))
    total = [b.cpu_us_per_pair / a.cpu_us_per_pair for a, b in rounds]
    own = [b.user_us_per_pair / max(a.user_us_per_pair, 1e-9) for a, b in rounds]
    bound = [b.cpu_us_per_pair / max(a.cpu_us_per_pair - a.user_us_per_pair, 1e-9) for a, b in rounds]
    return (
        f"Per core, trimtab does **{statistics.median(total):.1f} times** the pairs (median of {len(rounds)} rounds; "
        f"{min(total):.1f} to {max(total):.1f}).\n"
        f"Its own code takes {statistics.median(own):.1f} times less CPU time ({min(own):.1f} to {max(own):.1f}); the "
        "rest is the kernel's, for one receive\nand one send of each request over loopback TCP: with that alone, "
        f"and no code of ours at all, the factor would be {statistics.median(bound):.0f}."
    )


def machine() -> str:
    """Processor, cores, kernel, and how busy it is with everything."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    kernel = platform.release().partition("-")[0]
    return f"{model}, {os.cpu_count()} cores, Linux {kernel}, load average {os.getloadavg()[0]:.1f} at the start"


def write(section: str) -> None:
    """Put ``section`` between its markers in the document, which is created when it is missing."""
    text = DOCUMENT.read_text() if DOCUMENT.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{section}\n{END}{tail}")


def today() -> str:
    """The date, in UTC."""
    return dt.datetime.now(dt.timezone.utc).date().isoformat()
