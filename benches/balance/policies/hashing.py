"""Consistent hashing of the session key: ``consistent_hashing`` of smg, ``consistent_hash`` of vllm-router, nginx."""

from __future__ import annotations

import bisect
import hashlib
from typing import TYPE_CHECKING

from benches.balance.policies.base import Counting

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call

POINTS = 160
"""Per engine, as in ketama, and per unit of relative weight where weights differ."""


class ConsistentHash(Counting):
    """The next point of a ring. A lost engine's sessions move to its neighbours, and jump back when it returns."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        # The names of engines differ from run to run, and with them the ring.
        salt = rng.getrandbits(64)
        least = min(capacities)
        ring = [
            (_hash(f"{salt}/{replica}/{point}"), replica)
            for replica, capacity in enumerate(capacities)
            for point in range(round(POINTS * capacity / least))
        ]
        ring.sort()
        self._points = [point for point, _ in ring]
        self._owners = [replica for _, replica in ring]
        self._known: dict[str, int] = {}

    def choose(self, call: Call, now_s: float) -> int:
        """The owner of the next point whose engine lives."""
        del now_s
        start = self._known.get(call.session)
        if start is None:
            start = self._known[call.session] = bisect.bisect(self._points, _hash(call.session))
        for step in range(len(self._owners)):
            replica = self._owners[(start + step) % len(self._owners)]
            if replica in self.live:
                return replica
        raise RuntimeError("no replica is live")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
