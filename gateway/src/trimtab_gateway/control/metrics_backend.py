"""The metric families of engines. Their series end with the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_gateway.control.exposition import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab._core import PoolStatistics

BACKEND_STATES = ("unproven", "up", "suspect", "down", "half_open", "draining")


def backend_families(pools: Iterable[PoolStatistics]) -> Iterable[Family]:
    """The families of the engines of the given pools."""
    outstanding = Family("trimtab_outstanding", "gauge", "Executions outstanding on a backend")
    capacity = Family("trimtab_capacity", "gauge", "Capacity of a backend")
    sessions = Family("trimtab_sessions", "gauge", "Live sessions pinned to a backend")
    tokens = Family("trimtab_output_tokens", "counter", "Output tokens reported at settlement")
    state = Family("trimtab_backend_state", "gauge", "1 for the state a backend is in")
    unhealthy = Family("trimtab_health_budget_used_seconds", "gauge", "For how long a backend has been unhealthy")
    for pool in pools:
        for backend in pool.backends:
            key = labels(pool=pool.name, backend=backend.id)
            outstanding.add(backend.outstanding, key)
            capacity.add(backend.capacity, key)
            sessions.add(backend.sessions, key)
            tokens.add(backend.output_tokens, key)
            unhealthy.add(backend.unhealthy_s, key)
            current = "draining" if backend.draining else backend.health
            for name in BACKEND_STATES:
                state.add(int(name == current), f'{key},state="{name}"')
    return outstanding, capacity, sessions, tokens, state, unhealthy
