"""What a sender holds of its router, kept so that it can be presented to the next start of that router.

A router's state is soft: after a restart it knows nothing, and only the senders can say what runs. So a sender
remembers its open leases, and where its sessions were, under the *epoch* in which that was granted. An epoch is one
attachment to one start of a router. It ends the moment somebody learns that the router knows this sender no more; from
then on nothing can be added, so that what is presented is everything.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.lease_record import RouterLease

__all__ = ["Epoch", "Held", "Holdings"]

MAX_PINS = 10_000
"""Sessions whose place is remembered; the one that ran least lately makes room. A lost pin costs a prefill."""


@dataclass(frozen=True)
class Epoch:
    """One attachment to one start of a router.

    Attributes:
        number: Grows with every attachment.
        router: The incarnation of the router; ``None`` while the sender is known to none.
    """

    number: int
    router: str | None


@dataclass
class Held:
    """An open lease.

    Attributes:
        lease: As it was granted.
        id: Its name at the router now; another one after it was adopted.
        router: The start of the router that knows it.
        lost: Why no router knows it any more.
    """

    lease: RouterLease
    id: str
    router: str
    lost: str | None = None


class Holdings:
    """The open leases and the pins of one client, and its epoch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch = Epoch(0, None)
        self._held: dict[int, Held] = {}
        self._pins: dict[str, str] = {}

    def epoch(self) -> Epoch:
        """The epoch now."""
        with self._lock:
            return self._epoch

    def begin(self, router: str) -> None:
        """The sender is attached to this start of the router."""
        with self._lock:
            self._epoch = Epoch(self._epoch.number + 1, router)

    def end(self, epoch: Epoch) -> None:
        """The router knows the sender no more; nothing is added under ``epoch`` from now on. Idempotent."""
        with self._lock:
            if self._epoch == epoch:
                self._epoch = Epoch(epoch.number, None)

    def add(self, epoch: Epoch, number: int, lease: RouterLease) -> bool:
        """Keeps a lease that answers request ``number``; ``False`` when the router that granted it is gone."""
        with self._lock:
            if self._epoch != epoch or epoch.router is None:
                return False
            self._held[number] = Held(lease, lease.id, epoch.router)
            if lease.session is not None:
                self._pins.pop(lease.session, None)
                self._pins[lease.session] = lease.backend_id
                if len(self._pins) > MAX_PINS:
                    del self._pins[next(iter(self._pins))]
            return True

    def find(self, number: int) -> Held | None:
        """The open lease of request ``number``."""
        with self._lock:
            return self._held.get(number)

    def drop(self, number: int) -> None:
        """The lease of request ``number`` is open no more. Idempotent."""
        with self._lock:
            self._held.pop(number, None)

    def unpin(self, session: str) -> None:
        """The session is over. Idempotent."""
        with self._lock:
            self._pins.pop(session, None)

    def backends(self) -> set[str]:
        """Ids of the backends on which something is held."""
        with self._lock:
            return {held.lease.backend_id for held in self._held.values() if held.lost is None}

    def give_up(self, router: str, why: str) -> int:
        """What this very start of the router granted is lost: it knew it, and dropped it. How many leases that are."""
        with self._lock:
            lost = [held for held in self._held.values() if held.router == router and held.lost is None]
            for held in lost:
                held.lost = why
            return len(lost)

    def presented(self) -> dict[str, Any]:
        """What an attachment says of it: ``adopt`` and ``pins`` of the lease API."""
        with self._lock:
            adopt = [
                {
                    "seq": number,
                    "lease_id": held.id,
                    "backend": held.lease.backend_id,
                    "session": held.lease.session,
                    "weight_version": held.lease.weight_version,
                }
                for number, held in self._held.items()
                if held.lost is None
            ]
            pins = [{"session": session, "backend": backend} for session, backend in self._pins.items()]
            return {"adopt": adopt, "pins": pins}

    def take_in(self, answer: Mapping[str, Any]) -> tuple[int, int]:
        """What became of the leases that were presented: how many were adopted, and how many are lost."""
        lost = 0
        with self._lock:
            for verdict in answer["adopted"]:
                held = self._held.get(verdict["seq"])
                if held is None:
                    continue
                if "lease_id" in verdict:
                    held.id, held.router = verdict["lease_id"], answer["incarnation"]
                else:
                    error = verdict["error"]
                    held.lost = f"it did not adopt it ({error['code']}: {error['message']})"
                    lost += 1
        return len(answer["adopted"]) - lost, lost
