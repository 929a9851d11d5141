"""trimtab's own default, by its own code: a ``Pool`` of ``router_core`` in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trimtab._core import Pool
from trimtab.testing import VirtualClock

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from benches.balance.policies.base import Call
    from trimtab._core import Lease
    from trimtab.outcome import Outcome

_LOOK_S = 1.0
"""A pool looks once a second for what is due; so does its clock here."""

_DRAIN_S = 60.0


class RouterCore:
    """Leases of a real pool, with the pool's own knobs.

    Without ``forgets`` sessions that are over stay until their TTL, as in a gateway whose clients never say so.
    """

    def __init__(
        self,
        capacities: Sequence[float],
        rng: random.Random,
        *,
        load: Literal["outstanding", "plain", "sessions"] = "outstanding",
        spill: bool = True,
        rebind_on_publish: bool = False,
        ramp_s: float | None = None,
        forgets: bool = True,
    ) -> None:
        del rng  # it decides by itself
        self._clock = VirtualClock()
        self._pool = Pool(
            "balance",
            clock=self._clock,
            load=load,
            spill=spill,
            rebind_on_publish=rebind_on_publish,
            ramp_s=ramp_s,
        )
        self._forgets = forgets
        self._version = 0
        self._capacities = tuple(capacities)
        self._ids = [f"replica-{number}" for number in range(len(capacities))]
        self._numbers = {name: number for number, name in enumerate(self._ids)}
        self._leases: dict[Call, Lease] = {}
        for replica in range(len(capacities)):
            self.back(replica)

    def pick(self, call: Call, now_s: float) -> int:
        """Acquire a lease."""
        if now_s - self._clock.now_s > _LOOK_S:
            self._clock.advance(now_s - self._clock.now_s)
        lease = self._leases[call] = self._pool.acquire(call.session)
        return self._numbers[lease.backend_id]

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """Settle it; an answer says how long the context is now."""
        del replica
        outcome: Outcome = "completed" if output_tokens else "cancelled"
        context = call.prompt_tokens + output_tokens if output_tokens else None
        self._leases.pop(call).settle(outcome, output_tokens=output_tokens, context_tokens=context)

    def close(self, session: str) -> None:
        """End the session, where somebody says so."""
        if self._forgets:
            self._pool.close_session(session)

    def lost(self, replica: int) -> None:
        """Take the engine out of the pool."""
        self._pool.remove_backend(self._ids[replica])

    def back(self, replica: int) -> None:
        """Register it: a new incarnation, where there was one."""
        self._pool.add_backend(f"127.0.0.1:{replica + 1}", self._capacities[replica], id=self._ids[replica])

    def published(self) -> None:
        """An update of the pool, whole: nothing is outstanding, as the engines stopped everything."""
        self._version += 1
        update = f"update-{self._version}"
        self._pool.begin_update(update)
        self._pool.drain(update, timeout_s=_DRAIN_S)
        self._pool.end_server_pause(update)
        self._pool.publish(update, self._version)
