"""Whether a router has the function that is measured: checked on each of them before anything is timed."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = "/v1/router/pools/rollout/tiny"


class ParityError(Exception):
    """A router does something else than is measured."""


class Caller:
    """One sender of one router."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.key = {"sender": "parity", "incarnation": str(time.time_ns())}

    def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        self._connection.request("POST", POOL + path, json.dumps(body), {"content-type": "application/json"})
        with self._connection.getresponse() as response:
            answer = json.load(response)
        return response.status, answer

    def attach(self) -> int:
        """Make the sender known."""
        return self.post("/senders", owner="bench", **self.key)[0]

    def acquire(self, seq: int, session: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Ask for a lease."""
        return self.post("/leases", seq=seq, session=session, **self.key, **more)

    def settle(self, lease: str, outcome: str = "completed") -> tuple[int, dict[str, Any]]:
        """End a lease."""
        return self.post(f"/leases/{lease}/settle", outcome=outcome)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def check(name: str, port: int, backends: int) -> None:
    """Go through the calls.

    Raises:
        ParityError: the router called ``name`` fails; the message says in what.
    """
    caller = Caller(port)

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            raise ParityError(f"{name}: {what}: {found!r}, not {expected!r}")

    expect("attach", caller.attach(), 200)
    granted = [caller.acquire(seq, f"s-{seq}")[1] for seq in range(backends)]
    expect("new sessions spread", len({lease["backend"] for lease in granted}), backends)
    first = granted[0]
    status, again = caller.acquire(0, "s-0")
    expect("a repeated acquire", (status, again["lease_id"], again["replayed"]), (200, first["lease_id"], True))
    expect("the same key, another body", caller.acquire(0, "other")[0], 409)
    for lease in granted:
        status, ended = caller.settle(lease["lease_id"])
        expect("a settlement", (status, ended["outcome"], ended["already"]), (200, "completed", False))
    expect("a repeated settlement", caller.settle(first["lease_id"])[1]["already"], True)
    expect("another outcome", caller.settle(first["lease_id"], "failed")[0], 409)
    status, turn = caller.acquire(backends, "s-0", settled=[[0, backends - 1]])
    expect("the next turn", (turn["backend"], turn["sticky"]), (first["backend"], True))
    expect("a settled request comes late", caller.acquire(0, "s-0")[0], 409)
    expect("its lease is forgotten", caller.settle(first["lease_id"])[0], 404)
    expect("an unknown member", caller.acquire(backends + 1, "s-0", surprise=1)[0], 422)
    check_batch(caller, expect, turn["lease_id"], backends + 1)
    caller.close()


def check_batch(caller: Caller, expect: Callable[[str, object, object], None], lease: str, seq: int) -> None:
    """The same calls in one message: each with an answer of its own, and again with the same."""
    batch = [
        {"settle": {"lease_id": lease, "outcome": "completed"}},
        {"acquire": caller.key | {"seq": seq, "session": "s-0"}},
        {"settle": {"lease_id": lease, "outcome": "failed"}},
        {"settle": {"lease_id": "ffffffffffffffff", "outcome": "completed"}},
        {"acquire": caller.key | {"seq": 0, "session": "s-0"}},
    ]
    for again in (False, True):
        status, answer = caller.post("/leases:batch", requests=batch)
        results = answer["results"]
        statuses = [result["status"] for result in results]
        expect("a batch", (status, statuses), (200, [200, 200, 409, 404, 409]))
        ended, turn = results[0]["body"], results[1]["body"]
        expect("a settlement in a batch", (ended["outcome"], ended["already"]), ("completed", again))
        expect("an acquire in a batch", (turn["sticky"], turn["replayed"]), (True, again))
    expect("the end of its lease", caller.settle(turn["lease_id"])[0], 200)
    expect("a batch with an unknown member", caller.post("/leases:batch", requests=[{"surprise": 1}])[0], 422)
