"""The in-process router: leases as context managers over one pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from trimtab._core import Backend, Lease, ParkedAcquire, Pool, PoolStatistics
from trimtab.classification import recognised
from trimtab.errors import InvalidRequest, InvalidTransition, TrimtabError, UnknownSender
from trimtab.heartbeat import Heartbeat
from trimtab.sequence import Numbers, numbers_of
from trimtab.waiting import wait_in_loop, wait_in_thread

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LeaseContext", "Router"]


class _Sender:
    """What makes a router's requests those of one sender: name, numbers, and signs of life."""

    def __init__(self, pool: Pool, name: str, owner: str) -> None:
        self._pool = pool
        self.name = name
        self._numbers: Numbers = numbers_of(name)
        attached = pool.attach_sender(name, self._numbers.incarnation, owner)
        self._place = f"in-process/{id(pool)}"
        self._numbers.enter(self._place)
        self._open = True
        self._heartbeat = Heartbeat(self._beat, attached.ttl_s / 4, name=f"trimtab-heartbeat-{name}")

    def key(self) -> tuple[str, str, int]:
        return self.name, self._numbers.incarnation, self._numbers.take()

    def settle(self, key: tuple[str, str, int]) -> None:
        self._numbers.settle(key[2])
        # A sender that was lost has been told so by the request itself.
        with suppress(UnknownSender):
            self._beat()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._heartbeat.stop()
        if not self._numbers.leave(self._place):
            return
        # One that holds leases stays attached, and is lost with them after its TTL; a lost one is gone already.
        with suppress(InvalidTransition, UnknownSender):
            self._pool.detach_sender(self.name, self._numbers.incarnation)

    def _beat(self) -> None:
        self._pool.heartbeat(self.name, self._numbers.incarnation, self._numbers.settled())


class LeaseContext:
    """One execution, as a plain or an async context manager.

    The lease is acquired on entry and settled on exit. An exit without ``lease.settle(...)`` settles for you: no
    exception is ``completed``; an exception is what ``trimtab.classify`` makes of it, which is ``ambiguous`` unless it
    is certain that the engine ran nothing, or answered. An exception of your own code is ``ambiguous`` too, and is not
    held against the engine.
    """

    def __init__(
        self,
        pool: Pool,
        sender: _Sender | None,
        *,
        session: str | None,
        exclude: Sequence[Backend],
        wait: float,
        expect_version: int | None,
    ) -> None:
        self._pool = pool
        self._sender = sender
        self._session = session
        self._exclude = exclude
        self._wait = wait
        self._expect_version = expect_version
        self._entered = False
        self._key: tuple[str, str, int] | None = None
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        try:
            acquired = self._acquire()
            self._lease = acquired if isinstance(acquired, Lease) else wait_in_thread(acquired, self._wait)
        except BaseException:
            self._forget_request()
            raise
        return self._lease

    async def __aenter__(self) -> Lease:
        try:
            acquired = self._acquire()
            self._lease = acquired if isinstance(acquired, Lease) else await wait_in_loop(acquired, self._wait)
        except BaseException:
            self._forget_request()
            raise
        return self._lease

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = self._lease
        try:
            if lease is not None and lease.outcome is None:
                outcome = "completed" if exc is None else recognised(exc)
                if outcome is None:
                    lease.abandon()
                else:
                    lease.settle(outcome)
        except TrimtabError:
            # With an exception on its way out, that one is the cause, and this a consequence.
            if exc is None:
                raise
        finally:
            self._forget_request()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def _acquire(self) -> Lease | ParkedAcquire:
        if self._entered:
            msg = "a lease context is entered once; call router.lease() for every execution"
            raise RuntimeError(msg)
        self._entered = True
        self._key = None if self._sender is None else self._sender.key()
        if self._wait == 0:
            return self._pool.acquire(
                self._session, exclude=self._exclude, key=self._key, expect_version=self._expect_version
            )
        return self._pool.acquire_or_park(
            self._session,
            wait_s=self._wait,
            exclude=self._exclude,
            key=self._key,
            expect_version=self._expect_version,
        )

    def _forget_request(self) -> None:
        """The request has its whole answer: the pool need not remember it."""
        if self._sender is not None and self._key is not None:
            self._sender.settle(self._key)
            self._key = None


