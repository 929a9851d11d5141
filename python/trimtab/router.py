"""The in-process router: leases as context managers over one pool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from trimtab._core import Backend, Lease, Pool, PoolStatistics
from trimtab.errors import InvalidRequest

__all__ = ["LeaseContext", "Router"]


class LeaseContext:
    """One execution, as a plain or an async context manager.

    The lease is acquired on entry and settled on exit. An exit without ``lease.settle(...)`` settles for you: no
    exception is ``completed``; a cancellation is ``cancelled``; any other exception is ``ambiguous``, since the engine
    may have run the execution. An ``OSError`` (refused, reset, timed out) also counts against the engine's health; an
    error of your own code does not.
    """

    def __init__(self, pool: Pool, session: str | None, exclude: Sequence[Backend]) -> None:
        self._pool = pool
        self._session = session
        self._exclude = exclude
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            msg = "a lease context is entered once; call router.lease() for every execution"
            raise RuntimeError(msg)
        self._lease = self._pool.acquire(self._session, exclude=self._exclude)
        return self._lease

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = self._lease
        if lease is None or lease.outcome is not None:
            return
        if exc is None:
            lease.settle("completed")
        elif isinstance(exc, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)):
            lease.settle("cancelled")
        elif isinstance(exc, OSError):
            lease.settle("ambiguous")
        else:
            lease.abandon()

    async def __aenter__(self) -> Lease:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, traceback)


class Router:
    """Routes executions inside this process: the caller talks to the engines itself.

    Example:
        >>> router = Router.from_engines({"http://10.0.0.1:30000": 8, "http://10.0.0.2:30000": 2})
        >>> with router.lease(session="traj-17") as lease:
        ...     address = lease.authority  # POST lease.url + "/generate"
        >>> router.statistics().outstanding
        0
    """

    def __init__(self, pool: Pool) -> None:
        """Routes over ``pool``, which may be shared with other routers and a gateway of this process."""
        self.pool = pool

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

    def lease(self, session: str | None = None, *, exclude: Sequence[Backend] = ()) -> LeaseContext:
        """The right to run one execution; use it with ``with`` or ``async with``.

        Args:
            session: Key of the trajectory, 1 to 256 bytes; its executions stay on one backend.
            exclude: Backends already tried for this execution.

        Raises (on entry):
            NoEligibleBackend, AtCapacity, InvalidRequest: As ``Pool.acquire``.
        """
        return LeaseContext(self.pool, session, exclude)

    def close_session(self, session: str) -> tuple[bool, int]:
        """Forgets a session: whether it was known, and how many of its leases are still open."""
        return self.pool.close_session(session)

    def statistics(self) -> PoolStatistics:
        """A frozen snapshot of the pool."""
        return self.pool.statistics()
