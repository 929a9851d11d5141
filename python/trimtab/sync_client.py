"""``SyncRouterClient``: leases of a router in another process, for threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError
from trimtab.lease_record import RouterLease
from trimtab.sender_link import AcquireRequest, SenderLink, outcome_at_exit
from trimtab.transport import SyncTransport
from trimtab.wire import RetryPolicy, Target

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SyncRouterClient", "SyncRouterLeaseContext"]

logger = logging.getLogger(__name__)


class SyncRouterLeaseContext:
    """One execution, as a context manager: acquired on entry, settled on exit.

    An exit without ``lease.settle(...)`` settles for you: no exception is ``completed``; an exception is what
    ``trimtab.classify`` makes of it. Whoever is interrupted on entry holds no lease; whoever is interrupted on exit has
    settled all the same.
    """

    def __init__(self, link: SenderLink, transport: SyncTransport, begin: Callable[[], AcquireRequest]) -> None:
        self._link = link
        self._transport = transport
        self._begin = begin
        self._request: AcquireRequest | None = None
        self._lease: RouterLease | None = None

    def __enter__(self) -> RouterLease:
        if self._request is not None:
            msg = "a lease context is entered once; call router.lease() for every execution"
            raise RuntimeError(msg)
        # The number is taken here: one that is never used would be a gap for ever.
        self._request = request = self._begin()
        try:
            self._lease = self._transport.run(self._link.acquire(request))
        except TrimtabError:
            raise
        except BaseException:
            self._link.abandon(request)
            raise
        return self._lease

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease, request = self._lease, self._request
        if lease is None or request is None:
            return
        if lease.outcome is None:
            lease.settle(outcome_at_exit(exc))
        try:
            self._transport.run(self._link.settle(request.number, lease))
        except TrimtabError as error:
            if exc is None:
                raise
            # The exception on its way out is the cause; this one is a consequence.
            logger.warning("lease %s: %s: %s", lease.id, type(error).__name__, error)
        except BaseException:
            self._link.settle_later(request.number, lease)
            raise


class SyncRouterClient:
    """Leases of a router in another process, for threads; the caller talks to the engines itself.

    Example:
        >>> def generate(payload: dict) -> None:
        ...     with SyncRouterClient("http://10.0.0.1:8000", sender="rollout/3", owner="train") as router:
        ...         with router.lease(session="traj-17", wait=60) as lease:
        ...             reply = post(lease.url + "/generate", payload)
        ...             lease.settle("completed", output_tokens=reply["meta_info"]["completion_tokens"])
        ...         router.close_session("traj-17")

    Thread-safe: many threads may hold leases of one client. Calls to the router are sent again after connection errors,
    timeouts and 502, 503 and 504, with the same key, so that they have one effect. What the caller sends to an engine
    is never sent again by trimtab. After a restart of the router the client attaches again with what it holds.
    """

    def __init__(
        self,
        url: str,
        *,
        sender: str,
        owner: str,
        pool: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Prepares a client; ``with`` attaches it.

        Args:
            url: The router, ``http[s]://host:port`` or ``unix:///path`` of its lease socket.
            sender: Name of this process among the router's clients, the same after a restart of it.
            owner: The group it belongs to, whose fences and acknowledgements hold for it.
            pool: ``role/model``; not needed when the router has one pool.
            key: The admin key.
            retry: When calls are sent again.

        Raises:
            InvalidRequest: The URL or the key breaks a rule.
        """
        self._link = SenderLink(Target(url, key), pool, sender, owner, retry or RetryPolicy())
        self._transport: SyncTransport | None = None

    def open(self) -> None:
        """Attaches the sender. ``with`` does it.

        Raises:
            RouterUnreachable, Unauthenticated, Forbidden, UnknownPool, PoolFailed, PoolClosed: As they say.
            InvalidRequest: The router has several pools and none was named, or a name breaks a rule.
        """
        if self._transport is not None:
            msg = "the client is open already"
            raise RuntimeError(msg)
        transport = SyncTransport(self._link.target, self._link.policy)
        try:
            transport.run(self._link.attach())
        except BaseException:
            transport.close()
            raise
        self._transport = transport

    def close(self) -> None:
        """Finishes what was left behind and detaches the sender, once its last lease has ended. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        try:
            self._link.leave()
        finally:
            transport.close()

    def lease(
        self,
        session: str | None = None,
        *,
        wait: float = 0,
        exclude: Sequence[str] = (),
        expect_version: int | None = None,
        rid: str | Sequence[str] | None = None,
    ) -> SyncRouterLeaseContext:
        """The right to run one execution; use it with ``with``.

        Args:
            session: Key of the trajectory, 1 to 256 bytes; its executions stay on one backend.
            wait: Seconds to wait for what can be waited for: a fence, an update, capacity, a backend.
            exclude: Ids of backends already tried for this execution.
            expect_version: The only weight version it may be granted under.
            rid: The id under which the engine will know the request (of a batch, all ids). In a pool that resolves, the
                router aborts by it when nobody learns how the execution ended. Of fixed length and used once.

        Raises (on entry):
            NoEligibleBackend, AtCapacity, Fenced, NotServing, VersionNotAcked: What it waited for, after ``wait``.
            PoolFailed, PoolClosed, StaleRequest, SessionClosed, TooManyWaiters: Waiting is in vain.
            InvalidRequest: ``rid`` could begin the ids of others.
            RouterUnreachable: No answer within the retry horizon.
            RouterRestarted: Another process acquires as this sender; open a client under another name.

        Raises (on exit):
            OutcomeConflict, UnknownLease: The router had given the lease up: the result must not be used.
            RouterRestarted: The router restarted, or lost this sender, and did not adopt the lease: the same.
            RouterUnreachable: No answer within the retry horizon, so nobody knows whether it still held the lease: the
                same; the settlement is sent later.
        """
        return SyncRouterLeaseContext(
            self._link, self._opened(), partial(self._link.request, session, wait, exclude, expect_version, rid)
        )

    def close_session(self, session: str) -> tuple[bool, int]:
        """Forgets a session: whether it was known, and how many of its leases are still open."""
        return self._opened().run(self._link.close_session(session))

    def _opened(self) -> SyncTransport:
        if self._transport is None:
            msg = "the client is not open: use it with `with`"
            raise RuntimeError(msg)
        return self._transport

    def __repr__(self) -> str:
        return f"SyncRouterClient({self._link.target.url!r}, sender={self._link.sender!r})"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
