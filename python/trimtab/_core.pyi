"""The Rust routing core and data plane, as Python sees them.

Every object here is thread-safe. Pool operations are single critical sections of about a hundred nanoseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Literal, final

from trimtab.outcome import Outcome
from trimtab.state import PoolState

__all__ = [
    "AddressRules",
    "Attached",
    "Backend",
    "BackendStatistics",
    "DataPlane",
    "EngineDeath",
    "Histogram",
    "Lease",
    "OwnerStatus",
    "ParkedAcquire",
    "PoisonEntry",
    "Pool",
    "PoolStatistics",
    "Role",
    "Route",
    "RoutingTable",
    "SenderStatus",
    "UpdateStatus",
    "VirtualClock",
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
        """Why this backend: ``sticky``, ``new``, ``no_session``, ``table_full``, ``spill`` or ``repin:<why>``."""
    @property
    def sticky(self) -> bool:
        """Whether the session was already pinned to this backend."""
    @property
    def weight_version(self) -> int | None:
        """The weights that run the execution: label its tokens with this. ``None`` before the first publish."""
    @property
    def outcome(self) -> Outcome | None:
        """The outcome it was settled with; ``None`` while it is open."""
    def settle(self, outcome: Outcome, *, output_tokens: int | None = None, context_tokens: int | None = None) -> None:
        """Ends the lease.

        Args:
            outcome: What the caller saw of the execution.
            output_tokens: Tokens the engine reported, for statistics.
            context_tokens: Prompt and output of the session so far. A session of which nobody says it stays where it
                is, however crowded (``spill`` of the pool).

        Raises:
            UnknownLease, OutcomeConflict: It was settled before, or the pool had given it up since its sender was lost:
                nothing changes, and the result must not be used.
            InvalidRequest: No such outcome.
        """
    def abandon(self) -> None:
        """Gives the lease back without knowing how its execution ended.

        What dropping it does: ``ambiguous``, and the backend is not blamed. Does nothing when it is settled.
        """

@final
class ParkedAcquire:
    """An acquire that waits in the pool's queue. It ends by a lease, by ``give_up`` or by ``abandon``.

    A wait that is dropped is abandoned. It keeps no time: who waits gives up at its deadline.
    """

    @property
    def reason(self) -> str:
        """What it waited for at first, as the code of an error, for example ``fenced``."""
    def poll(self, wake: Callable[[], object]) -> Lease | None:
        """The lease, or ``None`` while it waits.

        Args:
            wake: Called once, from another thread, when it is time to poll again; must not block, and replaces the one
                given before.

        Raises:
            PoolFailed, PoolClosed, SessionClosed, UnknownSender: Waiting is over, and in vain.
            UnknownLease: It was granted, and given back unused when its sender was lost.
            InvalidRequest: The wait ended before.
        """
    def give_up(self) -> Lease:
        """Ends the wait at its deadline: the lease, when it was granted meanwhile.

        Raises:
            Fenced, NotServing, VersionNotAcked, AtCapacity, NoEligibleBackend: What it waited for.
        """
    def abandon(self) -> None:
        """Leaves the queue. A lease granted meanwhile is settled ``not_sent``. Idempotent."""

@final
class Attached:
    """The answer to ``Pool.attach_sender``."""

    @property
    def weight_version(self) -> int | None:
        """The published version."""
    @property
    def ttl_s(self) -> float:
        """Seconds the sender may be silent."""
    @property
    def already(self) -> bool:
        """Whether the same incarnation was attached already."""

@final
class OwnerStatus:
    """How an owner stands: the answer to attaching, acknowledging, fencing and unfencing it."""

    @property
    def owner(self) -> str: ...
    @property
    def fences(self) -> list[str]:
        """The reasons for which it is fenced, sorted; none means open."""
    @property
    def acknowledged(self) -> int | None:
        """The version its processes know, in the current epoch."""
    @property
    def needs_acknowledgement(self) -> bool:
        """Whether it must acknowledge the published version before anything is granted to it."""
    @property
    def parked(self) -> int:
        """Its acquires that wait."""
    @property
    def outstanding(self) -> int:
        """Its open leases."""
    @property
    def per_backend(self) -> dict[str, int]:
        """Its open leases by backend id; backends without any are left out."""

@final
class UpdateStatus:
    """How an update stands: the answer to each of its calls."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> Literal["weights", "offload", "pause"]: ...
    @property
    def to_version(self) -> int | None:
        """The version it will publish, or has published."""
    @property
    def phase(self) -> Literal["quiescing", "drained", "updating", "published", "cancelled", "failed"]:
        """How far it is; ``quiescing`` in the answer to ``drain`` means: not yet, ask again."""
    @property
    def server_paused(self) -> bool:
        """Whether the servers count as paused for it."""
    @property
    def outstanding(self) -> int:
        """Executions outstanding in the pool."""
    @property
    def version(self) -> int | None:
        """The version that is published now."""
    @property
    def epoch(self) -> int | None:
        """The epoch of that version."""
    @property
    def replayed(self) -> bool:
        """Whether the call found its effect already there."""

