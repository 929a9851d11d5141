"""The default of sglang-router and of smg: who knows most of the prompt, unless loads differ a lot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benches.balance.policies.base import Counting

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call

CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5
"""The defaults of ``--cache-threshold``, ``--balance-abs-threshold`` and ``--balance-rel-threshold``."""
SWING_DEVIATIONS = 2.0
SWING_LEAST = 4.0
"""What smg caps the absolute threshold at: two standard deviations of a count with this mean, at least four."""


class CacheAware(Counting):
    """What was sent where is remembered, as by the routers' prefix trees; sessions are found by their prompts alone.

    When the most loaded engine has over ``balance_abs`` more open requests than the least loaded one, and over
    ``balance_rel`` times as many, the least loaded one takes the call. Otherwise the one with the longest known prefix
    does, if that is more than a threshold of the prompt, and else the least loaded one.
    """

    def __init__(
        self,
        capacities: Sequence[float],
        rng: random.Random,
        *,
        balance_abs: int = BALANCE_ABS,
        balance_rel: float = BALANCE_REL,
    ) -> None:
        super().__init__(capacities, rng)
        self._abs = balance_abs
        self._rel = balance_rel
        self._sessions: dict[str, dict[int, int]] = {}
        self._tasks: dict[int, set[int]] = {}
        self._shared: set[int] = set()

    def choose(self, call: Call, now_s: float) -> int:
        """By prefix or by load."""
        del now_s
        known, replica = self._longest(call)
        if known <= CACHE_THRESHOLD * call.prompt_tokens or self.crowded(replica):
            replica = self._least()
        self._sessions.setdefault(call.session, {})[replica] = call.prompt_tokens
        self._tasks.setdefault(call.task, set()).add(replica)
        self._shared.add(replica)
        return replica

    def crowded(self, replica: int) -> bool:
        """Whether affinity to an engine is given up for balance; in this rule whichever it is."""
        del replica
        loads = [self.open[live] for live in self.live]
        most, least = max(loads), min(loads)
        return most - least > self._abs and most > self._rel * least

    def _least(self) -> int:
        least = min(self.open[replica] for replica in self.live)
        return self.rng.choice([replica for replica in self.live if self.open[replica] == least])

    def _longest(self, call: Call) -> tuple[int, int]:
        """How much of the prompt is known where most is, and where; ties by load."""
        own = self._sessions.get(call.session)
        if own:
            return max((tokens, replica) for replica, tokens in own.items())
        shared = call.shared_tokens
        for known, tokens in ((self._tasks.get(call.task), shared + call.task_tokens), (self._shared, shared)):
            if known:
                return tokens, min(known, key=lambda replica: (self.open[replica], replica))
        return 0, -1

    def close(self, session: str) -> None:
        """Its prompts are never seen again."""
        self._sessions.pop(session, None)

    def lost(self, replica: int) -> None:
        """A removed engine leaves the tree."""
        super().lost(replica)
        for own in self._sessions.values():
            own.pop(replica, None)
        for task in self._tasks.values():
            task.discard(replica)
        self._shared.discard(replica)


class CacheAwareSmg(CacheAware):
    """smg 1.13's, by its own description of ``--balance-abs-threshold``.

    A call leaves an engine that knows its prompt when that one has more open requests than the mean by the relative
    threshold, and by the absolute one or the natural swing of such a count, whichever is less.
    """

    def crowded(self, replica: int) -> bool:
        """Whether the engine has more than its share."""
        mean = sum(self.open[live] for live in self.live) / len(self.live)
        margin = min(self._abs, max(SWING_DEVIATIONS * math.sqrt(mean), SWING_LEAST))
        return self.open[replica] > mean + margin and self.open[replica] > self._rel * mean
