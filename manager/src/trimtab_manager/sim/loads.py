"""Numbers of the scheduler: running totals, and the snapshot that ``/v1/loads`` serves."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab_manager.sim.kv import KvStatistics

REMEMBERED = 10_000
"""How many aborted request ids are remembered; older ones are forgotten."""


@dataclass(frozen=True, kw_only=True)
class LoadSnapshot:
    """One moment of the scheduler. ``timestamp`` is seconds since the epoch, ``throughput`` tokens per second."""

    timestamp: float
    running: int
    waiting: int
    waiting_tokens: int
    sequence_tokens: int
    kv: KvStatistics
    max_running: int
    throughput: float
    hit_rate: float


@dataclass
class Counters:
    """Totals since the start. Token counts are of the model's tokens, prompts counted once."""

    requests_finished: int = 0
    requests_aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    throughput: float = 0.0
    aborted: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that the prefix cache had."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def note_prompt(self, tokens: int, cached: int) -> None:
        """A prompt was prefilled."""
        self.prompt_tokens += tokens
        self.cached_tokens += cached

    def note_end(self, rid: str, *, aborted: bool) -> None:
        """An execution that reached the scheduler ended."""
        self.requests_finished += 1
        if aborted:
            self.requests_aborted += 1
            self.aborted.append(rid)

    def note_step(self, tokens: int, elapsed_s: float) -> None:
        """A step made ``tokens`` tokens in ``elapsed_s`` real seconds."""
        if elapsed_s > 0:
            self.throughput = 0.9 * self.throughput + 0.1 * tokens / elapsed_s
