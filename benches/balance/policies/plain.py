"""Policies that remember nothing about sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.balance.policies.base import Counting

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call

POLL_S = 10.0
"""Default of smg's ``--load-monitor-interval``."""


class RoutingOff(Counting):
    """Routing off: each task id, with its samples, belongs to one engine in turn, whatever that has to do.

    So do trainers that give each rollout worker an engine of its own. Without its engine a task uses the next one.
    """

    def choose(self, call: Call, now_s: float) -> int:
        """By number."""
        del now_s
        replicas = len(self.capacities)
        return next(
            replica for replica in ((call.task + skip) % replicas for skip in range(replicas)) if replica in self.live
        )


class RoundRobin(Counting):
    """Each request goes to the next engine: ``round_robin`` of smg, sglang-router and vllm-router."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self._next = 0

    def choose(self, call: Call, now_s: float) -> int:
        """The next one."""
        del call, now_s
        self._next += 1
        return self.live[self._next % len(self.live)]


class Random(Counting):
    """``random`` of smg, sglang-router and vllm-router."""

    def choose(self, call: Call, now_s: float) -> int:
        """Any."""
        del call, now_s
        return self.rng.choice(self.live)


class PowerOfTwo(Counting):
    """The one of two random engines with fewer open requests: ``power_of_two`` of sglang-router and vllm-router."""

    def choose(self, call: Call, now_s: float) -> int:
        """The better of two."""
        del call, now_s
        if len(self.live) == 1:
            return self.live[0]
        first, second = self.rng.sample(self.live, 2)
        return first if self.open[first] <= self.open[second] else second


class PolledPowerOfTwo(Counting):
    """``power_of_two`` of smg: the one of two random engines with fewer tokens in use when it was last asked.

    It asks every ten seconds (``--load-monitor-interval``), and meanwhile nothing that it sends counts.
    """

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self._tokens = [0] * len(capacities)
        self._polled = list(self._tokens)
        self._polled_s = 0.0

    def choose(self, call: Call, now_s: float) -> int:
        """The better of two, as far as it knows."""
        if now_s - self._polled_s >= POLL_S:
            self._polled, self._polled_s = list(self._tokens), now_s
        if len(self.live) == 1:
            replica = self.live[0]
        else:
            first, second = self.rng.sample(self.live, 2)
            replica = first if self._polled[first] <= self._polled[second] else second
        self._tokens[replica] += call.prompt_tokens
        return replica

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """Its tokens are free."""
        super().settle(call, replica, output_tokens)
        self._tokens[replica] -= call.prompt_tokens


class LeastConnections(Counting):
    """Fewest open requests per weight, without sessions: ``least_conn`` of nginx.

    nginx compares connections / weight before the new one, and takes ties in turn by weight; here the ties are random.
    """

    def choose(self, call: Call, now_s: float) -> int:
        """The least loaded one."""
        del call, now_s
        loads = [(self.open[replica] / self.capacities[replica], replica) for replica in self.live]
        least = min(loads)[0]
        return self.rng.choice([replica for load, replica in loads if load == least])
