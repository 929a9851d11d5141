"""The lease API as values: calls, answers, and when to ask again. No sockets, no clock of its own.

Every call of the lease API carries a key of the caller's choice, and the same call again gets the same answer. So a
lost reply is answered by asking again, and only metadata is ever sent twice: nothing here talks to an engine.

The steps of an exchange are a generator: it yields what to do (a ``Call``, a ``Pause``) and is sent what came of it.
The coroutine and the thread that drive it differ in nothing but how they wait.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from trimtab.errors import InvalidRequest, RouterUnreachable, Starting, TrimtabError, error_of

__all__ = [
    "MAX_WAIT_S",
    "Call",
    "Pause",
    "Reply",
    "RetryPolicy",
    "Step",
    "Steps",
    "Target",
    "TransportFault",
    "exchange",
    "pool_path",
    "without_nones",
]

T = TypeVar("T")

MAX_WAIT_S = 30.0
"""The longest wait of one call; longer ones are asked for again, with the same key."""

_MAYBE_LATER = (502, 503, 504)
_OK, _MULTIPLE_CHOICES = 200, 300


@dataclass(frozen=True)
class Call:
    """One HTTP request of the lease API.

    Attributes:
        method: ``GET``, ``POST`` or ``DELETE``.
        path: Path and query.
        body: What is sent as JSON; ``None`` sends no body.
        wait_s: How long the router may hold the answer back.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class Pause:
    """A wait before the next call."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """A complete HTTP answer."""

    status: int
    content: bytes


Step: TypeAlias = Call | Pause
Steps: TypeAlias = Generator[Step, Reply | None, T]
"""Steps that end in a ``T``. After a ``Call`` it is sent a ``Reply`` or thrown a ``TransportFault``, after a ``Pause``
nothing."""


class TransportFault(Exception):
    """No complete answer came; the call may or may not have arrived."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a metadata call is sent again: no complete answer, or 502, 503 and 504 that are not a verdict.

    Attributes:
        timeout_s: For one answer, beyond the wait that was asked for.
        horizon_s: From the first attempt of a call to the last, beyond that wait.
        first_delay_s: Before the second attempt; doubled for each further one, and shortened at random by up to half,
            so that a fleet of senders does not come back in one instant.
        max_delay_s: The longest delay.
    """

    timeout_s: float = 5.0
    horizon_s: float = 60.0
    first_delay_s: float = 0.05
    max_delay_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "horizon_s", "first_delay_s", "max_delay_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidRequest(f"{name} is {getattr(self, name)}: it must be a finite number of seconds above 0")

    def delay_s(self, attempt: int) -> float:
        """The delay after attempt ``attempt``, the first being 0."""
        longest = min(self.max_delay_s, self.first_delay_s * 2.0 ** min(attempt, 32))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, guards nothing


class Target:
    """A router's base URL and the admin key for it. The key shows in no text that is made of it."""

    def __init__(self, url: str, key: str | None) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        # The URL itself is not repeated: it is the wrong one, and may be wrong by a password.
        if not usable or parts.username is not None or parts.query or parts.fragment or parts.path.strip("/"):
            raise InvalidRequest("the router's URL is refused: it must be http[s]://host[:port] and nothing else")
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise InvalidRequest("the admin key is refused: it must be one or more visible ASCII characters")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.is_tls = parts.scheme == "https"
        self.headers: Mapping[str, str] = {} if key is None else {"Authorization": f"Bearer {key}"}

    def __repr__(self) -> str:
        return f"Target({self.url!r})"


def pool_path(pool: str, *names: str) -> str:
    """The path of something in a pool: ``names`` are single segments, whatever they contain."""
    role, _, model = pool.partition("/")
    return "/".join(["/v1/router/pools", *(quote(name, safe=":") for name in (role, model, *names))])


def without_nones(**members: Any) -> dict[str, Any]:
    """A JSON object of the members that are given."""
    return {name: value for name, value in members.items() if value is not None}


def exchange(call: Call, policy: RetryPolicy, clock: Callable[[], float]) -> Steps[dict[str, Any]]:
    """Sends a call until it is answered.

    Returns:
        The members of the answer.

    Raises:
        RouterUnreachable: No usable answer within the horizon.
        TrimtabError: What the router refused.
    """
    deadline = clock() + policy.horizon_s + call.wait_s
    attempt = 0
    while True:
        try:
            reply = yield call
        except TransportFault as fault:
            trouble = str(fault)
        else:
            if reply is None:
                msg = "a call was answered with nothing"
                raise RuntimeError(msg)
            try:
                return _read(reply)
            except (Starting, _NotOurs) as error:
                if reply.status not in _MAYBE_LATER:
                    raise
                trouble = f"status {reply.status}: {error}"
        pause = policy.delay_s(attempt)
        if clock() + pause > deadline:
            raise RouterUnreachable(
                f"{call.method} {call.path}: no usable answer of the router within {policy.horizon_s:g} s and"
                f" {attempt + 1} attempts; the last: {trouble}"
            )
        attempt += 1
        yield Pause(pause)


class _NotOurs(TrimtabError):
    """An answer that no trimtab router gives; perhaps one of something in between."""

    code = "foreign_answer"


def _read(reply: Reply) -> dict[str, Any]:
    try:
        members = json.loads(reply.content)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise _NotOurs(f"status {reply.status} without a JSON object: is this the URL of a trimtab router?")
    if _OK <= reply.status < _MULTIPLE_CHOICES:
        return members
    error = members.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        raise _NotOurs(f"status {reply.status} without an error code: is this the URL of a trimtab router?")
    detail = error.get("detail")
    raise error_of(
        error["code"],
        str(error.get("message", "")),
        retryable=error.get("retryable") is True,
        detail=detail if isinstance(detail, dict) else None,
    )
