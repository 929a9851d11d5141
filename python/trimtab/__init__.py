"""trimtab: session-sticky, capacity-normalised routing for SGLang rollouts.

``Router`` is the in-process router; the gateway (``trimtab serve``) puts the same core behind HTTP.
"""

from __future__ import annotations

from trimtab._core import Backend, BackendStatistics, Lease, Pool, PoolStatistics, __version__, normalize_address
from trimtab.errors import (
    AtCapacity,
    InvalidAddress,
    InvalidCapacity,
    InvalidRequest,
    NoEligibleBackend,
    StartError,
    TrimtabError,
    UnknownBackend,
    UnknownLease,
)
from trimtab.outcome import Outcome
from trimtab.router import Router

__all__ = [
    "AtCapacity",
    "Backend",
    "BackendStatistics",
    "InvalidAddress",
    "InvalidCapacity",
    "InvalidRequest",
    "Lease",
    "NoEligibleBackend",
    "Outcome",
    "Pool",
    "PoolStatistics",
    "Router",
    "StartError",
    "TrimtabError",
    "UnknownBackend",
    "UnknownLease",
    "__version__",
    "normalize_address",
]