class Router:
    """Routes executions inside this process: the caller talks to the engines itself.

    Example:
        >>> router = Router.from_engines({"http://10.0.0.1:30000": 8, "http://10.0.0.2:30000": 2})
        >>> with router.lease(session="traj-17") as lease:
        ...     address = lease.authority  # POST lease.url + "/generate"
        >>> router.statistics().outstanding
        0
    """

    def __init__(self, pool: Pool, *, sender: str | None = None, owner: str | None = None) -> None:
        """Routes over ``pool``, which may be shared with other routers and a gateway of this process.

        Args:
            pool: Where to acquire.
            sender: Name of a sender to acquire as; it is attached until ``close``. Its sessions are its own.
            owner: The sender's owner, whose fences and acknowledgements hold for it. Without sender and owner, requests
                belong to the owner ``default``.

        Raises:
            InvalidRequest: Only one of ``sender`` and ``owner`` is given, or a name breaks a rule.
            PoolFailed, PoolClosed: The pool is over.
        """
        if (sender is None) != (owner is None):
            raise InvalidRequest("sender and owner belong together: give both, or neither")
        self.pool = pool
        self._sender = None if sender is None or owner is None else _Sender(pool, sender, owner)

    @classmethod
    def from_engines(cls, engines: Mapping[str, float] | Iterable[str], *, name: str = "default/default") -> Router:
        """Builds a router over engines that are known to run.

        Args:
            engines: Capacity by address, or addresses of equal capacity.
            name: Name of the pool.

        Raises:
            InvalidAddress, InvalidCapacity: The message names the value and the rule.
            InvalidRequest: An engine is listed twice, or ``engines`` is one address.
        """
        if isinstance(engines, str):
            raise InvalidRequest(f"engines is the text {engines!r}: give a list of addresses, or capacity by address")
        pool = Pool(name)
        seen: dict[Backend, str] = {}
        for address, capacity in engines.items() if isinstance(engines, Mapping) else ((each, 1.0) for each in engines):
            backend = pool.add_backend(address, capacity)
            if backend in seen:
                raise InvalidRequest(f"{address!r} and {seen[backend]!r} are the same engine: list it once")
            seen[backend] = address
        return cls(pool)

    def lease(
        self,
        session: str | None = None,
        *,
        wait: float = 0,
        exclude: Sequence[Backend] = (),
        expect_version: int | None = None,
    ) -> LeaseContext:
        """The right to run one execution; use it with ``with`` or ``async with``.

        Args:
            session: Key of the trajectory, 1 to 256 bytes; its executions stay on one backend.
            wait: Seconds to wait for what can be waited for: a fence, an update, capacity, a backend. ``async with``
                leaves the event loop free meanwhile, ``with`` blocks its thread.
            exclude: Backends already tried for this execution.
            expect_version: The only weight version it may be granted under.

        Raises (on entry):
            NoEligibleBackend, AtCapacity, Fenced, NotServing, VersionNotAcked: What it waited for, after ``wait``.
            PoolFailed, PoolClosed, StaleRequest, SessionClosed, TooManyWaiters: Waiting is in vain.
            InvalidRequest: An argument breaks a rule.

        Raises (on exit):
            OutcomeConflict, UnknownLease: The pool had given the lease up, since the sender was lost: the result must
                not be used.
        """
        return LeaseContext(
            self.pool, self._sender, session=session, exclude=exclude, wait=wait, expect_version=expect_version
        )

    def close_session(self, session: str) -> tuple[bool, int]:
        """Forgets a session: whether it was known, and how many of its leases are still open."""
        if self._sender is None:
            return self.pool.close_session(session)
        return self.pool.close_sender_session(self._sender.name, session)

    def statistics(self) -> PoolStatistics:
        """A frozen snapshot of the pool."""
        return self.pool.statistics()

    def close(self) -> None:
        """Detaches the sender, if there is one. Idempotent; the pool goes on."""
        if self._sender is not None:
            self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
