"""What the FastAPI router knows: the routing state of trimtab's lease API in plain Python.

The same function, no more: sticky sessions per sender, least outstanding per capacity (then fewest sessions), request
keys with replay, settlements that repeat, and settled intervals that let both be forgotten. Written for speed within
the language: slots, tuples and dicts, one linear scan over the backends, no locks (one event loop runs it all).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field


class RefusalError(Exception):
    """A request that is refused: HTTP status, code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(slots=True, eq=False)
class Backend:
    """An engine and its load."""

    id: str
    capacity: float
    outstanding: int = 0
    sessions: int = 0


@dataclass(slots=True, eq=False)
class Sender:
    """A process that sends requests, and what is remembered of them."""

    incarnation: str
    owner: str
    pins: dict[str, Backend] = field(default_factory=dict)
    """Where each session runs."""
    requests: dict[int, Lease] = field(default_factory=dict)
    """By number, until the sender says that it is settled."""
    floor: int = -1
    """The highest number settled without a gap."""
    gaps: set[int] = field(default_factory=set)
    """Numbers settled above it."""


@dataclass(slots=True, eq=False)
class Lease:
    """A granted request."""

    id: str
    sender: Sender
    seq: int
    body: tuple[str | None, int | None]
    """What a repetition of the request has to say again: session and expected version."""
    backend: Backend
    sticky: bool
    outcome: str | None = None


class State:
    """One pool."""

    def __init__(self, backends: list[Backend]) -> None:
        self._backends = backends
        self._senders: dict[str, Sender] = {}
        self._leases: dict[str, Lease] = {}
        self._numbers = itertools.count(1)

    def attach(self, name: str, incarnation: str, owner: str) -> None:
        """Make a sender known; another incarnation replaces the one before."""
        known = self._senders.get(name)
        if known is not None and known.incarnation == incarnation:
            return
        if known is not None:
            for lease in known.requests.values():
                del self._leases[lease.id]
                lease.backend.outstanding -= lease.outcome is None
            for backend in known.pins.values():
                backend.sessions -= 1
        self._senders[name] = Sender(incarnation, owner)

    def acquire(
        self,
        name: str,
        incarnation: str,
        seq: int,
        *,
        session: str | None,
        expect_version: int | None,
        settled: list[tuple[int, int]],
    ) -> tuple[Lease, bool]:
        """Grant a lease, or repeat the one of the same key.

        Returns:
            The lease, and whether it was granted before.
        """
        sender = self._senders.get(name)
        if sender is None or sender.incarnation != incarnation:
            raise RefusalError(404, "unknown_sender", f"sender {name} is not attached")
        if settled:
            self._forget(sender, settled)
        body = (session, expect_version)
        known = sender.requests.get(seq)
        if known is not None:
            if known.body != body:
                raise RefusalError(409, "idempotency_conflict", f"request {seq} was sent with another body")
            if known.outcome is not None:
                raise RefusalError(409, "request_settled", f"request {seq} is settled")
            return known, True
        if seq <= sender.floor or seq in sender.gaps:
            raise RefusalError(409, "stale_request", f"request {seq} is settled")
        backend = sender.pins.get(session) if session is not None else None
        sticky = backend is not None
        if backend is None:
            backend = min(self._backends, key=_load)
            if session is not None:
                sender.pins[session] = backend
                backend.sessions += 1
        backend.outstanding += 1
        lease = Lease(f"{next(self._numbers):016x}", sender, seq, body, backend, sticky)
        sender.requests[seq] = lease
        self._leases[lease.id] = lease
        return lease, False

    def settle(self, lease_id: str, outcome: str) -> tuple[str, bool]:
        """End a lease.

        Returns:
            Its outcome, and whether it had ended before.
        """
        lease = self._leases.get(lease_id)
        if lease is None:
            raise RefusalError(404, "unknown_lease", f"lease {lease_id} is not open")
        if lease.outcome is not None:
            if lease.outcome != outcome:
                raise RefusalError(409, "outcome_conflict", f"lease {lease_id} was settled {lease.outcome}")
            return outcome, True
        lease.outcome = outcome
        lease.backend.outstanding -= 1
        return outcome, False

    def _forget(self, sender: Sender, settled: list[tuple[int, int]]) -> None:
        """Forget requests whose answers the sender needs no more; those still open stay."""
        for low, high in settled:
            for seq in range(max(low, sender.floor + 1), high + 1):
                lease = sender.requests.get(seq)
                if lease is not None:
                    if lease.outcome is None:
                        continue
                    del sender.requests[seq]
                    del self._leases[lease.id]
                sender.gaps.add(seq)
        while sender.floor + 1 in sender.gaps:
            sender.floor += 1
            sender.gaps.remove(sender.floor)


def _load(backend: Backend) -> tuple[float, float]:
    return (backend.outstanding + 1) / backend.capacity, (backend.sessions + 1) / backend.capacity
