"""The Prometheus text format, version 0.0.4.

Written here because a scrape of a thousand engines is ten thousand lines, and must not hold up the event loop, whose
interpreter it shares: labels are escaped once per engine, and a line is one string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from trimtab._core import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (*(f"{bound:g}" for bound in Histogram.BOUNDS_S), "+Inf")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Durations(Protocol):
    """What a histogram is written from; ``trimtab._core.Histogram`` is one."""

    @property
    def cumulative(self) -> list[int]:
        """How many are at most as long as each bound, and then how many there are."""

    @property
    def sum_s(self) -> float:
        """Their sum in seconds."""


def labels(**values: str) -> str:
    """Labels as they are written, such as ``pool="rollout/tiny",backend="e0"``."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items())


class Family:
    """The samples of one metric.

    Args:
        name: Its name; that of a counter gains ``_total``.
        kind: Its type.
        text: What it means, in one line.
    """

    __slots__ = ("_lines", "_name")

    def __init__(self, name: str, kind: Literal["gauge", "counter", "histogram"], text: str) -> None:
        self._name = f"{name}_total" if kind == "counter" else name
        self._lines = [f"# HELP {self._name} {text}", f"# TYPE {self._name} {kind}"]

    def add(self, value: float, labelled: str = "") -> None:
        """Add a sample with what :func:`labels` made."""
        self._lines.append(f"{self._name}{{{labelled}}} {value}" if labelled else f"{self._name} {value}")

    def add_histogram(self, durations: Durations, labelled: str) -> None:
        """Add the samples of a histogram."""
        cumulative = durations.cumulative
        buckets = zip(BOUNDS, cumulative, strict=True)
        self._lines += [f'{self._name}_bucket{{{labelled},le="{bound}"}} {count}' for bound, count in buckets]
        self._lines.append(f"{self._name}_sum{{{labelled}}} {durations.sum_s}")
        self._lines.append(f"{self._name}_count{{{labelled}}} {cumulative[-1]}")

    def __str__(self) -> str:
        return "\n".join(self._lines)


def exposition(families: Iterable[Family]) -> str:
    """The text of some families."""
    return "".join(f"{family}\n" for family in families)
