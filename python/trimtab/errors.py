"""Typed errors of trimtab: a machine-readable code, and whether asking again can help.

The same vocabulary is spoken by the in-process pool and by the lease API, so code that handles an error does not care
where the router runs. ``error_of`` is the one way from a code to its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "AtCapacity",
    "BackendBusy",
    "DrainTimeout",
    "EngineBroken",
    "EngineUnreachable",
    "Fenced",
    "Forbidden",
    "IdempotencyConflict",
    "InvalidAddress",
    "InvalidCapacity",
    "InvalidModel",
    "InvalidRequest",
    "InvalidRouteKey",
    "InvalidTransition",
    "Managed",
    "ModelRequired",
    "NoEligibleBackend",
    "NotDirect",
    "NotManaged",
    "NotServing",
    "OutcomeConflict",
    "PoisonSuspected",
    "PoolClosed",
    "PoolFailed",
    "RequestSettled",
    "RouterRestarted",
    "RouterUnreachable",
    "RoutingError",
    "SessionClosed",
    "StaleDiscovery",
    "StaleRequest",
    "StartError",
    "Starting",
    "TooManyTombstones",
    "TooManyWaiters",
    "TrimtabError",
    "Unauthenticated",
    "UnknownBackend",
    "UnknownLease",
    "UnknownModel",
    "UnknownPool",
    "UnknownRouteKey",
    "UnknownSender",
    "UnknownUpdate",
    "UpdateInProgress",
    "VersionNotAcked",
    "VersionRegression",
    "error_of",
]


class TrimtabError(Exception):
    """Base of every error trimtab raises on purpose.

    Attributes:
        code: The machine-readable code, the same in HTTP answers, exceptions and logs.
        retryable: Whether the same call can succeed later without any change by the caller.
        detail: What a router's HTTP answer said beyond the message, as JSON values; empty in process.
    """

    code: ClassVar[str] = "internal_error"
    retryable: bool = False
    detail: Mapping[str, Any] = {}


class InvalidAddress(TrimtabError, ValueError):
    """An engine address breaks a rule; the message names the value and the rule."""

    code = "invalid_address"


class InvalidCapacity(TrimtabError, ValueError):
    """A capacity is not a finite number between 1e-6 and 1e9."""

    code = "invalid_capacity"


class InvalidRequest(TrimtabError, ValueError):
    """An argument breaks a rule; the message names it."""

    code = "invalid_request"


class RoutingError(TrimtabError, ValueError):
    """A request names no model that is served; the message lists what is known. Base of the five below."""

    code = "routing_error"


class InvalidModel(RoutingError):
    """``model`` is empty or no string."""

    code = "invalid_model"


class UnknownModel(RoutingError, LookupError):
    """``model`` is none of the role's."""

    code = "unknown_model"


class InvalidRouteKey(RoutingError):
    """``route_key`` is empty or no string."""

    code = "invalid_route_key"


class UnknownRouteKey(RoutingError, LookupError):
    """``route_key`` is not mapped to a model."""

    code = "unknown_route_key"


class ModelRequired(RoutingError):
    """The role serves several models and has no default, and the request names none."""

    code = "model_required"


class NotDirect(TrimtabError):
    """The model may not be called directly; the message says why, and the way out. Nothing was sent."""

    code = "not_direct"


class StaleDiscovery(TrimtabError):
    """The gateway has lost sight of its engines and vouches for none of them. Nothing was sent."""

    code = "stale_discovery"
    retryable = True


class EngineUnreachable(TrimtabError, ConnectionError):
    """No byte of the request was written: it did not run, and may be sent again."""

    code = "engine_unreachable"
    retryable = True


class EngineBroken(TrimtabError, ConnectionError):
    """The engine's answer broke off or did not come: nobody knows whether the request ran."""

    code = "engine_broken"


class NotManaged(TrimtabError):
    """Nobody here may act on the engines, or not in this way; the message names the way out. Nothing was done."""

    code = "not_managed"


class Managed(TrimtabError):
    """A manager runs these engines, and alone may do that; the message names the way out. Nothing was done."""

    code = "managed"


class Unauthenticated(TrimtabError):
    """The router wants an admin key, and none (or a malformed one) was sent."""

    code = "unauthenticated"


class Forbidden(TrimtabError):
    """The admin key is not the router's."""

    code = "forbidden"


class UnknownPool(TrimtabError, LookupError):
    """The router has no pool of that name."""

    code = "unknown_pool"


class UnknownBackend(TrimtabError, LookupError):
    """The pool has no backend of that id."""

    code = "unknown_backend"


