"""trimtab: session-sticky, capacity-normalised routing for SGLang rollouts.

``Router`` is the in-process router; the gateway (``trimtab serve``) puts the same core behind HTTP, where
``RouterClient``, ``SyncRouterClient`` and ``RouterAdmin`` (the extra ``trimtab[client]``) find it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab._core import (
    Backend,
    BackendStatistics,
    Lease,
    OwnerStatus,
    ParkedAcquire,
    Pool,
    PoolStatistics,
    Route,
    RoutingTable,
    SenderStatus,
    UpdateStatus,
    __version__,
    normalize_address,
)
from trimtab.classification import classify
from trimtab.errors import (
    AtCapacity,
    BackendBusy,
    DrainTimeout,
    EngineBroken,
    EngineUnreachable,
    Fenced,
    Forbidden,
    IdempotencyConflict,
    InvalidAddress,
    InvalidCapacity,
    InvalidModel,
    InvalidRequest,
    InvalidRouteKey,
    InvalidTransition,
    Managed,
    ModelRequired,
    NoEligibleBackend,
    NotDirect,
    NotManaged,
    NotServing,
    OutcomeConflict,
    PoisonSuspected,
    PoolClosed,
    PoolFailed,
    RequestSettled,
    RouterRestarted,
    RouterUnreachable,
    RoutingError,
    SessionClosed,
    StaleDiscovery,
    StaleRequest,
    StartError,
    Starting,
    TooManyTombstones,
    TooManyWaiters,
    TrimtabError,
    Unauthenticated,
    UnknownBackend,
    UnknownLease,
    UnknownModel,
    UnknownPool,
    UnknownRouteKey,
    UnknownSender,
    UnknownUpdate,
    UpdateInProgress,
    VersionNotAcked,
    VersionRegression,
)
from trimtab.outcome import Outcome
from trimtab.router import Router
from trimtab.state import PoolState

if TYPE_CHECKING:
    from trimtab.admin import RouterAdmin
    from trimtab.client import RouterClient
    from trimtab.direct import DirectClient
    from trimtab.direct_answer import DirectAnswer
    from trimtab.direct_sync import SyncDirectClient
    from trimtab.sync_client import SyncRouterClient

__all__ = [
    "AtCapacity",
    "Backend",
    "BackendBusy",
    "BackendStatistics",
    "DirectAnswer",
    "DirectClient",
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
    "Lease",
    "Managed",
    "ModelRequired",
    "NoEligibleBackend",
    "NotDirect",
    "NotManaged",
    "NotServing",
    "Outcome",
    "OutcomeConflict",
    "OwnerStatus",
    "ParkedAcquire",
    "PoisonSuspected",
    "Pool",
    "PoolClosed",
    "PoolFailed",
    "PoolState",
    "PoolStatistics",
    "RequestSettled",
    "Route",
    "Router",
    "RouterAdmin",
    "RouterClient",
    "RouterRestarted",
    "RouterUnreachable",
    "RoutingError",
    "RoutingTable",
    "SenderStatus",
    "SessionClosed",
    "StaleDiscovery",
    "StaleRequest",
    "StartError",
    "Starting",
    "SyncDirectClient",
    "SyncRouterClient",
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
    "UpdateStatus",
    "VersionNotAcked",
    "VersionRegression",
    "__version__",
    "classify",
    "normalize_address",
]

# Imported when they are asked for: they need an HTTP client, which costs more than all the rest.
_LAZY = {
    "DirectAnswer": "trimtab.direct_answer",
    "DirectClient": "trimtab.direct",
    "SyncDirectClient": "trimtab.direct_sync",
    "RouterAdmin": "trimtab.admin",
    "RouterClient": "trimtab.client",
    "SyncRouterClient": "trimtab.sync_client",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
