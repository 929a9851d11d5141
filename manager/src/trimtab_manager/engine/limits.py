"""How long the control of an engine waits, and how often it asks again."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RetryPolicy:
    """Bounded repetition with growing gaps.

    Attributes:
        attempts: Most times a call is sent.
        first_gap_s: Wait before the second time.
        growth: Each further wait is so many times the one before.
        longest_gap_s: No wait is longer.
    """

    attempts: int = 5
    first_gap_s: float = 0.2
    growth: float = 2.0
    longest_gap_s: float = 5.0

    def gap_s(self, attempt: int) -> float:
        """The wait after the ``attempt``-th time, counted from 1."""
        return float(min(self.longest_gap_s, self.first_gap_s * self.growth ** (attempt - 1)))


@dataclass(frozen=True)
class Limits:
    """Deadlines and intervals of one engine.

    Attributes:
        control_timeout_s: Deadline of one control call that has none of its own.
        pause_timeout_s: Of a pause: one of mode ``abort`` waits for what it aborts.
        memory_timeout_s: Of a release or resume of memory.
        drain_deadline_s: Of a drain whose caller names none.
        flush_deadline_s: How long a refused flush is repeated.
        ready_deadline_s: From the last call of an activation until the engine must be well.
        fresh_s: A load that is older proves nothing. An idle SGLang publishes every second at least.
        poll_s: Between two looks at the load while something runs.
        pulse_s: How long leases may be open on a paused, idle engine before it is let go for a moment: their requests
            wait inside it, at its pause gate, where no abort reaches them.
        retry: Of calls that fail in passing.
    """

    control_timeout_s: float = 30.0
    pause_timeout_s: float = 60.0
    memory_timeout_s: float = 120.0
    drain_deadline_s: float = 600.0
    flush_deadline_s: float = 60.0
    ready_deadline_s: float = 60.0
    fresh_s: float = 2.0
    poll_s: float = 0.1
    pulse_s: float = 1.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
