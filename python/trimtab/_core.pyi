"""The Rust routing core and data plane, as Python sees them.

Every object here is thread-safe. Pool operations are single critical sections of about a hundred nanoseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from trimtab.outcome import Outcome

__all__ = [
    "Backend",
    "BackendStatistics",
    "DataPlane",
    "Lease",
    "Pool",
    "PoolStatistics",
    "Role",
    "__version__",
    "normalize_address",
]

__version__: str

@final
class Backend:
    """One incarnation of an engine in a pool. Immutable and hashable; equal iff pool slot and generation are equal."""

    @property
    def id(self) -> str:
        """Opaque id, by default the authority."""
    @property
    def generation(self) -> int:
        """Number of this incarnation, unique within its pool."""
    @property
    def authority(self) -> str:
        """``host:port``; an IPv6 host is bracketed."""
    @property
    def url(self) -> str:
        """``http://host:port``, no trailing slash."""
    @property
    def capacity(self) -> float:
        """Relative capacity; load is compared as outstanding executions / capacity."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Lease:
    """The right to run one execution on one backend. Settled exactly once.

    A lease that is dropped unsettled is settled ``ambiguous``: the execution may have happened, nobody knows. The
    backend is not blamed for it.
    """

    @property
    def id(self) -> str:
        """16 hexadecimal digits, unique within the pool."""
    @property
    def backend(self) -> Backend:
        """Where the execution runs."""
    @property
    def backend_id(self) -> str:
        """``backend.id``."""
    @property
    def authority(self) -> str:
        """``backend.authority``."""
    @property
    def url(self) -> str:
        """``backend.url``: append the path, for example ``lease.url + "/generate"``."""
    @property
    def session(self) -> str | None:
        """The session the lease was acquired for."""
    @property
    def reason(self) -> str:
        """Why this backend: ``sticky``, ``new``, ``no_session``, ``table_full`` or ``repin:<why>``."""
    @property
    def sticky(self) -> bool:
        """Whether the session was already pinned to this backend."""
    @property
    def outcome(self) -> Outcome | None:
        """The outcome it was settled with; ``None`` while it is open."""
    def settle(self, outcome: Outcome, *, output_tokens: int | None = None) -> None:
        """Ends the lease.

        Args:
            outcome: What the caller saw of the execution.
            output_tokens: Tokens the engine reported, for statistics.

        Raises:
            UnknownLease: It was settled before; nothing changes.
            InvalidRequest: No such outcome.
        """
    def abandon(self) -> None:
        """Gives the lease back without knowing how its execution ended.

        What dropping it does: ``ambiguous``, and the backend is not blamed. Does nothing when it is settled.
        """

@final
class BackendStatistics:
    """Frozen snapshot of one backend incarnation."""

    @property
    def id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def authority(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def capacity(self) -> float: ...
    @property
    def health(self) -> Literal["unproven", "up", "suspect", "down"]: ...
    @property
    def draining(self) -> bool: ...
    @property
    def eligible(self) -> bool:
        """Whether it may take a new execution now."""
    @property
    def outstanding(self) -> int:
        """Unsettled leases on it."""
    @property
    def sessions(self) -> int:
        """Live sessions pinned to it."""
    @property
    def picks(self) -> int:
        """Leases granted on it so far."""
    @property
    def outcomes(self) -> dict[str, int]:
        """Settled leases by outcome."""
    @property
    def output_tokens(self) -> int:
        """Output tokens reported at settlement."""
    @property
    def failures(self) -> int:
        """Consecutive failures since its last sign of life."""

@final
class PoolStatistics:
    """Frozen snapshot of one pool, taken in one critical section. Totals include removed backends."""

    @property
    def name(self) -> str: ...
    @property
    def outstanding(self) -> int:
        """Unsettled leases, those on removed backends included."""
    @property
    def sessions(self) -> int:
        """Entries of the session table."""
    @property
    def picks(self) -> dict[str, int]:
        """Granted leases by pick reason."""
    @property
    def outcomes(self) -> dict[str, int]:
        """Settled leases by outcome."""
    @property
    def output_tokens(self) -> int: ...
    @property
    def census(self) -> dict[str, int]:
        """Backends by standing: registered, eligible, unproven, down, draining."""
    @property
    def backends(self) -> list[BackendStatistics]:
        """Registered backends in the order they were added."""

@final
class Pool:
    """The routing state of one (role, model): backends, sessions and leases.

    Args:
        name: Shown in statistics and logs, usually ``role/model``.
        session_ttl_s: A session that is idle (no open lease) this many seconds is forgotten.
        session_cap: Most sessions remembered, at least 1; above it the least recently used idle one is forgotten.
        max_concurrent: Most executions outstanding at once, at least 1; ``None`` means no limit.

    Raises:
        InvalidRequest: A number is out of its range.
    """

    def __new__(
        cls,
        name: str = "default/default",
        *,
        session_ttl_s: float = 3600.0,
        session_cap: int = 1_000_000,
        max_concurrent: int | None = None,
    ) -> Pool: ...
    @property
    def name(self) -> str: ...
    def add_backend(
        self, address: str, capacity: float = 1.0, *, id: str | None = None, proven: bool = True
    ) -> Backend:
        """Registers an engine. The same id and address again only updates the capacity.

        Args:
            address: ``[http://]host:port``.
            capacity: Positive weight, for example the engine's ``max_running_requests``.
            id: Opaque id of at most 256 bytes; the normalised authority when absent.
            proven: False keeps it out of routing until a probe has reached it.

        Raises:
            InvalidAddress, InvalidCapacity: The message names the value and the rule.
            InvalidRequest: The id is taken by another address, or the address by another id.
        """
    def drain_backend(self, id: str) -> int:
        """Stops new executions on a backend; its running ones finish, its sessions move with their next turn.

        Returns:
            Executions still outstanding on it.

        Raises:
            UnknownBackend: No such id.
        """
    def remove_backend(self, id: str) -> int:
        """Takes a backend out of the pool at once. Its open leases stay valid and settle on the old incarnation.

        Returns:
            Executions still outstanding on it.

        Raises:
            UnknownBackend: No such id.
        """
    def acquire(self, session: str | None = None, *, exclude: Sequence[Backend] = ...) -> Lease:
        """Picks a backend and reserves one execution on it, in one critical section.

        Args:
            session: Key of 1 to 256 bytes; its executions stay on one backend. ``None`` means no stickiness.
            exclude: Backends already tried for this execution.

        Raises:
            NoEligibleBackend: None can take it now; the message counts why.
            AtCapacity: ``max_concurrent`` executions are outstanding.
            InvalidRequest: The session key is empty or too long.
        """
    def close_session(self, session: str) -> tuple[bool, int]:
        """Forgets a session.

        Returns:
            Whether it was known, and how many of its leases are still open (they stay valid).
        """
    def report_probe(self, backend: Backend, alive: bool) -> None:
        """Reports a liveness probe. A report about an older incarnation is ignored."""
    def tick(self) -> None:
        """Expires idle sessions. Called for you by ``acquire`` and by the gateway."""
    def backends(self) -> list[Backend]:
        """Registered backends in the order they were added."""
    def statistics(self) -> PoolStatistics: ...
    def take_events(self) -> tuple[list[str], int]:
        """State changes since the last call, one readable line each, and how many were dropped by the bound."""

@final
class Role:
    """What the data plane serves under ``/<name>``.

    Args:
        name: One path segment: lower-case letters, digits, ``-`` and ``_``.
        models: Pool by model name; at least one.
        default_model: Serves requests that name no model; a sole model is the default by itself.
        lenient_model: Accept any model name when there is exactly one model.

    Raises:
        InvalidRequest: The message names the rule.
    """

    def __new__(
        cls,
        name: str,
        models: Mapping[str, Pool],
        *,
        default_model: str | None = None,
        lenient_model: bool = False,
    ) -> Role: ...
    @property
    def name(self) -> str: ...

@final
class DataPlane:
    """The HTTP data plane: listener, proxying, streaming and lease accounting on threads that never touch the GIL."""

    @staticmethod
    def start(
        *,
        roles: Sequence[Role],
        host: str = "127.0.0.1",
        port: int = 0,
        control_socket: str | None = None,
        worker_threads: int = 2,
        max_body_bytes: int = 536_870_912,
        connect_timeout_s: float = 5.0,
        first_byte_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        total_timeout_s: float | None = None,
        engine_keepalive_s: float = 4.0,
        abort_grace_s: float = 2.0,
        probe_interval_s: float = 1.0,
        probe_timeout_s: float = 5.0,
    ) -> DataPlane:
        """Binds the listener and starts serving; returns when connections are accepted.

        Args:
            roles: What to serve.
            host: Address to bind.
            port: Port to bind; 0 takes a free one, see ``port``.
            control_socket: Unix socket of the control app, which gets every request the data plane does not serve.
            worker_threads: Threads of the data plane.
            max_body_bytes: Largest request body; a larger one is answered 413.
            connect_timeout_s: Seconds to connect to an engine.
            first_byte_timeout_s: Seconds from sending the request to the engine's response headers.
            idle_timeout_s: Seconds between two chunks of a response.
            total_timeout_s: Seconds for a whole execution.
            engine_keepalive_s: Idle engine connections older than this are not reused (SGLang closes them after 5 s).
            abort_grace_s: Seconds to wait for an engine to confirm an abort before the lease is ambiguous.
            probe_interval_s: Seconds between two liveness probes of an engine.
            probe_timeout_s: Seconds after which a probe counts as failed.

        Raises:
            StartError: The address cannot be bound.
            InvalidRequest: A role or number breaks a rule.
        """
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int:
        """The port that is bound."""
    def statistics(self) -> dict[str, Any]:
        """Counters of the data plane; docs/observability.md lists the keys."""
    def take_failures(self) -> list[dict[str, Any]]:
        """What could not be served since the last call, one entry per error code and engine.

        Each has ``code``, ``count``, ``message``, and ``backend``, ``lease`` and ``session`` of the last one (or
        ``None``).
        A client's mistakes (4xx but 429) are not among them.
        """
    def shutdown(self, grace_s: float = 5.0) -> None:
        """Stops accepting, lets running requests finish for ``grace_s`` seconds, then cuts them. Idempotent."""

def normalize_address(text: str) -> tuple[str, str]:
    """Normalises an engine address, as every part of trimtab does.

    Returns:
        ``(authority, url)``, for example ``("[::1]:30000", "http://[::1]:30000")``.

    Raises:
        InvalidAddress: The message names the value and the rule.
    """
