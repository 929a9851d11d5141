"""How a sender makes itself known to a router, and known again when that router restarted or lost it.

After a restart the sender presents what it holds. The new start of the router adopts each lease whose backend and
version still fit, under a new id, and grants nothing on a pool that awaits a version until its controller has published
one. A lease that is not adopted is lost: nobody can say any more whether the weights changed under it.

A router that is the same as before and does not know the sender has lost it, because it was silent for too long. It
took the leases for ambiguous then, so they are not presented again: an execution must not have two ends.

Only one caller presents; the others wait. Were there two, the second could present a lease that the first one's caller
has settled in between, and the router would have to take it for lost.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from trimtab.errors import RouterRestarted, RouterUnreachable
from trimtab.holdings import Epoch, Holdings
from trimtab.sequence import Numbers, numbers_of
from trimtab.wire import Call, Pause, RetryPolicy, Steps, Target, exchange, pool_path

__all__ = ["Attachment"]

logger = logging.getLogger(__name__)


class Attachment:
    """A sender's place at a router. Thread-safe.

    Attributes:
        numbers: The numbers of its requests.
        holdings: What it holds, and in which epoch.
        ttl_s: How long the router lets it be silent.
        replaced: Why this client is over, if it is: another process acquires as this sender.
    """

    def __init__(self, target: Target, pool: str, sender: str, owner: str, policy: RetryPolicy) -> None:
        self.numbers: Numbers = numbers_of(sender)
        self.holdings = Holdings()
        self.ttl_s = 0.0
        self.replaced: str | None = None
        self._target = target
        self._pool = pool
        self._sender = sender
        self._owner = owner
        self._policy = policy
        self._place: str | None = None
        self._joining = threading.Lock()

    def attach(self) -> Steps[None]:
        """Makes the sender known for the first time; an earlier process of it is gone from now on."""
        self._enter((yield from self._introduce()))

    def leave(self) -> str | None:
        """The start of the router to say goodbye to; ``None`` when others of this process acquire as this sender."""
        place, self._place = self._place, None
        is_last = place is not None and self.numbers.leave(place)
        return self.holdings.epoch().router if is_last else None

    def known(self) -> Steps[Epoch]:
        """The epoch to make a call in; makes the sender known again when the last attempt failed."""
        epoch = self.holdings.epoch()
        if epoch.router is None:
            epoch = yield from self.rejoin(epoch)
        return epoch

    def rejoin(self, over: Epoch) -> Steps[Epoch]:
        """The epoch after ``over``, in which the router said that it does not know this sender.

        Raises:
            RouterRestarted: Another process acquires as this sender.
            RouterUnreachable: No answer within the retry horizon; the next call tries again.
            TrimtabError: The router refuses the sender.
        """
        deadline = time.monotonic() + self._policy.horizon_s
        attempt = 0
        while True:
            if self.replaced is not None:
                raise RouterRestarted(self.replaced)
            if self._joining.acquire(blocking=False):
                try:
                    if not self._is_after(over):
                        yield from self._present(over)
                finally:
                    self._joining.release()
            if self._is_after(over):
                return self.holdings.epoch()
            if time.monotonic() > deadline:
                raise RouterUnreachable(
                    f"the router at {self._target.url} restarted, and this sender could not attach to it within"
                    f" {self._policy.horizon_s:g} s"
                )
            yield Pause(self._policy.delay_s(attempt))
            attempt += 1

    def _is_after(self, over: Epoch) -> bool:
        now = self.holdings.epoch()
        return now.router is not None and now.number > over.number

    def _present(self, over: Epoch) -> Steps[None]:
        self.holdings.end(over)
        router = yield from self._look()
        forgotten = self.holdings.give_up(router, "it had lost this sender, which was silent for too long")
        try:
            answer = yield from self._introduce(expect_incarnation=router, **self.holdings.presented())
        except RouterRestarted:
            # Once more, since the look: the caller looks again.
            return
        adopted, lost = self.holdings.take_in(answer)
        logger.warning(
            "sender %s is attached again to the router at %s, which restarted or lost it: %d leases adopted, %d lost",
            self._sender,
            self._target.url,
            adopted,
            lost + forgotten,
        )
        self._enter(answer)

    def _look(self) -> Steps[str]:
        """The incarnation of the router, once the backends of what is held are registered with it.

        Backends are announced again after a restart, like senders; a lease on one that is not there yet would be lost.
        """
        deadline = time.monotonic() + self._policy.horizon_s
        attempt = 0
        while True:
            view = yield from exchange(Call("GET", pool_path(self._pool)), self._policy, time.monotonic)
            incarnations = [each["incarnation"] for each in view["senders"] if each["sender"] == self._sender]
            if any(other != self.numbers.incarnation for other in incarnations):
                self.replaced = (
                    f"another process acquires as sender {self._sender!r} at the router at {self._target.url}: this"
                    " one's leases and sessions are gone; open a new client under a name of its own"
                )
                raise RouterRestarted(self.replaced)
            missing = self.holdings.backends() - {backend["id"] for backend in view["backends"]}
            is_over = view["state"] in {"failed", "closed"}
            if not missing or is_over or time.monotonic() > deadline:
                router: str = view["incarnation"]
                return router
            yield Pause(self._policy.delay_s(attempt))
            attempt += 1

    def _introduce(self, **members: Any) -> Steps[dict[str, Any]]:
        body = {"sender": self._sender, "owner": self._owner, "incarnation": self.numbers.incarnation, **members}
        answer = yield from exchange(Call("POST", pool_path(self._pool, "senders"), body), self._policy, time.monotonic)
        return answer

    def _enter(self, answer: dict[str, Any]) -> None:
        if self._place is not None:
            self.numbers.leave(self._place)
        self._place = f"{answer['incarnation']}/{self._pool}"
        self.numbers.enter(self._place)
        self.ttl_s = answer["ttl_ms"] / 1000
        self.holdings.begin(answer["incarnation"])
