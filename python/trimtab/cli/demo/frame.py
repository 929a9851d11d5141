"""One moment of the demo, as data: what the live table and the plain lines both show."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.cli.demo.summary import coefficient_of_variation

__all__ = ["EngineRow", "Frame"]


@dataclass(frozen=True)
class EngineRow:
    """One engine at one moment.

    Attributes:
        engine: Its id.
        capacity: Its capacity in the router, and the number of requests it can run at once.
        outstanding: Leases open on it.
        sessions: Sessions pinned to it.
        output_tokens: Tokens it has generated.
        cached_share: Share of its prompt tokens found in its prefix cache, 0 to 1.
        state: Its health, or ``draining``.
    """

    engine: str
    capacity: float
    outstanding: int
    sessions: int
    output_tokens: int
    cached_share: float
    state: str

    @property
    def tokens_per_capacity(self) -> float:
        """Output tokens over capacity."""
        return self.output_tokens / self.capacity


@dataclass(frozen=True)
class Frame:
    """The whole demo at one moment; counts are the clients'.

    Attributes:
        elapsed_s: Since the first request.
        total_s: When the last session should have ended.
        admitting: Whether new sessions still start.
        rows: One per engine.
        sessions_live: Sessions under way.
        sessions_done: Sessions that ended.
        requests: Requests sent.
        errors: Turns that failed.
        moves: Answers from another engine than the session's answer before.
    """

    elapsed_s: float
    total_s: float
    admitting: bool
    rows: tuple[EngineRow, ...]
    sessions_live: int
    sessions_done: int
    requests: int
    errors: int
    moves: int

    @property
    def requests_per_s(self) -> float:
        """Requests per second so far."""
        return self.requests / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def mean_tokens_per_capacity(self) -> float:
        """Mean over the engines."""
        return sum(row.tokens_per_capacity for row in self.rows) / len(self.rows)

    @property
    def cv(self) -> float:
        """Coefficient of variation of output tokens per capacity."""
        return coefficient_of_variation([row.tokens_per_capacity for row in self.rows])
