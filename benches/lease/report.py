"""From rounds to a table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


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
    def kernel_us_per_pair(self) -> float:
        """CPU microseconds of the kernel for it."""
        return self.kernel_s / self.pairs * 1e6

    @property
    def cpu_us_per_pair(self) -> float:
        """CPU microseconds of both, for one acquire and its settlement."""
        return self.user_us_per_pair + self.kernel_us_per_pair


def ratios(samples: dict[str, list[Sample]]) -> list[float]:
    """How many times more pairs a core does with trimtab, round by round."""
    rounds = zip(samples["trimtab"], samples["FastAPI"], strict=True)
    return [peer.cpu_us_per_pair / ours.cpu_us_per_pair for ours, peer in rounds]


def table(samples: dict[str, dict[str, list[Sample]]]) -> str:
    """Medians over the rounds, in Markdown: one row per way."""
    cpu = "CPU µs per pair | its own code | the kernel"
    lines = [
        f"| way | trimtab: {cpu} | FastAPI: {cpu} | pairs per core, trimtab : FastAPI |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way, of in samples.items():
        cells = [way]
        for rounds in (of["trimtab"], of["FastAPI"]):
            parts = ([s.cpu_us_per_pair, s.user_us_per_pair, s.kernel_us_per_pair] for s in rounds)
            cells.extend(f"{statistics.median(part):.1f}" for part in zip(*parts, strict=True))
        times = ratios(of)
        cells.append(f"**{statistics.median(times):.1f}** ({min(times):.1f} to {max(times):.1f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def bounds(single: dict[str, list[Sample]], peak_mib: dict[str, float]) -> str:
    """What bounds the ratio of single calls, and memory."""
    rounds = list(zip(single["trimtab"], single["FastAPI"], strict=True))
    own = statistics.median(peer.user_us_per_pair / max(ours.user_us_per_pair, 1e-9) for ours, peer in rounds)
    bound = statistics.median(peer.cpu_us_per_pair / max(ours.kernel_us_per_pair, 1e-9) for ours, peer in rounds)
    memory = ", ".join(f"{name} {peak:.0f} MiB" for name, peak in peak_mib.items())
    return "\n".join(
        [
            f"In single calls over TCP trimtab's own code takes {own:.1f} times less CPU time than FastAPI's. The rest",
            "is the kernel's, for one receive and one send of each request: with that alone, and no code of ours",
            f"at all, the ratio would be {bound:.0f}. The larger a batch, the less of either is HTTP, and what is left",
            "is reading JSON, which is compiled code in both (pydantic, orjson), and routing.",
            "",
            f"Peak resident memory: {memory}.",
        ]
    )
