"""How long work takes: pure arithmetic, and the clock that turns it into waiting.

A prefill computes only what the prefix cache lacks: ``overhead + uncached / rate``. A decode step gives every running
request one token and costs ``step + (batch - 1) * per_request + kv_tokens * per_kv_token``, so a batch of eight is far
cheaper than eight batches of one, and long contexts slow it down, since each step reads all of them. That is the whole
shape a router can see: long uncached prompts delay everybody, full batches slow everybody a little, and a session that
stays on its engine pays for its new tokens only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab_manager.sim.config import SimConfig

LATE_S = 0.05
"""Behind by more than this, the clock gives up catching up: a stalled machine must not be followed by a burst."""


@dataclass(frozen=True)
class TimingModel:
    """Durations of the two kinds of work, in modelled seconds."""

    prefill_tokens_per_s: float
    decode_step_s: float
    decode_request_step_s: float
    step_overhead_s: float
    decode_kv_token_s: float = 0.0

    @classmethod
    def of(cls, config: SimConfig) -> TimingModel:
        """The timing that a configuration asks for."""
        return cls(
            prefill_tokens_per_s=config.prefill_tokens_per_s,
            decode_step_s=config.decode_step_s,
            decode_request_step_s=config.decode_request_step_s,
            step_overhead_s=config.step_overhead_s,
            decode_kv_token_s=config.decode_kv_token_s,
        )

    def prefill_s(self, uncached_tokens: int) -> float:
        """Time of one prefill batch that computes ``uncached_tokens`` in all."""
        return self.step_overhead_s + uncached_tokens / self.prefill_tokens_per_s

    def decode_s(self, batch: int, kv_tokens: int = 0) -> float:
        """Time of one decode step of ``batch`` running requests, whose contexts have ``kv_tokens`` in all."""
        attention_s = kv_tokens * self.decode_kv_token_s
        return self.decode_step_s + max(batch - 1, 0) * self.decode_request_step_s + attention_s


class Pacer:
    """Waits until modelled work would be done, without drift.

    Each step ends a fixed time after the *planned* end of the one before, so neither the timer's granularity (about a
    millisecond) nor the time that handlers take adds up over a generation.
    """

    def __init__(self, time_scale: float) -> None:
        self._scale = time_scale
        self._due: float | None = None

    def restart(self) -> None:
        """Forget the plan: the engine was idle."""
        self._due = None

    def delay(self, now: float, modelled_s: float, real_s: float = 0.0) -> float:
        """Plan the next step of ``modelled_s`` modelled plus ``real_s`` real seconds; how long to wait from ``now``."""
        if self._due is None or self._due < now - LATE_S:
            self._due = now
        self._due += modelled_s * self._scale + real_s
        return max(self._due - now, 0.0)

    async def work(self, modelled_s: float, real_s: float = 0.0) -> None:
        """Wait for the next step; always yields to other tasks once."""
        await asyncio.sleep(self.delay(asyncio.get_running_loop().time(), modelled_s, real_s))
