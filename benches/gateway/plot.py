"""CPU per request of every router, as a picture: ``python -m benches.gateway.plot RESULT.json PICTURE.svg``.

Runs in the venv of the peers, which has matplotlib; the input is ``{panel: {router: microseconds}}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt


def draw(panels: dict[str, dict[str, float]], picture: Path) -> None:
    """Bars of each panel on a logarithmic scale of its own."""
    mpl.rcParams["svg.hashsalt"] = "trimtab"
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), layout="constrained")
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        names = list(values)
        colours = ["#d1495b" if name == "trimtab" else "#7d8ca3" for name in names]
        bars = axis.barh(names, list(values.values()), color=colours)
        axis.bar_label(bars, fmt="{:.0f}", padding=3)
        axis.set_xscale("log")
        axis.set_xlim(right=max(values.values()) * 3)
        axis.invert_yaxis()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("CPU µs")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
