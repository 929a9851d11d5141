"""What trimtab's default could be instead: the selection of ``router_core``, with what the pool cannot be set to.

``Spill()`` without arguments chooses as ``router_core`` does, and ``Selection()`` as it does without spill; a test
holds them to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.balance.policies.base import Sticky

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call

_MINUTE_S = 60.0


class Selection(Sticky):
    """Least ``load / capacity``, then least ``(sessions + 1) / capacity``, then least recently chosen.

    ``load`` is ``open + after + idle_weight * idle sessions``.
    """

    def __init__(
        self,
        capacities: Sequence[float],
        rng: random.Random,
        *,
        idle_weight: float = 0.0,
        after: int = 1,
    ) -> None:
        super().__init__(capacities, rng)
        self._idle_weight = idle_weight
        self._after = after
        self._recency = [0] * len(capacities)
        self._grants = 0

    def choose(self, call: Call, now_s: float) -> int:
        """As ``Sticky``; every grant counts as a choice."""
        replica = super().choose(call, now_s)
        self._grants += 1
        self._recency[replica] = self._grants
        return replica

    def place(self, call: Call, now_s: float) -> int:
        """The least loaded one."""
        del now_s
        return min(self.live, key=lambda replica: self.score(call, replica))

    def score(self, call: Call, replica: int) -> tuple[float, float, int]:
        """Smaller is better."""
        capacity = self.capacities[replica]
        return (
            self.load(call, replica) / capacity,
            (self.sessions[replica] + 1) / capacity,
            self._recency[replica],
        )

    def load(self, call: Call, replica: int) -> float:
        """What is there, and one more."""
        del call
        # A session whose call is open is not idle; each session has at most one.
        idle = self.sessions[replica] - self.open[replica]
        return self.open[replica] + self._after + self._idle_weight * max(idle, 0)

    def back(self, replica: int) -> None:
        """A new incarnation was never chosen."""
        super().back(replica)
        self._recency[replica] = 0


class TokenLoad(Selection):
    """Load in tokens: the contexts of the sessions on an engine, as far as the router saw their turns.

    ``idle_weight`` is what the context of an idle session counts, of what one of an open call does.
    """

    def __init__(self, capacities: Sequence[float], rng: random.Random, *, idle_weight: float = 1.0) -> None:
        super().__init__(capacities, rng, idle_weight=idle_weight)
        self._contexts: dict[str, int] = {}
        self._open_tokens = [0.0] * len(capacities)
        self._idle_tokens = [0.0] * len(capacities)

    def choose(self, call: Call, now_s: float) -> int:
        """Its context is busy now."""
        replica = super().choose(call, now_s)
        self._idle_tokens[replica] -= self._contexts.get(call.session, 0)
        self._contexts[call.session] = call.prompt_tokens
        self._open_tokens[replica] += call.prompt_tokens
        return replica

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """It is idle now, unless it moved away meanwhile."""
        super().settle(call, replica, output_tokens)
        self._open_tokens[replica] -= call.prompt_tokens
        if self.pins.get(call.session) == replica:
            self._contexts[call.session] = call.prompt_tokens + output_tokens
            self._idle_tokens[replica] += call.prompt_tokens + output_tokens
        else:
            self._contexts.pop(call.session, None)

    def unpin_session(self, session: str) -> None:
        """Its context is of no use there any more."""
        replica = self.pins.get(session)
        if replica is not None:
            self._idle_tokens[replica] -= self._contexts.pop(session, 0)
        super().unpin_session(session)

    def load(self, call: Call, replica: int) -> float:
        """Tokens there, and those of the call."""
        return self._open_tokens[replica] + self._idle_weight * self._idle_tokens[replica] + call.prompt_tokens


class TokensServed(Selection):
    """The engine that has produced the fewest output tokens per capacity so far; ties as the default."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self._served = [0] * len(capacities)

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """Count them."""
        super().settle(call, replica, output_tokens)
        self._served[replica] += output_tokens

    def load(self, call: Call, replica: int) -> float:
        """What it made."""
        del call
        return self._served[replica]


class Spill(Selection):
    """An idle session may leave a crowded engine, as ``router_core``'s ``Spill`` does it.

    It moves when the load of its engine is over ``ratio`` times that of the best one, at least ``margin`` more calls
    are open there, its context has at most ``max_context_tokens``, and fewer than ``per_minute`` have moved so lately.
    """

    def __init__(
        self,
        capacities: Sequence[float],
        rng: random.Random,
        *,
        idle_weight: float = 0.0,
        ratio: float = 2.0,
        margin: int = 3,
        max_context_tokens: int = 65_536,
        per_minute: int = 60,
    ) -> None:
        super().__init__(capacities, rng, idle_weight=idle_weight)
        self._ratio = ratio
        self._margin = margin
        self._max_context = max_context_tokens
        self._per_minute = per_minute
        self._minute_s, self._moved = 0.0, 0
        self._contexts: dict[str, int] = {}
        """Of each session, as its last answer left it; one that has none yet stays."""

    def choose(self, call: Call, now_s: float) -> int:
        """Move first, where it pays."""
        home = self.pins.get(call.session)
        # Nearly every turn ends with the first comparison, which needs no look at the best one.
        if (
            home is not None
            and self.open[home] - min(self.open[replica] for replica in self.live) >= self._margin
            and self._contexts.get(call.session, self._max_context + 1) <= self._max_context
            and self._crowded(home, self.place(call, now_s), call)
            and self._may_move(now_s)
        ):
            self._moved += 1
            self.unpin_session(call.session)
        return super().choose(call, now_s)

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """An answer says how long the context is now."""
        super().settle(call, replica, output_tokens)
        if output_tokens:
            self._contexts[call.session] = call.prompt_tokens + output_tokens

    def close(self, session: str) -> None:
        """Forget it."""
        super().close(session)
        self._contexts.pop(session, None)

    def _crowded(self, home: int, best: int, call: Call) -> bool:
        here = self.load(call, home) / self.capacities[home]
        there = self.load(call, best) / self.capacities[best]
        return here > self._ratio * there and self.open[home] - self.open[best] >= self._margin

    def _may_move(self, now_s: float) -> bool:
        if now_s - self._minute_s >= _MINUTE_S:
            self._minute_s, self._moved = now_s, 0
        return self._moved < self._per_minute


class RandomTies(Spill):
    """The default, but where loads are equal chance decides, not the sessions and the last grant."""

    def score(self, call: Call, replica: int) -> tuple[float, float, int]:
        """Smaller is better."""
        return self.load(call, replica) / self.capacities[replica], self.rng.random(), 0
