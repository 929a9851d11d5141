"""Descriptors of this process: how many there may be, and for how many clients that is enough.

A client that is served needs two, its own connection and one to an engine. Beside them the listener, the log, probes and
aborts need some, and those who are turned away need one each for a moment.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab_gateway.config import GatewayConfig

_MANY = 2**20
_PER_CLIENT = 2
_RESERVED = 64
"""For the listener, the control app, aborts, and the 16 that are turned away at a time."""


def raise_limit() -> int | None:
    """Use as many as this process may have.

    Returns:
        The soft limit afterwards; None: there is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY if hard == resource.RLIM_INFINITY else min(hard, _MANY)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # then it stays as it is, and is told as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return _soft_limit()


def max_clients(config: GatewayConfig) -> int | None:
    """Clients that can be served at a time with the descriptors that are left now; at least one. None: no limit."""
    limit = _soft_limit()
    if limit is None:
        return None
    return max(1, (limit - _open() - _RESERVED - _engines(config)) // _PER_CLIENT)


def needed(config: GatewayConfig) -> int | None:
    """Descriptors for as many clients as may run and queue at a time; None when a model has no ``max_concurrent``."""
    clients = 0
    for role in config.roles:
        for model in role.models:
            if model.max_concurrent is None:
                return None
            queue = 0 if model.queue_timeout_s is None else model.queue_size
            if queue is None:
                return None
            clients += model.max_concurrent + queue
    return _PER_CLIENT * clients + _open() + _RESERVED + _engines(config)


def _soft_limit() -> int | None:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- a Path would be made of each
    except OSError:
        return _RESERVED


def _engines(config: GatewayConfig) -> int:
    """Each may be probed at the same moment."""
    return sum(len(model.engines) for role in config.roles for model in role.models)
