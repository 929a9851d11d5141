"""What an update is asked to do, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trimtab.errors import InvalidRequest
from trimtab_manager.weights.deadlines import UpdateDeadlines
from trimtab_manager.weights.drain import Running
from trimtab_manager.weights.source import Source

HIGHEST = 2**63 - 1
"""Of versions and epochs: what the router and JSON readers can hold."""

FlushPolicy = Literal["flush", "keep"]
"""What becomes of KV caches that the old weights computed: emptied and looked after, or kept on purpose."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One update.

    Attributes:
        id: Its id; whoever cancels it has to know it.
        source: Where the weights come from.
        version: What they are called, a number.
        running: What becomes of requests that run: ``abort`` or ``wait``.
        flush: ``flush`` or ``keep``.
        checksums: Whether the engines' checksums are compared with each other.
        epoch: A new count of versions; None: the current one.
        deadlines: Seconds per step.
    """

    id: str
    source: Source
    version: int
    running: Running
    flush: FlushPolicy = "flush"
    checksums: bool = False
    epoch: int | None = None
    deadlines: UpdateDeadlines = field(default_factory=UpdateDeadlines)

    def __post_init__(self) -> None:
        """Refuse what is no plan."""
        _check_count("version", self.version)
        if self.epoch is not None:
            _check_count("epoch", self.epoch)
        if self.flush not in ("flush", "keep"):
            raise InvalidRequest(f"flush must be 'flush' or 'keep', got {self.flush!r}")
        if self.running not in ("abort", "wait"):
            raise InvalidRequest(f"running must be 'abort' or 'wait', got {self.running!r}")


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= HIGHEST:  # a bool is no number
        raise InvalidRequest(f"{name} must be a whole number from 0 to {HIGHEST}, got {value!r}")
