"""Seeded traffic with every fault a network has, and a check of every answer.

Requests go in batches. Any of them may be sent twice in its batch, or once more much later; the answer to a batch may
be lost after it was carried out, the connection may be cut while it is, and the router may lose everything at any
time. What was not answered is sent again, with the same key, until it is.
"""

from __future__ import annotations

import collections
import heapq
import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.router.soak.sender import Operation, Sender, Turn

if TYPE_CHECKING:
    from tests.router.soak.wire import Router

SENDERS = 8
SESSIONS = 64
"""Live sessions of each sender."""
OPEN = 384
"""Requests open at a time at most."""
BATCH = 192
OUTCOMES = ("completed", "completed", "completed", "aborted", "cancelled", "rejected")
"""Ends that say nothing bad about an engine: this is about leases, not about health."""
LATE = {"request_settled", "stale_request"}
"""What an acquire may be told that comes after its settlement."""


@dataclass(slots=True)
class Sent:
    """One request of a batch, and what it is about."""

    operation: Operation
    turn: Turn
    was_settled: bool
    """The settlement was sent before this: the router may know it."""
    was_over: bool
    """It was confirmed even."""


class Traffic:
    """Several senders of one router, in one thread.

    Args:
        router: Where to.
        seed: Same seed, same traffic, up to the timing of cut connections.
    """

    def __init__(self, router: Router, seed: int) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._router = router
        self._random = random.Random(seed)
        self._senders = [Sender(f"soak-{number}", f"{seed}") for number in range(SENDERS)]
        self._names = itertools.count()
        self._sessions = [[self._session() for _ in range(SESSIONS)] for _ in self._senders]
        self._open: list[Turn] = []
        self._late: list[tuple[int, int, Turn, Operation]] = []
        self._step = 0
        self._incarnation = ""
        self._granted = 0
        self._ended = 0

    def run(self, pairs: int, restarts: int) -> None:
        """Run ``pairs`` requests to their ends, with ``restarts`` of the router on the way; then leave."""
        begun = self.counts["begun"]
        due = [begun + pairs * (number + 1) // (restarts + 1) for number in range(restarts)]
        self._attach()
        while self.counts["begun"] < begun + pairs or self._open:
            batch = self._batch(begun + pairs - self.counts["begun"])
            if due and self.counts["begun"] >= due[0]:
                due.pop(0)
                self._restart(batch)
            else:
                self._exchange(batch)
            self._step += 1
        assert not due
        self._leave()

    def _session(self) -> str:
        return f"traj-{next(self._names)}"

    def _batch(self, budget: int) -> list[Sent]:
        room = min(budget, OPEN - len(self._open), BATCH // 2)
        for _ in range(max(room, 0)):
            number = self._random.randrange(SENDERS)
            sender = self._senders[number]
            self._open.append(sender.begin(self._random.choice(self._sessions[number])))
            self.counts["begun"] += 1
        batch: list[Sent] = []
        tells = set(self._senders)
        for turn in self._random.sample(self._open, min(BATCH, len(self._open))):
            if turn.lease is None:
                operation = turn.sender.acquire(turn, tells=turn.sender in tells)
                tells.discard(turn.sender)
                self._add(batch, turn, operation)
            else:
                was_settled = turn.outcome is not None
                turn.outcome = turn.outcome or self._random.choice(OUTCOMES)
                self._add(batch, turn, turn.sender.settle(turn, self._incarnation), was_settled=was_settled)
        while self._late and self._late[0][0] <= self._step:
            _, _, turn, operation = heapq.heappop(self._late)
            self.counts["late"] += 1
            batch.append(Sent(operation, turn, turn.outcome is not None, turn.is_over))
        return batch

    def _add(self, batch: list[Sent], turn: Turn, operation: Operation, *, was_settled: bool = False) -> None:
        batch.append(Sent(operation, turn, was_settled, was_over=False))
        fate = self._random.random()
        if fate < 0.05:
            self.counts["doubled"] += 1
            batch.append(Sent(operation, turn, "settle" in operation, was_over=False))
        elif fate < 0.10:
            due = self._step + self._random.randrange(1, 200)
            heapq.heappush(self._late, (due, next(self._names), turn, operation))

    def _exchange(self, batch: list[Sent]) -> None:
        fate = self._random.random()
        requests = [sent.operation for sent in batch]
        if fate < 0.02:
            self.counts["cut"] += 1
            self._router.post_and_hang_up("/leases:batch", requests=requests)
            return
        answer = self._router.post("/leases:batch", requests=requests)
        assert answer["incarnation"] == self._incarnation
        if fate < 0.06:
            self.counts["reply lost"] += 1
            return
        for sent, result in zip(batch, answer["results"], strict=True):
            self._check(sent, result["status"], result["body"])
        self._open = [turn for turn in self._open if not turn.is_over]
        if self._random.random() < 0.5:
            self._change_session()

    def _check(self, sent: Sent, status: int, body: dict[str, Any]) -> None:
        if "acquire" in sent.operation:
            self._check_acquire(sent, status, body)
        else:
            self._check_settle(sent, status, body)

    def _check_acquire(self, sent: Sent, status: int, body: dict[str, Any]) -> None:
        turn = sent.turn
        if status != 200:
            assert turn.outcome is not None, ("refused before its settlement", sent, body)
            assert body["error"]["code"] in LATE, (sent, body)
            self.counts[body["error"]["code"]] += 1
            return
        assert not sent.was_over, ("granted after its end", sent, body)
        if turn.lease is not None:
            assert (body["lease_id"], body["backend"]) == (turn.lease, turn.backend), ("granted twice", sent, body)
            assert body["replayed"], (sent, body)
            self.counts["replayed"] += 1
            return
        pinned = turn.sender.pins.setdefault(turn.session, body["backend"])
        assert body["backend"] == pinned, ("not sticky", sent, body)
        turn.lease, turn.backend = body["lease_id"], body["backend"]
        self._granted += 1

    def _check_settle(self, sent: Sent, status: int, body: dict[str, Any]) -> None:
        turn = sent.turn
        if status != 200:
            # It comes once more: its lease was one of an earlier start, or is forgotten.
            is_stale = sent.operation["settle"]["expect_incarnation"] != self._incarnation
            code = "router_restarted" if is_stale else "unknown_lease"
            assert is_stale or sent.was_over, ("an open lease was unknown", sent, body)
            assert body["error"]["code"] == code, (sent, body)
            self.counts[code] += 1
            return
        assert body["outcome"] == turn.outcome, (sent, body)
        if body["already"]:
            assert sent.was_settled, ("settled by somebody else", sent, body)
            self.counts["settled already"] += 1
        if not turn.is_over:
            turn.sender.end(turn)
            self._ended += 1
            self.counts["ended"] += 1

    def _change_session(self) -> None:
        """Close a session without an open request, and open another: a name is not used again."""
        number = self._random.randrange(SENDERS)
        sender, at = self._senders[number], self._random.randrange(SESSIONS)
        session = self._sessions[number][at]
        if any(turn.session == session for turn in sender.turns.values()):
            return
        closed = self._router.post(f"/sessions/{session}/close", sender=sender.name)
        assert closed["open_leases"] == 0
        sender.pins.pop(session, None)
        self._sessions[number][at] = self._session()
        self.counts["sessions closed"] += 1

    def _restart(self, batch: list[Sent]) -> None:
        """Lose the router while it works on a batch."""
        self.counts["restart"] += 1
        self._router.post_and_hang_up("/leases:batch", requests=[sent.operation for sent in batch])
        self._router.restart()
        self._attach()

    def _attach(self) -> None:
        """Tell the router who is there, what they hold and what is settled."""
        self._granted = self._ended = 0
        for sender in self._senders:
            attached = self._router.post("/senders", **sender.attachment())
            assert not attached["already"]
            for adopted in attached["adopted"]:
                sender.turns[adopted["seq"]].lease = adopted["lease_id"]
                self.counts["adopted"] += 1
            beat = self._router.post(
                f"/senders/{sender.name}/heartbeat", incarnation=sender.incarnation, settled=sender.settled()
            )
            assert beat["held"] == len(attached["adopted"])
            self._incarnation = attached["incarnation"]

    def _leave(self) -> None:
        """Settle accounts: the router counted what happened, once, and nothing is left of it."""
        for number, sender in enumerate(self._senders):
            self._router.post(
                f"/senders/{sender.name}/heartbeat", incarnation=sender.incarnation, settled=sender.settled()
            )
            for session in self._sessions[number]:
                self._router.post(f"/sessions/{session}/close", sender=sender.name)
            sender.pins.clear()
        pool = self._pool()
        left = {name: pool["counts"][name] for name in ("outstanding", "leases", "sessions", "waiters", "tombstones")}
        assert not any(left.values()), left
        assert sum(pool["counts"]["outcomes"].values()) == self._ended
        assert sum(pool["counts"]["picks"].values()) == self._granted
        assert all(backend["outstanding"] == backend["sessions"] == 0 for backend in pool["backends"])
        for sender in self._senders:
            self._router.call("DELETE", f"/senders/{sender.name}?incarnation={sender.incarnation}")
        assert self._pool()["senders"] == []

    def _pool(self) -> dict[str, Any]:
        return self._router.call("GET", "")
