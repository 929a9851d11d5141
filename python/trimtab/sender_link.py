"""A sender of this process and its router: what both clients do, whether they are coroutines or threads.

Three things must hold whatever is interrupted or lost on the way. A number is never used for two requests. An acquire
whose answer nobody waits for any more leaves no lease behind: it may have been granted when its caller was cancelled,
and a lease that nobody knows of would block every drain. And a settlement arrives, though its caller was cancelled
while sending it. So what a caller leaves behind is given to the thread that also sends the signs of life, which carries
it through.

When a router has restarted, whichever call learns of it first makes the sender known again (see ``attachment``), and
every call goes to the new start. An acquire keeps its number there: what the old start may have granted for it was told
to nobody, so nothing was run; and as each call names the start it is meant for, none can be taken for another's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trimtab.attachment import Attachment
from trimtab.classification import classify
from trimtab.errors import (
    AtCapacity,
    Fenced,
    InvalidRequest,
    NoEligibleBackend,
    NotServing,
    PoolClosed,
    PoolFailed,
    RouterRestarted,
    RouterUnreachable,
    TrimtabError,
    UnknownSender,
    VersionNotAcked,
)
from trimtab.heartbeat import Heartbeat
from trimtab.holdings import Epoch
from trimtab.lease_record import RouterLease
from trimtab.sequence import incarnation
from trimtab.transport import SyncTransport
from trimtab.wire import (
    MAX_WAIT_S,
    Batched,
    Call,
    Pause,
    RetryPolicy,
    Steps,
    Target,
    exchange,
    pool_path,
    without_nones,
)

__all__ = ["AcquireRequest", "SenderLink"]

logger = logging.getLogger(__name__)

# What an acquire may wait for; asking again with the same key keeps waiting.
_WAITS = (Fenced, NotServing, VersionNotAcked, NoEligibleBackend, AtCapacity)
# The router is another start than before, or has lost the sender.
_UNKNOWN = (RouterRestarted, UnknownSender)


@dataclass(frozen=True)
class AcquireRequest:
    """What a caller wants to run, under its number."""

    number: int
    session: str | None
    wait_s: float
    exclude: Sequence[str]
    expect_version: int | None
    rid: str | Sequence[str] | None


class SenderLink:
    """The side of one sender. Its steps do nothing until somebody carries them out."""

    def __init__(self, target: Target, pool: str | None, sender: str, owner: str, policy: RetryPolicy) -> None:
        self.target = target
        self.policy = policy
        self.sender = sender
        self._owner = owner
        self._pool = pool
        self._attachment: Attachment | None = None
        self._heartbeat: Heartbeat | None = None
        self._transport: SyncTransport | None = None
        self._left_behind: deque[Callable[[], Steps[None]]] = deque()
        self._leaving = threading.Event()

    # Attaching and leaving.

    def attach(self) -> Steps[None]:
        """Makes the sender known to the router, and starts its signs of life."""
        if self._pool is None:
            self._pool = yield from only_pool(self.policy)
        attachment = Attachment(self.target, self._pool, self.sender, self._owner, self.policy)
        yield from attachment.attach()
        self._attachment = attachment
        self._leaving.clear()
        self._transport = SyncTransport(self.target, self.policy)
        self._heartbeat = Heartbeat(
            self._beat,
            attachment.ttl_s / 4,
            name=f"trimtab-heartbeat-{self.sender}",
            retry_s=self.policy.max_delay_s,
        )

    def leave(self) -> None:
        """Carries through what was left behind, and detaches, with one attempt for each. Idempotent."""
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is None or self._transport is None:
            return
        self._leaving.set()
        heartbeat.stop()
        attachment = self._attached()
        try:
            try:
                self._carry_through()
            finally:
                router = attachment.leave()
            if router is not None:
                # One that still holds leases stays attached: the router settles them when its TTL is over.
                query = f"?incarnation={attachment.numbers.incarnation}&expect_incarnation={router}"
                self._run(self._exchange(Call("DELETE", self._path("senders", self.sender) + query)))
        except TrimtabError as error:
            logger.warning("sender %s leaves without a goodbye: %s", self.sender, error)
        finally:
            self._transport.close()

    # Acquiring and settling.

    def request(
        self,
        session: str | None,
        wait_s: float,
        exclude: Sequence[str],
        expect_version: int | None,
        rid: str | Sequence[str] | None,
    ) -> AcquireRequest:
        """A request with a number of its own."""
        if not 0 <= wait_s < float("inf"):
            raise InvalidRequest(f"wait is {wait_s}: it must be a finite number of seconds, 0 or more")
        attachment = self._attached()
        if attachment.replaced is not None:
            raise RouterRestarted(attachment.replaced)
        if attachment.numbers.incarnation != incarnation():
            msg = "this client was opened before the process forked: open another one in the child"
            raise RuntimeError(msg)
        return AcquireRequest(attachment.numbers.take(), session, wait_s, exclude, expect_version, rid)

    def acquire(self, request: AcquireRequest) -> Steps[RouterLease]:
        """Asks for a lease, again and again with the same key until the time is over."""
        try:
            return (yield from self._acquire(request))
        except RouterUnreachable:
            self.abandon(request)
            raise
        except TrimtabError:
            # A verdict: the router holds no lease under this number.
            self._forget(request.number)
            raise

    def _acquire(self, request: AcquireRequest) -> Steps[RouterLease]:
        attachment = self._attached()
        deadline = time.monotonic() + request.wait_s
        attempt = 0
        while True:
            epoch = yield from attachment.known()
            asked = time.monotonic()
            wait_s = min(max(0.0, deadline - asked), MAX_WAIT_S)
            try:
                answer = yield from self._exchange(self._acquire_call(request, epoch, wait_s))
            except _UNKNOWN:
                yield from attachment.rejoin(epoch)
            except _WAITS:
                now = time.monotonic()
                # An answer before its time (the router is leaving) must not become a busy loop.
                attempt = attempt + 1 if now - asked < wait_s / 2 else 0
                pause = self.policy.delay_s(attempt) if attempt else 0.0
                if now + pause >= deadline:
                    raise
                yield Pause(pause)
            else:
                lease = RouterLease.read(answer, request.session)
                # Otherwise a start of the router granted it that is gone, and nobody has used it.
                if attachment.holdings.add(epoch, request.number, lease):
                    return lease

    def _acquire_call(self, request: AcquireRequest, epoch: Epoch, wait_s: float) -> Call:
        rid = request.rid
        body = without_nones(
            seq=request.number,
            session=request.session,
            expect_version=request.expect_version,
            exclude=list(request.exclude),
            rid=rid if rid is None or isinstance(rid, str) else list(rid),
            **self._identity(epoch),
        )
        waiting = {**body, "wait_ms": int(wait_s * 1000)}
        return Call("POST", self._path("leases"), waiting, wait_s, self._batched("acquire", body))

    def _batched(self, operation: str, members: Mapping[str, Any]) -> Batched:
        return Batched(self._path("leases:batch"), operation, members)

    def _identity(self, epoch: Epoch) -> dict[str, Any]:
        """Whose call it is, what the router may forget, and which start of the router it is meant for."""
        numbers = self._attached().numbers
        return {
            "sender": self.sender,
            "incarnation": numbers.incarnation,
            "settled": numbers.settled(),
            "expect_incarnation": epoch.router,
        }

    def abandon(self, request: AcquireRequest) -> None:
        """Nobody waits for the answer any more: whatever it is, no lease shall remain."""
        self._leave_behind(partial(self._give_back, request))

    def _give_back(self, request: AcquireRequest) -> Steps[None]:
        at_once = replace(request, wait_s=0.0)
        try:
            lease = yield from self._acquire(at_once)
        except RouterUnreachable:
            raise
        except TrimtabError:
            self._forget(request.number)
            return
        lease.settle("not_sent")
        yield from self._settle(request.number, lease)

    def settle(self, number: int, lease: RouterLease) -> Steps[None]:
        """Tells the router how an execution ended; what does not arrive now is carried through later.

        Raises:
            RouterUnreachable: Nobody knows whether the lease was still held: the router may have lost this sender, or
                restarted, and published other weights since.
        """
        try:
            yield from self._settle(number, lease)
        except RouterUnreachable as error:
            self.settle_later(number, lease)
            raise RouterUnreachable(
                f"lease {lease.id} on {lease.backend_id} is settled later ({lease.outcome}), and until then"
                f" nobody knows whether the router still holds it: its result must not be used; {error}"
            ) from error

    def settle_later(self, number: int, lease: RouterLease) -> None:
        """The caller cannot wait for the answer: the settlement is carried through behind it."""
        self._leave_behind(partial(self._settle, number, lease))

    def _settle(self, number: int, lease: RouterLease) -> Steps[None]:
        try:
            yield from self._conclude(number, lease)
        except RouterUnreachable:
            raise
        except (PoolFailed, PoolClosed) as error:
            # A settlement is always taken in; this is what the next start of the router said of the sender.
            self._forget(number)
            raise RouterRestarted(_lost(lease, f"its pool is over ({error})")) from error
        except TrimtabError:
            self._forget(number)
            raise
        self._forget(number)

    def _conclude(self, number: int, lease: RouterLease) -> Steps[None]:
        attachment = self._attached()
        while True:
            epoch = yield from attachment.known()
            held = attachment.holdings.find(number)
            if held is not None and held.lost is not None:
                raise RouterRestarted(_lost(lease, held.lost))
            name = lease.id if held is None else held.id
            body = {**(lease.settlement or {"outcome": "ambiguous"}), **self._identity(epoch)}
            batched = self._batched("settle", {**body, "lease_id": name})
            try:
                yield from self._exchange(Call("POST", self._path("leases", name, "settle"), body, batched=batched))
            except _UNKNOWN:
                yield from attachment.rejoin(epoch)
            else:
                return

    def _forget(self, number: int) -> None:
        """The request is over: nothing is held for it, and its number is settled."""
        attachment = self._attached()
        attachment.holdings.drop(number)
        attachment.numbers.settle(number)

    def close_session(self, session: str) -> Steps[tuple[bool, int]]:
        """Forgets a session of this sender."""
        attachment = self._attached()
        attachment.holdings.unpin(session)
        while True:
            epoch = yield from attachment.known()
            body = {"sender": self.sender, "expect_incarnation": epoch.router}
            try:
                answer = yield from self._exchange(Call("POST", self._path("sessions", session, "close"), body))
            except _UNKNOWN:
                yield from attachment.rejoin(epoch)
            else:
                return answer["closed"], answer["open_leases"]

    # The thread behind.

    def _leave_behind(self, steps: Callable[[], Steps[None]]) -> None:
        self._left_behind.append(steps)
        if self._heartbeat is not None:
            self._heartbeat.soon()

    def _beat(self) -> None:
        self._carry_through()
        self._run(self._sign_of_life())

    def _sign_of_life(self) -> Steps[None]:
        attachment = self._attached()
        epoch = yield from attachment.known()
        body = self._identity(epoch)
        del body["sender"]
        try:
            yield from self._exchange(Call("POST", self._path("senders", self.sender, "heartbeat"), body))
        except _UNKNOWN:
            yield from attachment.rejoin(epoch)

    def _carry_through(self) -> None:
        for _ in range(len(self._left_behind)):
            steps = self._left_behind.popleft()
            try:
                self._run(steps())
            except RouterUnreachable:
                self._left_behind.append(steps)
                raise
            except TrimtabError as error:
                logger.warning("sender %s: %s: %s", self.sender, type(error).__name__, error)

    def _run(self, steps: Steps[Any]) -> None:
        if self._transport is not None:
            self._transport.run(steps, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        """A pause before another attempt; whoever leaves does not wait for a router that does not answer."""
        if self._leaving.wait(seconds):
            raise RouterUnreachable(
                f"the router at {self.target.url} gives no usable answer, and the client is leaving"
            )

    def _exchange(self, call: Call) -> Steps[dict[str, Any]]:
        return exchange(call, self.policy, time.monotonic)

    def _attached(self) -> Attachment:
        if self._attachment is None:
            msg = "the client is not open: use it in `with` or `async with`"
            raise RuntimeError(msg)
        return self._attachment

    def _path(self, *names: str) -> str:
        return pool_path(self._pool or "", *names)


def _lost(lease: RouterLease, why: str) -> str:
    return (
        f"the router restarted or lost this sender while lease {lease.id} on {lease.backend_id} was held, and {why}:"
        " its result must not be used"
    )


def only_pool(policy: RetryPolicy) -> Steps[str]:
    """The name of a router's only pool."""
    answer = yield from exchange(Call("GET", "/v1/router/pools"), policy, time.monotonic)
    names = [f"{pool['role']}/{pool['model']}" for pool in answer["pools"]]
    if len(names) != 1:
        raise InvalidRequest(f"name the pool: the router has {', '.join(names) or 'none'}")
    return names[0]


def outcome_at_exit(exc: BaseException | None) -> Any:
    """The outcome of a context that ends without a settlement."""
    return "completed" if exc is None else classify(exc)