class UnknownSender(TrimtabError, LookupError):
    """No such sender, or another process of it, is attached."""

    code = "unknown_sender"


class UnknownLease(TrimtabError, LookupError):
    """The lease is not open: it was settled before."""

    code = "unknown_lease"


class UnknownUpdate(TrimtabError, LookupError):
    """No such update is in progress or among the last results."""

    code = "unknown_update"


class IdempotencyConflict(TrimtabError):
    """A key was used before for something else; nothing changed."""

    code = "idempotency_conflict"


class RequestSettled(TrimtabError):
    """The request was granted a lease, which is settled."""

    code = "request_settled"


class StaleRequest(TrimtabError):
    """The sender itself said that this request is settled, or it expects a version that is published no more."""

    code = "stale_request"


class OutcomeConflict(TrimtabError):
    """The lease was settled with another outcome, which stays."""

    code = "outcome_conflict"


class UpdateInProgress(TrimtabError):
    """Another update is in progress."""

    code = "update_in_progress"
    retryable = True


class InvalidTransition(TrimtabError):
    """The pool, or the update, is not in a state in which this can happen."""

    code = "invalid_transition"


class VersionRegression(TrimtabError):
    """The version is lower than the published one, and no new epoch was declared."""

    code = "version_regression"


class BackendBusy(TrimtabError):
    """The backend still runs executions, so it is only draining."""

    code = "backend_busy"
    retryable = True


class SessionClosed(TrimtabError):
    """The session was closed while the request waited."""

    code = "session_closed"


class RouterRestarted(TrimtabError):
    """The router restarted or lost this sender, and what the call is about is gone: a lease, an update, a fence."""

    code = "router_restarted"


class PoolFailed(TrimtabError):
    """The pool failed for good; the message names the first cause."""

    code = "pool_failed"


class PoolClosed(TrimtabError):
    """The pool was closed by its owner."""

    code = "pool_closed"


class PoisonSuspected(TrimtabError):
    """Engines died while this request, or a turn of this session, ran on them; the message has the evidence."""

    code = "poison_suspected"


class Fenced(TrimtabError):
    """The owner is fenced; the message names the reasons."""

    code = "fenced"
    retryable = True


class VersionNotAcked(TrimtabError):
    """The owner has not acknowledged the published version."""

    code = "version_not_acked"
    retryable = True


class NoEligibleBackend(TrimtabError):
    """No backend may take a new execution now; the message counts why."""

    code = "no_eligible_backend"
    retryable = True


class NotServing(TrimtabError):
    """The pool does not serve now, or its servers are paused; the message names the update."""

    code = "not_serving"
    retryable = True


class TooManyTombstones(TrimtabError):
    """The sender has too many settled requests that it did not report as settled."""

    code = "too_many_tombstones"
    retryable = True


class TooManyWaiters(TrimtabError):
    """Too many requests wait in this pool already."""

    code = "too_many_waiters"
    retryable = True


class AtCapacity(TrimtabError):
    """The pool runs as many executions as ``max_concurrent`` allows."""

    code = "at_capacity"
    retryable = True


class Starting(TrimtabError):
    """The router is starting."""

    code = "starting"
    retryable = True


class DrainTimeout(TrimtabError):
    """Executions were outstanding at the deadline of a drain; retryable only if the pool did not fail by it."""

    code = "drain_timeout"


class RouterUnreachable(TrimtabError, ConnectionError):
    """The router gave no usable answer within the retry horizon; the call may or may not have had its effect."""

    code = "router_unreachable"
    retryable = True


class StartError(TrimtabError, OSError):
    """The data plane could not start; the message names the address and the way out."""

    code = "start_failed"


_BY_CODE: Mapping[str, type[TrimtabError]] = {
    error.code: error
    for error in list(globals().values())
    if isinstance(error, type) and issubclass(error, TrimtabError)
}


def error_of(
    code: str, message: str, *, retryable: bool | None = None, detail: Mapping[str, Any] | None = None
) -> TrimtabError:
    """The error of a machine-readable code, not raised.

    Args:
        code: The code; one this version does not know gives a plain ``TrimtabError`` whose message begins with it.
        message: For people.
        retryable: What the router says about asking again; ``None`` keeps the class's answer.
        detail: What the router said beyond the message.
    """
    error_class = _BY_CODE.get(code)
    error = TrimtabError(f"{code}: {message}") if error_class is None else error_class(message)
    if retryable is not None:
        error.retryable = retryable
    if detail is not None:
        error.detail = detail
    return error
