"""What a well-behaved sender knows: its requests, its sessions, and which numbers are settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Operation = dict[str, Any]
"""One request of a batch, as it goes over the wire."""


@dataclass(slots=True, eq=False)
class Turn:
    """One request of a session, from its acquire to the answer to its settlement."""

    sender: Sender
    seq: int
    session: str
    lease: str | None = None
    """The lease in the present incarnation of the router."""
    backend: str | None = None
    outcome: str | None = None
    """How it ended; once that was sent, the router may know it."""
    is_over: bool = False
    """The router confirmed the outcome."""


@dataclass(slots=True, eq=False)
class Sender:
    """A process that sends requests."""

    name: str
    incarnation: str
    next_seq: int = 0
    turns: dict[int, Turn] = field(default_factory=dict)
    """Those that are not over, by number."""
    pins: dict[str, str] = field(default_factory=dict)
    """The backend of each session, once an answer told it."""
    floor: int = 0
    """All numbers below are settled."""
    above: set[int] = field(default_factory=set)
    """Numbers above it that are settled."""

    def begin(self, session: str) -> Turn:
        """A new request."""
        turn = self.turns[self.next_seq] = Turn(self, self.next_seq, session)
        self.next_seq += 1
        return turn

    def end(self, turn: Turn) -> None:
        """The router confirmed how a request ended."""
        turn.is_over = True
        del self.turns[turn.seq]
        self.above.add(turn.seq)
        while self.floor in self.above:
            self.above.remove(self.floor)
            self.floor += 1

    def settled(self) -> list[tuple[int, int]]:
        """All settled numbers, as intervals with both ends included."""
        intervals = [(0, self.floor - 1)] if self.floor else []
        for seq in sorted(self.above):
            if intervals and intervals[-1][1] == seq - 1:
                intervals[-1] = (intervals[-1][0], seq)
            else:
                intervals.append((seq, seq))
        return intervals

    def acquire(self, turn: Turn, *, tells: bool) -> Operation:
        """The acquire of a request; with what is settled, if it ``tells``."""
        body: Operation = {
            "sender": self.name,
            "incarnation": self.incarnation,
            "seq": turn.seq,
            "session": turn.session,
        }
        if tells:
            body["settled"] = self.settled()
        return {"acquire": body}

    @staticmethod
    def settle(turn: Turn, router: str) -> Operation:
        """The settlement of a request, meant for one incarnation of the router: another may use the lease id anew."""
        assert turn.outcome is not None
        body = {"lease_id": turn.lease, "outcome": turn.outcome, "output_tokens": 7, "expect_incarnation": router}
        return {"settle": body}

    def attachment(self) -> dict[str, Any]:
        """What it tells a router that starts: who it is, what it holds, and where its sessions are."""
        held = [
            {"seq": turn.seq, "lease_id": turn.lease, "backend": turn.backend, "session": turn.session}
            for turn in self.turns.values()
            if turn.lease is not None
        ]
        pins = [{"session": session, "backend": backend} for session, backend in self.pins.items()]
        identity = {"sender": self.name, "incarnation": self.incarnation, "owner": "soak"}
        return {**identity, "adopt": held, "pins": pins}