@final
class SenderStatus:
    """How a sender stands."""

    @property
    def sender(self) -> str: ...
    @property
    def incarnation(self) -> str:
        """The process behind the name."""
    @property
    def owner(self) -> str: ...
    @property
    def held(self) -> int:
        """Its open leases."""
    @property
    def tombstones(self) -> int:
        """Its settled requests that are still remembered."""
    @property
    def settled(self) -> list[tuple[int, int]]:
        """The numbers it said to be settled, as intervals with both ends included."""
    @property
    def silent_s(self) -> float:
        """Seconds since it was heard last."""

@final
class EngineDeath:
    """That something was in flight when an engine died."""

    @property
    def backend(self) -> str:
        """The id of the engine."""
    @property
    def generation(self) -> int:
        """Its incarnation."""
    @property
    def evidence(self) -> str:
        """How it died: ``it refuses connections``, or what was reported."""
    @property
    def age_s(self) -> float:
        """Seconds since the pool learned of it."""
    @property
    def weight(self) -> float:
        """1 for an execution that was young and had answered nothing, else 0.5."""

@final
class PoisonEntry:
    """A request or a session that is suspected to kill engines. ``str()`` says why."""

    @property
    def entry(self) -> str:
        """Names it within its pool: 16 hexadecimal digits."""
    @property
    def kind(self) -> Literal["request", "session"]: ...
    @property
    def session(self) -> str | None:
        """The key of the session."""
    @property
    def sender(self) -> str | None:
        """Whose session it is, when it has a sender."""
    @property
    def refused(self) -> bool:
        """Whether it is refused. Otherwise it needs another death, or half of one, for that."""
    @property
    def refusals(self) -> int:
        """Acquires refused because of it."""
    @property
    def expires_in_s(self) -> float:
        """Seconds until it is forgotten, unless another engine dies under it."""
    @property
    def deaths(self) -> list[EngineDeath]:
        """The deaths it coincided with, the latest last."""

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
    def health(self) -> Literal["unproven", "up", "suspect", "down", "half_open"]: ...
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
    @property
    def unhealthy_s(self) -> float:
        """Seconds for which it has been unhealthy in a row, pauses not counted: the use of its ``unhealthy_budget``."""
    @property
    def weight_version(self) -> int | None:
        """The version its weights are known to have."""
    @property
    def tainted(self) -> bool:
        """Whether an update of it failed, so that it needs a full reload."""
    @property
    def weights_fit(self) -> bool:
        """Whether it runs the published version."""

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
    def sessions_expired(self) -> int:
        """Sessions that ended by being idle for longer than the TTL, so far."""
    @property
    def sessions_evicted(self) -> int:
        """Sessions that made room for others at the cap, so far."""
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
        """Backends by standing: registered, eligible, unproven, down, draining, pending_version, tainted."""
    @property
    def engine_deaths(self) -> int:
        """Engines that died, so far: they refused connections, or their death was reported."""
    @property
    def poison_refusals(self) -> int:
        """Acquires refused because engines had died under what they are for, so far."""
    @property
    def poison_suspects(self) -> int:
        """Requests and sessions that were in flight when an engine died lately."""
    @property
    def poison_refused(self) -> int:
        """Those of them that are refused."""
    @property
    def state(self) -> PoolState: ...
    @property
    def model_state(self) -> str:
        """What can be said of the model in one word.

        ``ready``; ``updating``, ``draining``, ``sleeping`` or ``paused`` by the will of a controller; ``failed`` or
        ``closed``; else what its engines are: ``starting``, ``down``, ``draining``, ``pending_version``, ``tainted``,
        or ``unavailable`` when they differ or there are none.
        """
    @property
    def failure(self) -> str | None:
        """The first cause of a failed pool."""
    @property
    def later_failures(self) -> int:
        """Failures after the first, which alone counts."""
    @property
    def server_paused(self) -> bool:
        """Whether the servers count as paused: from ``begin_update`` to ``end_server_pause``."""
    @property
    def weight_version(self) -> int | None:
        """The published version."""
    @property
    def epoch(self) -> int | None:
        """The epoch of that version."""
    @property
    def generation(self) -> int:
        """Grows with every update that begins."""
    @property
    def update(self) -> UpdateStatus | None:
        """The update in progress."""
    @property
    def last_updates(self) -> list[UpdateStatus]:
        """The last 16 results, the latest last."""
    @property
    def owners(self) -> list[OwnerStatus]:
        """Every owner, the one of requests without a sender (``default``) first."""
    @property
    def senders(self) -> list[SenderStatus]: ...
    @property
    def waiters(self) -> int:
        """Acquires that wait now."""
    @property
    def parked(self) -> dict[str, int]:
        """Acquires that had to wait so far, by reason."""
    @property
    def tombstones(self) -> int:
        """Settled requests that are remembered."""
    @property
    def unexpected_aborts(self) -> int:
        """Executions that engines aborted outside an update."""
    @property
    def version_mismatches(self) -> int:
        """Answers whose engine said to have run other weights than those of the lease."""
    @property
    def unresolved(self) -> int:
        """Open leases whose end is unknown (``on_ambiguous="resolve"``)."""
    @property
    def stale_probes(self) -> int:
        """Probes whose answer did not count: it was about an earlier incarnation, or from before or during a pause."""
    @property
    def waiting(self) -> dict[str, int]:
        """Acquires that wait now, by what they wait for."""
    @property
    def replays(self) -> dict[str, int]:
        """Calls that got the answer of an earlier one so far: ``acquire``, ``settle`` and ``update``."""
    @property
    def acquire_seconds(self) -> Histogram:
        """From the call to the grant, of every lease."""
    @property
    def lease_seconds(self) -> dict[str, Histogram]:
        """From the grant to the settlement, by outcome; outcomes that never were are absent."""
    @property
    def drain_seconds(self) -> Histogram:
        """From the begin of an update until its controller was told that nothing is outstanding."""
    @property
    def update_seconds(self) -> dict[str, dict[str, Histogram]]:
        """By kind (``weights``, ``offload``, ``pause``) and step.

        Steps are ``quiesce``, ``confirm``, ``transfer``, ``pause`` and ``total``.
        Steps that never happened are absent, and failed updates are not counted.
        """
    @property
    def request_seconds(self) -> dict[str, Histogram]:
        """What a data plane relayed, by phase: ``queue``, ``first_byte``, ``total``; absent before the first."""
    @property
    def backends(self) -> list[BackendStatistics]:
        """Registered backends in the order they were added."""

