"""What an exception of an HTTP client says about the execution it interrupted.

A lease must end with what the caller *saw*, and most callers see an exception. The difference that matters is whether a
byte of the request may have been written: before, the execution certainly did not happen and may be tried elsewhere;
after, nobody knows. So only exceptions that are raised while connecting are ``not_sent``, and everything that is not
known for sure is ``ambiguous``.

The clients are recognised by module and class name, so none of them is imported: importing aiohttp, or only asyncio,
costs more than all of trimtab. Of an exception that is not recognised, only what it *says* to be its cause (``raise ...
from``) is looked at. The exception it happened to be raised beside may belong to an earlier attempt, and would turn
"nobody knows" into "not sent".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.outcome import Outcome

__all__ = ["classify"]

# First module of the class, then its name.
_CANCELLED = frozenset(
    {("asyncio", "CancelledError"), ("builtins", "KeyboardInterrupt"), ("builtins", "GeneratorExit")}
)

# Subclasses follow their closest known base.
_OUTCOMES: Mapping[tuple[str, str], Outcome] = {
    ("builtins", "ConnectionRefusedError"): "not_sent",
    ("socket", "gaierror"): "not_sent",
    ("builtins", "OSError"): "ambiguous",  # resets, broken pipes, and TimeoutError, which is one
    ("asyncio", "TimeoutError"): "ambiguous",  # not an OSError before Python 3.11
    ("asyncio", "IncompleteReadError"): "ambiguous",
    ("http", "HTTPException"): "ambiguous",
    ("aiohttp", "ClientConnectorError"): "not_sent",
    ("aiohttp", "ConnectionTimeoutError"): "not_sent",
    ("aiohttp", "InvalidURL"): "not_sent",
    ("aiohttp", "ClientError"): "ambiguous",
    ("httpx", "ConnectError"): "not_sent",
    ("httpx", "ConnectTimeout"): "not_sent",
    ("httpx", "PoolTimeout"): "not_sent",
    ("httpx", "UnsupportedProtocol"): "not_sent",
    ("httpx", "InvalidURL"): "not_sent",
    ("httpx", "HTTPError"): "ambiguous",
    ("httpx", "StreamError"): "ambiguous",
    ("httpcore", "ConnectError"): "not_sent",
    ("httpcore", "ConnectTimeout"): "not_sent",
    ("httpcore", "PoolTimeout"): "not_sent",
    ("httpcore", "TimeoutException"): "ambiguous",
    ("httpcore", "NetworkError"): "ambiguous",
    ("httpcore", "ProtocolError"): "ambiguous",
    ("requests", "ConnectTimeout"): "not_sent",
    ("requests", "MissingSchema"): "not_sent",
    ("requests", "InvalidSchema"): "not_sent",
    ("requests", "InvalidURL"): "not_sent",
    ("requests", "RequestException"): "ambiguous",
    ("urllib3", "NewConnectionError"): "not_sent",
    ("urllib3", "ConnectTimeoutError"): "not_sent",
    ("urllib3", "HTTPError"): "ambiguous",
}

# These only wrap another exception of the same library, which they carry in an attribute.
_WRAPPERS: Mapping[tuple[str, str], str] = {
    ("requests", "ConnectionError"): "args",
    ("urllib3", "MaxRetryError"): "reason",
    ("urllib", "URLError"): "reason",
}

# These report an answer, whose status they carry.
_ANSWERS: frozenset[tuple[str, str]] = frozenset(
    {
        ("aiohttp", "ClientResponseError"),
        ("httpx", "HTTPStatusError"),
        ("requests", "HTTPError"),
        ("urllib", "HTTPError"),
    }
)


def classify(exc: BaseException) -> Outcome:
    """The outcome of an execution that ended with ``exc``.

    Understands aiohttp, httpx, requests, urllib, and the exceptions of the operating system; groups of exceptions have
    an outcome if all their members agree.

    Args:
        exc: What the caller's HTTP client, or the code around it, raised.

    Returns:
        ``not_sent``: no request byte was written (refused, not resolved, connect timeout). ``rejected``: a 4xx answer.
        ``failed``: a 5xx answer. ``cancelled``: the caller's own doing. ``ambiguous``: everything else.

    Example:
        >>> classify(ConnectionRefusedError())
        'not_sent'
        >>> classify(ConnectionResetError())
        'ambiguous'
    """
    return recognised(exc) or "ambiguous"


def recognised(exc: BaseException) -> Outcome | None:
    """What ``classify`` says, or ``None`` for an exception of other code, which says nothing about the engine."""
    if not _CANCELLED.isdisjoint(_names(exc)):
        return "cancelled"
    members = getattr(exc, "exceptions", None)
    if isinstance(members, tuple) and members:
        outcomes = {recognised(member) for member in members}
        return outcomes.pop() if len(outcomes) == 1 else "ambiguous"
    for link in _chain(exc):
        outcome = _of_one(link)
        if outcome is not None:
            return outcome
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception, what it wraps or says to be its cause, and so on; a cycle ends it."""
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = _wrapped(link) or link.__cause__


def _names(exc: BaseException) -> Iterator[tuple[str, str]]:
    for base in type(exc).__mro__:
        yield base.__module__.partition(".")[0], base.__name__


def _wrapped(exc: BaseException) -> BaseException | None:
    for name in _names(exc):
        if name in _WRAPPERS:
            carried = getattr(exc, _WRAPPERS[name], None)
            if isinstance(carried, tuple):
                carried = carried[0] if carried else None
            return carried if isinstance(carried, BaseException) else None
        if name in _OUTCOMES:
            return None
    return None


def _of_one(exc: BaseException) -> Outcome | None:
    """What the class of one exception says; ``None`` when it says nothing, or only wraps another."""
    for name in _names(exc):
        if name in _ANSWERS:
            return _of_status(exc)
        if name in _WRAPPERS and _wrapped(exc) is not None:
            return None
        if name in _OUTCOMES:
            return _OUTCOMES[name]
    return None


def _of_status(exc: BaseException) -> Outcome:
    # aiohttp reports an answer that it cannot parse as one with status 400.
    if exc.__cause__ is not None and ("aiohttp", "HttpProcessingError") in _names(exc.__cause__):
        return "ambiguous"
    response = getattr(exc, "response", None)
    status = next(
        (
            value
            for holder, attribute in ((exc, "status"), (exc, "code"), (response, "status_code"))
            if isinstance(value := getattr(holder, attribute, None), int)
        ),
        0,
    )
    if 400 <= status < 500:  # noqa: PLR2004 - the classes of HTTP statuses
        return "rejected"
    if 500 <= status < 600:  # noqa: PLR2004
        return "failed"
    # Another status in an error is about the body: an answer that cannot be read, or is not the engine's.
    return "ambiguous"
