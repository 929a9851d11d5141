"""Pictures of the balance bench: ``python -m benches.balance.plot INPUT.json FOLDER``.

Runs in a venv with matplotlib. The input has ``loads`` (title to a list of samples of open calls per engine),
``sample_s``, and ``spread`` and ``makespan`` (policy to mean and half width, and whose it is).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

COLOURS = {"off": "#4b4b4b", "peer": "#7d8ca3", "trimtab": "#d1495b", "variant": "#edae49"}
Bars = dict[str, tuple[float, float, str]]


def draw_loads(loads: dict[str, list[list[int]]], sample_s: float, picture: Path) -> None:
    """Open calls of each engine over time, one panel per policy, the same scale."""
    figure, axes = plt.subplots(len(loads), 1, figsize=(9, 2.5 * len(loads)), layout="constrained", sharex=True)
    most = max(max(row) for samples in loads.values() for row in samples)
    for axis, (title, samples) in zip(axes, loads.items(), strict=True):
        times = [sample_s * (number + 1) / 60 for number in range(len(samples))]
        for engine in range(len(samples[0])):
            colour = plt.get_cmap("viridis")(engine / max(len(samples[0]) - 1, 1))
            # A mean over a minute: single samples of each engine would hide each other.
            axis.plot(times, _smooth([row[engine] for row in samples]), color=colour, linewidth=0.9, alpha=0.85)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_ylim(0, most)
        axis.set_ylabel("open calls")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("minutes")
    _save(figure, picture)


def draw_bars(panels: dict[str, Bars], label: str, picture: Path) -> None:
    """Horizontal bars with confidence intervals; panels share the policies."""
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.6 * len(panels) + 1.6, 5.2), layout="constrained", sharey=True
    )
    for axis, (title, bars) in zip(axes, panels.items(), strict=True):
        names = list(bars)
        axis.barh(
            names,
            [bars[name][0] for name in names],
            xerr=[bars[name][1] for name in names],
            color=[COLOURS[bars[name][2]] for name in names],
            error_kw={"linewidth": 0.8},
        )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.axvline(0, color="#4b4b4b", linewidth=0.6)
        # What trimtab could do and does not may be far worse than anything in use: cut, with its number.
        most = 1.15 * max(mean + half for mean, half, whose in bars.values() if whose != "variant")
        axis.set_xlim(right=most)
        for name, (mean, _, _) in bars.items():
            if mean > most:
                axis.text(most, name, f" {mean:.3g}", va="center", ha="right", color="white", fontsize=8)
    axes[0].invert_yaxis()
    _save(figure, picture)


def _smooth(values: list[int], width: int = 6) -> list[float]:
    means = []
    for end in range(1, len(values) + 1):
        window = values[max(end - width, 0) : end]
        means.append(sum(window) / len(window))
    return means


def _save(figure: Any, picture: Path) -> None:
    figure.savefig(picture, metadata={"Date": None})
    plt.close(figure)


def main(source: Path, folder: Path) -> None:
    """Draw all of them."""
    mpl.rcParams["svg.hashsalt"] = "trimtab"
    data = json.loads(source.read_text())
    draw_loads(data["loads"], data["sample_s"], folder / "balance-load.svg")
    draw_bars(data["spread"], "spread of output tokens", folder / "balance-spread.svg")
    draw_bars(data["makespan"], "makespan, % of routing off", folder / "balance-makespan.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