@final
class Histogram:
    """Durations in seconds, counted in buckets. Every histogram has the same ones."""

    BOUNDS_S: ClassVar[tuple[float, ...]]
    """The upper bounds of the buckets, included; one more bucket has none."""

    @property
    def cumulative(self) -> list[int]:
        """How many durations are at most as long as each bound, and then how many there are."""
    @property
    def count(self) -> int:
        """How many durations were counted."""
    @property
    def sum_s(self) -> float:
        """Their sum in seconds."""

@final
class VirtualClock:
    """The time of the pools that were made with it (``Pool(..., clock=clock)``): it passes when it is told to.

    See ``trimtab.testing``. It begins at 0, stands still, and never goes back.
    """

    def __new__(cls) -> VirtualClock: ...
    @property
    def now_s(self) -> float:
        """Seconds since it was made."""
    def advance(self, seconds: float) -> None:
        """Lets time pass, and the pools do what is due: like a data plane, they look once a second.

        Args:
            seconds: A finite number above 0.

        Raises:
            InvalidRequest: It is none.
        """

@final
class Pool:
    """The routing state of one (role, model): backends, sessions and leases.

    Args:
        name: Shown in statistics and logs, usually ``role/model``.
        session_ttl_s: A session that is idle (no open lease) this many seconds is forgotten.
        session_cap: Most sessions remembered, at least 1; above it the least recently used idle one is forgotten.
        max_concurrent: Most executions outstanding at once, at least 1; ``None`` means no limit.
        queue_size: Most requests that wait for a place while so many run; ``None`` is 100,000.
        queue_timeout_s: Seconds that a proxied request without ``x-trimtab-wait`` waits for a place; ``None``: it is
            refused at once. ``acquire`` never waits, ``acquire_or_park`` as long as it says.
        await_version: Grant nothing before the first published version.
        on_ambiguous: What an execution with an unknown end means: ``settle`` counts it; ``fail_pool`` fails the pool,
            since nobody can say that its tokens are not in the training data; ``resolve`` keeps it counted until its
            engine no longer has it, which a data plane that serves the pool finds out. Without one it is up to you, see
            ``unresolved``.
        on_drain_timeout: What a drain past its deadline means: ``fail`` fails the pool, ``report`` only tells.
        sender_ttl_s: A sender that is silent this many seconds is lost; the leases it holds become ambiguous.
        recovery: What becomes of leases that an earlier start of the router granted, when their senders present them:
            ``adopt`` takes over those whose backend and version match, ``restart`` makes each ambiguous.
        unhealthy_budget_s: How long a backend may be unhealthy in a row, pauses of the servers not counted; ``None`` is
            for ever.
        on_unhealthy: What happens then: ``exclude`` takes the backend out until it is well again, ``fail_pool`` fails
            the pool, for a membership in which nobody can be spared.
        load: What is compared per capacity when a backend is chosen: ``outstanding`` counts executions and one more;
            ``plain`` executions alone; ``sessions`` adds half for each idle session pinned there, for callers that
            close their sessions.
        spill: An idle session of a context known to be no longer than 65,536 tokens leaves a backend that has twice the
            load of the best one and three executions more; at most 60 a minute.
        rebind_on_publish: A new weight version lets every session choose its backend anew: caches are flushed anyway.
        ramp_s: Seconds for which a backend that is fresh or back counts as a quarter of its capacity; ``None``: not at
            all.
        poison_deaths: Deaths of engines that a request or session may coincide with before it is refused; 0: nothing
            is refused.
        poison_quarantine_s: Seconds for which it is refused after the last of them, and a single death is remembered.
        clock: What the pool takes for the time, for tests; the machine's clock when absent.

    Raises:
        InvalidRequest: A number is out of its range, or a word is not one of those.
    """

    def __new__(
        cls,
        name: str = "default/default",
        *,
        session_ttl_s: float = 3600.0,
        session_cap: int = 1_000_000,
        max_concurrent: int | None = None,
        queue_size: int | None = None,
        queue_timeout_s: float | None = None,
        await_version: bool = False,
        on_ambiguous: Literal["settle", "resolve", "fail_pool"] = "settle",
        on_drain_timeout: Literal["fail", "report"] = "fail",
        sender_ttl_s: float = 120.0,
        recovery: Literal["adopt", "restart"] = "adopt",
        unhealthy_budget_s: float | None = None,
        on_unhealthy: Literal["exclude", "fail_pool"] = "exclude",
        load: Literal["outstanding", "plain", "sessions"] = "outstanding",
        spill: bool = True,
        rebind_on_publish: bool = False,
        ramp_s: float | None = None,
        poison_deaths: int = 2,
        poison_quarantine_s: float = 600.0,
        clock: VirtualClock | None = None,
    ) -> Pool: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> PoolState: ...
    @property
    def weight_version(self) -> int | None:
        """The published version."""
    @property
    def managed(self) -> bool:
        """Whether a manager runs the engines: the lease API then leaves backends, updates and the pool's end to it."""
    @managed.setter
    def managed(self, managed: bool) -> None: ...
    def add_backend(
        self,
        address: str,
        capacity: float = 1.0,
        *,
        id: str | None = None,
        proven: bool = True,
        weight_version: int | None = None,
    ) -> Backend:
        """Registers an engine. The same id and address again only updates the capacity.

        Args:
            address: ``[http://]host:port``.
            capacity: Positive weight, for example the engine's ``max_running_requests``.
            id: Opaque id of at most 256 bytes; the normalised authority when absent.
            proven: False keeps it out of routing until a probe has reached it.
            weight_version: The version its weights are known to have. In a pool with a published version, a backend
                of another or an unknown one is *pending* until ``report_weights`` says that it runs that version.

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
    def resume_backend(self, id: str) -> None:
        """Takes a drained or draining backend back into routing: the same incarnation, with what it still runs.

        Those who wait for a backend are granted it at once. Nothing happens to one that is not draining.

        Raises:
            UnknownBackend: No such id.
            InvalidTransition: It is being retired: it leaves once nothing runs on it.
        """
    def retire_backend(self, backend: Backend) -> bool:
        """Drains this incarnation for good, and forgets it once nothing runs on it: call it again until then.

        Returns:
            Whether it is gone.
        """
    def remove_backend(self, id: str) -> int:
        """Takes a backend out of the pool at once. Its open leases stay valid and settle on the old incarnation.

        Returns:
            Executions still outstanding on it.

        Raises:
            UnknownBackend: No such id.
        """
    def unresolved(self) -> list[tuple[str, Backend]]:
        """Open leases whose end is unknown: their ids, and where they ran (``on_ambiguous="resolve"``).

        A data plane that serves the pool looks after them. In a process without one it is up to the owner of the pool:
        abort the request on that engine, ask until the engine demonstrably no longer has it, then ``settle_lost``.
        """
    def settle_lost(self, lease_id: str) -> None:
        """Ends an unresolved lease whose execution is over: its outcome is ``lost``.

        Raises:
            UnknownLease: It is not open.
            InvalidTransition: Its end is not known to be unknown.
            OutcomeConflict: It was settled otherwise meanwhile.
        """
    def acquire(
        self,
        session: str | None = None,
        *,
        exclude: Sequence[Backend] = ...,
        key: tuple[str, str, int] | None = None,
        expect_version: int | None = None,
    ) -> Lease:
        """Picks a backend and reserves one execution on it, in one critical section.

        Args:
            session: Key of 1 to 256 bytes; its executions stay on one backend. ``None`` means no stickiness.
            exclude: Backends already tried for this execution.
            key: Sender, incarnation and number of the request: the same key again is the same request, and its sender's
                owner may be fenced. Without one the request belongs to the owner ``default``.
            expect_version: The only weight version it may be granted under.

        Raises:
            NoEligibleBackend: None can take it now; the message counts why.
            AtCapacity: ``max_concurrent`` executions are outstanding.
            InvalidRequest: The session key is empty or too long.
            Fenced, NotServing, VersionNotAcked: Nothing is granted to the owner now.
            PoolFailed, PoolClosed: Nothing is granted any more.
            UnknownSender, RequestSettled, StaleRequest, IdempotencyConflict, TooManyTombstones: About the key.
        """
    def acquire_or_park(
        self,
        session: str | None = None,
        *,
        wait_s: float,
        exclude: Sequence[Backend] = ...,
        key: tuple[str, str, int] | None = None,
        expect_version: int | None = None,
    ) -> Lease | ParkedAcquire:
        """Like ``acquire``, but what cannot be granted now waits in the pool's queue, first come, first served.

        Args:
            session: As ``acquire``.
            wait_s: Seconds after which it is granted no more.
            exclude: As ``acquire``.
            key: As ``acquire``.
            expect_version: As ``acquire``.

        Raises:
            TooManyWaiters: The queue is full.
            TrimtabError: As ``acquire`` where waiting cannot help, or when ``wait_s`` is 0.
        """
    def close_session(self, session: str) -> tuple[bool, int]:
        """Forgets a session.

        Returns:
            Whether it was known, and how many of its leases are still open (they stay valid).
        """
    def report_probe(self, backend: Backend, alive: bool) -> None:
        """Reports a liveness probe. A report about an older incarnation is ignored."""
    def report_death(self, backend: Backend, evidence: str) -> bool:
        """Takes in that the process of an engine is dead, for whoever runs it.

        It is down until it is heard again, and what was in flight on it is suspect: see ``poison_entries``. A death
        that is known already changes nothing.

        Args:
            backend: The incarnation that died.
            evidence: How, for people: ``exit code -9``.

        Returns:
            False for an incarnation that is gone: report the death before you remove it.
        """
    def poison_entries(self) -> list[PoisonEntry]:
        """What is suspected to kill engines: the refused ones first, the latest first."""
    def clear_poison(self, entry: str | None = None) -> int:
        """Forgets one suspect, or all of them, so that they may run again.

        Returns:
            How many were forgotten.
        """
    def tick(self) -> None:
        """Expires idle sessions. Called for you by ``acquire`` and by the gateway."""
    def backends(self) -> list[Backend]:
        """Registered backends in the order they were added."""
    def report_weights(self, backend: Backend, version: int, *, reloaded: bool = False) -> bool:
        """Reports the version that an engine says to run; a tainted one needs a full reload (``reloaded``).

        Returns:
            Whether it was taken in: a report about an older incarnation is ignored.
        """
    def taint_backend(self, backend: Backend) -> bool:
        """Reports that an update of a backend failed or is in doubt: nothing is granted on it until a full reload.

        Returns:
            Whether it was taken in: a report about an older incarnation is ignored.
        """
    def attach_owner(self, owner: str, version: int | None = None) -> OwnerStatus:
        """Makes an owner known. With a version it acknowledges that one; a new owner without one the published one.

        Raises:
            InvalidRequest: The name breaks a rule.
        """
    def ack(self, owner: str, version: int) -> OwnerStatus:
        """Reports that the processes of an owner know a version; a lower one than before changes nothing.

        Raises:
            InvalidRequest: No such owner.
        """
    def fence(self, owner: str, reason: str, *, op_id: str | None = None) -> OwnerStatus:
        """Adds a reason for which nothing is granted to an owner. When it has returned, nothing is.

        Args:
            owner: Its name, as attached.
            reason: One of a set: the same reason twice is lifted by one ``unfence``.
            op_id: Names this very call: a late duplicate of it changes nothing.

        Raises:
            InvalidRequest: No such owner.
            IdempotencyConflict: ``op_id`` was used for another call.
        """
    def unfence(self, owner: str, reason: str, *, op_id: str | None = None) -> OwnerStatus:
        """Takes a reason away; without any left, what waits is granted in order.

        Raises:
            InvalidRequest: No such owner.
            IdempotencyConflict: ``op_id`` was used for another call.
            PoolFailed, PoolClosed: Nothing is granted any more.
        """
    def owner_status(self, owner: str) -> OwnerStatus:
        """How an owner stands.

        Raises:
            InvalidRequest: No such owner.
        """
    def attach_sender(self, sender: str, incarnation: str, owner: str) -> Attached:
        """Makes a sender, and its owner, known; another incarnation replaces the one before, whose leases are lost.

        Raises:
            InvalidRequest: A name breaks a rule.
            PoolFailed, PoolClosed: The pool is over.
        """
    def heartbeat(self, sender: str, incarnation: str, settled: Sequence[tuple[int, int]] = ...) -> SenderStatus:
        """A sign of life of a sender.

        Args:
            sender: Its name.
            incarnation: Its process.
            settled: Numbers whose answers it needs no more, as intervals with both ends included.

        Raises:
            UnknownSender: It is not attached, or as another process.
        """
    def detach_sender(self, sender: str, incarnation: str) -> None:
        """Forgets a sender; its waiting acquires fail and its sessions end.

        Raises:
            UnknownSender: It is not attached, or as another process.
            InvalidTransition: It holds leases.
        """
    def close_sender_session(self, sender: str, session: str) -> tuple[bool, int]:
        """Forgets a session of a sender; sessions of different senders are different, whatever they are called.

        Returns:
            As ``close_session``.

        Raises:
            UnknownSender: It is not attached.
        """
    def begin_update(
        self, id: str, *, to: int | None = None, kind: Literal["weights", "offload", "pause"] = "weights"
    ) -> UpdateStatus:
        """Begins an update: nothing is granted from now on. It must have returned before the first engine is paused.

        Args:
            id: Chosen by the controller; the same again is a no-op.
            to: The version it will publish, when that is known.
            kind: ``weights`` ends with ``publish``; ``offload`` (engines lend their memory) and ``pause`` (they keep
                it) end with ``cancel_update`` and the version unchanged.

        Raises:
            UpdateInProgress: Another one is.
            IdempotencyConflict: The id was begun for something else.
            VersionRegression: ``to`` is below the published version.
            PoolFailed, PoolClosed: The pool is over.
        """
    def drain(self, id: str, *, timeout_s: float) -> UpdateStatus:
        """Asks whether nothing is outstanding any more; never waits. ``quiescing`` in the answer means: ask again.

        Args:
            id: The update.
            timeout_s: Seconds from the first call to its deadline; later calls do not move it.

        Raises:
            DrainTimeout: Executions were outstanding at the deadline; the message names the oldest.
            UnknownUpdate, InvalidTransition, PoolFailed, PoolClosed: It cannot be drained.
        """
    def end_server_pause(self, id: str) -> UpdateStatus:
        """Reports that the engines serve again. Nothing is granted by it before the version is published.

        Raises:
            UnknownUpdate, InvalidTransition, PoolFailed, PoolClosed: It cannot happen now.
        """
    def publish(self, id: str, version: int, *, epoch: int | None = None) -> UpdateStatus:
        """Publishes the version that the engines run now: after a successful drain of ``id``, or as the first one.

        Args:
            id: The update.
            version: Not lower than the published one.
            epoch: A new count of versions, above the current epoch.

        Raises:
            VersionRegression, InvalidTransition, IdempotencyConflict, UpdateInProgress, UnknownUpdate: As they say.
            PoolFailed, PoolClosed: The pool is over.
        """
    def cancel_update(self, id: str) -> UpdateStatus:
        """Ends an offload, a pause, or an update of weights that is not drained yet, without a new version.

        Raises:
            UnknownUpdate, InvalidTransition, PoolFailed, PoolClosed: It cannot happen now.
        """
    def fail_update(self, id: str, reason: str) -> UpdateStatus:
        """Ends an update that failed: the pool fails.

        Raises:
            UnknownUpdate, InvalidTransition, PoolClosed: It cannot happen now.
        """
    def update_status(self, id: str) -> UpdateStatus:
        """How an update in progress, or one of the last 16 results, stands.

        Raises:
            UnknownUpdate: Neither.
        """
    def fail(self, reason: str) -> None:
        """Fails the pool for good: what waits and what comes gets ``PoolFailed``. The first cause stays."""
    def close(self) -> None:
        """Closes the pool for good: what waits and what comes gets ``PoolClosed``, and nothing fails it any more."""
    @property
    def revision(self) -> int:
        """Grows when engines come, go or change their health, and when a controller acts. Cheap to look at."""
    def statistics(self) -> PoolStatistics: ...
    def take_events(self) -> tuple[list[str], int]:
        """State changes since the last call, one readable line each, and how many were dropped by the bound."""

@final
class AddressRules:
    """Which engines may be registered over the network.

    Link-local, unspecified and multicast addresses and the metadata services of clouds never are.

    Args:
        allowed: Nothing else is: networks (``10.0.0.0/8``), addresses, host names, ``*.domain``. Empty: anything is.

    Raises:
        InvalidAddress: An entry means nothing.
    """

    def __new__(cls, allowed: Sequence[str] = ...) -> AddressRules: ...
    def check(self, address: str) -> None:
        """Raises ``InvalidAddress`` for an address that is none, or that must not be registered."""

@final
class Role:
    """What the data plane serves under ``/<name>``.

    Args:
        name: One path segment: lower-case letters, digits, ``-`` and ``_``.
        models: Pool by model name; at least one.
        default_model: Serves requests that name no model; a sole model is the default by itself.
        lenient_model: Accept any model name when there is exactly one model.
        route_keys: Model by route key.
        router_urls: URL of the router by model, for models that are reached through one; the pool's backend is it.
        session_fields: Members of a body that may name the session: ``session_id``, ``user``.
        genrm: Models that are asked with messages on ``/generate``: ``sampling_defaults`` and
            ``chat_template_kwargs`` of each, as JSON objects.

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
        route_keys: Mapping[str, str] | None = None,
        router_urls: Mapping[str, str] | None = None,
        session_fields: Sequence[str] | None = None,
        genrm: Mapping[str, tuple[str, str | None]] | None = None,
    ) -> Role: ...
    @property
    def name(self) -> str: ...

