"""Session-sticky policies of peers: they differ in what they compare when a session is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.balance.policies.base import Sticky

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call


class StickyRandom(Sticky):
    """Sessions at random, for ever: what stickiness does without any balance."""

    def place(self, call: Call, now_s: float) -> int:
        """Any."""
        del call, now_s
        return self.rng.choice(self.live)


class HaproxyStick(Sticky):
    """``balance leastconn`` with weights and a stick table: (open + 1) / weight, an idle engine first, ties in turn."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self._turn = [0] * len(capacities)
        self._turns = 0

    def place(self, call: Call, now_s: float) -> int:
        """The least loaded one."""
        del call, now_s
        replica = min(self.live, key=lambda replica: (self._load(replica), self._turn[replica]))
        self._turns += 1
        self._turn[replica] = self._turns
        return replica

    def _load(self, replica: int) -> float:
        count = self.open[replica]
        return (count + 1) / self.capacities[replica] if count else 0.0


class MinLoad(Sticky):
    """``manual`` with ``min_load`` of smg and sglang-router: fewest open requests, no capacities, ties at random.

    A lost engine's sessions move; smg keeps both places, and moves them back when the engine returns.
    """

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self._homes: dict[int, set[str]] = {}

    def place(self, call: Call, now_s: float) -> int:
        """The least loaded one."""
        del call, now_s
        least = min(self.open[replica] for replica in self.live)
        return self.rng.choice([replica for replica in self.live if self.open[replica] == least])

    def lost(self, replica: int) -> None:
        """Remember whose home it was."""
        self._homes[replica] = {session for session, pin in self.pins.items() if pin == replica}
        super().lost(replica)

    def back(self, replica: int) -> None:
        """They come home."""
        super().back(replica)
        for session in self._homes.pop(replica, ()):
            if session in self.pins:
                self.close(session)
                self.pins[session] = replica
                self.sessions[replica] += 1


class FewestSessions(Sticky):
    """``sticky_least_loaded`` of vllm-router: fewest sessions, no capacities; every session is reported as finished."""

    def place(self, call: Call, now_s: float) -> int:
        """The one with the fewest."""
        del call, now_s
        return min(self.live, key=lambda replica: (self.sessions[replica], replica))
