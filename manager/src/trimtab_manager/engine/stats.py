"""What an engine's control knows of it, in one frozen object for people, metrics and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStatistics:
    """A snapshot.

    Attributes:
        id: The engine's id.
        generation: Number of its incarnation.
        state: Its state in one lower-case word.
        for_s: Seconds it has been in it.
        operation: What is being done with it; None when nothing is.
        paused: ``no``, ``maybe`` or ``yes``.
        pause_mode: Mode of that pause.
        released: Memory tags that are out.
        unsure: Memory tags of which nobody knows.
        reason: Why it is dead.
        quarantined: Whether its process may live all the same.
    """

    id: str
    generation: int
    state: str
    for_s: float
    operation: str | None
    paused: str
    pause_mode: str | None
    released: tuple[str, ...]
    unsure: tuple[str, ...]
    reason: str | None
    quarantined: bool