@final
class Route:
    """Where a request goes. Immutable and hashable."""

    @property
    def model(self) -> str:
        """The model's name."""
    @property
    def router_url(self) -> str | None:
        """The router it is reached through; ``None``: one of its engines."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RoutingTable:
    """Which model of a role runs a request: the gateway's own resolver, on a frozen table.

    Explicit ``model``, else ``route_key``, else the default model, else refused. Nothing unknown falls through.

    Args:
        role: For messages.
        models: The models' names, at least one.
        router_urls: URL of the router by model, for models that are reached through one.
        route_keys: Model by route key.
        default_model: Serves requests that name no model; a sole model is the default by itself.
        lenient_model: Ignore ``model`` when there is exactly one model.
        session_fields: Members of a body that may name the session: ``session_id``, ``user``.

    Raises:
        InvalidRequest: The message names the rule.
    """

    def __new__(
        cls,
        role: str,
        models: Sequence[str],
        *,
        router_urls: Mapping[str, str] | None = None,
        route_keys: Mapping[str, str] | None = None,
        default_model: str | None = None,
        lenient_model: bool = False,
        session_fields: Sequence[str] | None = None,
    ) -> RoutingTable: ...
    @staticmethod
    def from_discovery(document: Mapping[str, Any]) -> RoutingTable:
        """The table of a discovery document (``GET /<role>/engines``).

        Raises:
            InvalidRequest: It is no such document.
        """
    def resolve(self, request: Mapping[str, Any]) -> Route:
        """The model that a request's body goes to; only ``model`` and ``route_key`` are read.

        Raises:
            InvalidModel, UnknownModel, InvalidRouteKey, UnknownRouteKey, ModelRequired: The message lists what is
                known.
        """
    def session(self, request: Mapping[str, Any]) -> str | None:
        """The session that a request's body names in one of the session fields; ``None`` or absent names none.

        Raises:
            InvalidRequest: It is no string.
        """
    @property
    def role(self) -> str:
        """The role."""
    @property
    def models(self) -> list[str]:
        """The models' names."""

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
        client_key: str | None = None,
        admin_key: str | None = None,
        engine_key: str | None = None,
        metrics_need_key: bool = False,
        tls_cert: str | PathLike[str] | None = None,
        tls_key: str | PathLike[str] | None = None,
        engine_ca: str | PathLike[str] | None = None,
        max_clients: int | None = None,
        min_ready: Mapping[str, int] | None = None,
        lease_socket: str | None = None,
        traces: bool = False,
        address_rules: AddressRules | None = None,
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
            client_key: What callers of engine endpoints, discovery, models and status must show, as ``Authorization:
                Bearer`` or ``x-api-key``; ``admin_key`` opens them, too. Neither ever reaches an engine. None: anybody.
            admin_key: What callers of the lease API under ``/v1/router`` must show. Without one it is open to this
                machine, and closed when ``host`` can be reached by others.
            engine_key: The engines' own key (SGLang's ``--api-key``), sent with probes and with requests that carry no
                credentials of their own.
            metrics_need_key: Whether ``/metrics`` asks for the client key as well.
            tls_cert: PEM file with the listener's certificate chain; it speaks TLS then, and needs ``tls_key``.
            tls_key: PEM file with its private key.
            engine_ca: PEM file with what certificates of ``https://`` engines are checked against. None: the system's.
            max_clients: Client connections served at a time; more are answered 503 (but on ``/live`` and ``/ready``),
                and connections are closed after their answers until there is room again. None: no limit.
            min_ready: Eligible engines that ``/ready`` asks of a pool, by its name: 1 where none is given, 0 for a pool
                that is not required.
            lease_socket: Unix socket on which the lease API is served, too; made with mode 0600, removed at the end.
            traces: Keep finished executions of traced requests for ``take_traces``.
            address_rules: Which engines the lease API may register.

        Raises:
            StartError: The address or the socket cannot be bound.
            InvalidRequest: A role or number breaks a rule.
        """
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int:
        """The port that is bound."""
    def statistics(self) -> dict[str, Any]:
        """Counters of the data plane; docs/observability.md lists the keys."""
    def take_traces(self) -> tuple[list[dict[str, Any]], int]:
        """Takes the executions that ended since the last call, of requests with a sampled ``traceparent``.

        Returns:
            One entry per execution: ``traceparent``, ``tracestate``, ``pool``, ``backend``, ``lease``, ``session``,
            ``weight_version``, ``outcome``, ``status`` (of the engine; None without an answer), ``ended_ns`` (since
            1970), ``queue_s``, ``first_byte_s`` (None without an answer) and ``total_s``; and how many more found no
            room, since nobody called for too long.
        """
    def loop_lag(self) -> Histogram:
        """How much later than due timers of the data plane ran."""
    def take_failures(self) -> list[dict[str, Any]]:
        """What could not be served since the last call, one entry per error code and engine.

        Each has ``code``, ``count``, ``message``, and ``backend``, ``lease`` and ``session`` of the last one (or
        ``None``).
        A client's mistakes (4xx but 429) are not among them.
        """
    def take_version_mismatches(self) -> list[dict[str, Any]]:
        """Answers since the last call whose engines ran other weights than their leases say.

        Returns:
            One entry per pool and engine: ``pool``, ``backend``, ``count``, and of the last one ``lease``,
            ``expected`` and ``observed`` version; ``None`` for an engine that had named a version and does so no more:
            it was started anew.
        """
    def engine_notes(self) -> list[dict[str, str]]:
        """What is odd about engines that are alive: their probes were refused.

        Returns:
            One entry per engine: ``pool``, ``backend``, and ``note``, which says what to do about it.
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
