"""Typed errors of trimtab: a machine-readable code, and whether asking again can help."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AtCapacity",
    "InvalidAddress",
    "InvalidCapacity",
    "InvalidRequest",
    "NoEligibleBackend",
    "StartError",
    "TrimtabError",
    "UnknownBackend",
    "UnknownLease",
]


class TrimtabError(Exception):
    """Base of every error trimtab raises on purpose.

    Attributes:
        code: The machine-readable code, the same in HTTP answers, exceptions and logs.
        retryable: Whether the same call can succeed later without any change by the caller.
    """

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False


class InvalidAddress(TrimtabError, ValueError):
    """An engine address breaks a rule; the message names the value and the rule."""

    code = "invalid_address"


class InvalidCapacity(TrimtabError, ValueError):
    """A capacity is not a finite number between 1e-6 and 1e9."""

    code = "invalid_capacity"


class InvalidRequest(TrimtabError, ValueError):
    """An argument breaks a rule; the message names it."""

    code = "invalid_request"


class UnknownBackend(TrimtabError, LookupError):
    """The pool has no backend of that id."""

    code = "unknown_backend"


class UnknownLease(TrimtabError, LookupError):
    """The lease is not open: it was settled before."""

    code = "unknown_lease"


class NoEligibleBackend(TrimtabError):
    """No backend may take a new execution now; the message counts why."""

    code = "no_eligible_backend"
    retryable = True


class AtCapacity(TrimtabError):
    """The pool runs as many executions as ``max_concurrent`` allows."""

    code = "at_capacity"
    retryable = True


class StartError(TrimtabError, OSError):
    """The data plane could not start; the message names the address and the way out."""

    code = "start_failed"
