"""The metric families of pools: executions, who waits for one, and what a controller fenced and published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from trimtab.state import PoolState
from trimtab_gateway.control.exposition import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab._core import PoolStatistics

POOL_STATES: tuple[str, ...] = get_args(PoolState)

POOL_GAUGES: dict[str, tuple[str, Callable[[PoolStatistics], float]]] = {
    "trimtab_pool_generation": ("Updates that began", lambda pool: pool.generation),
    "trimtab_senders": ("Senders that are attached", lambda pool: len(pool.senders)),
    "trimtab_tombstones": ("Settled requests that are remembered", lambda pool: pool.tombstones),
    "trimtab_unresolved": ("Executions whose end is being found out", lambda pool: pool.unresolved),
    "trimtab_poison_refused": ("Requests and sessions refused for killing engines", lambda pool: pool.poison_refused),
}

POOL_COUNTERS: dict[str, tuple[str, Callable[[PoolStatistics], float]]] = {
    "trimtab_ambiguous": ("Executions of which nobody knows the end", lambda pool: pool.outcomes["ambiguous"]),
    "trimtab_version_mismatch": ("Answers of other weights than those of the lease", lambda p: p.version_mismatches),
    "trimtab_probe_discarded": ("Probes whose answer did not count, such as across a pause", lambda p: p.stale_probes),
    "trimtab_sessions_expired": ("Sessions that were idle for longer than the TTL", lambda pool: pool.sessions_expired),
    "trimtab_sessions_evicted": ("Sessions that made room for others at the cap", lambda pool: pool.sessions_evicted),
    "trimtab_engine_deaths": ("Engines that died, by their connections or by report", lambda pool: pool.engine_deaths),
    "trimtab_poison_refusals": ("Leases refused as poison", lambda pool: pool.poison_refusals),
    "trimtab_unexpected_abort": ("Executions that engines aborted outside an update", lambda p: p.unexpected_aborts),
}


def pool_families(pools: Iterable[PoolStatistics]) -> Iterable[Family]:
    """The families of the given pools."""
    keyed = [(labels(pool=pool.name), pool) for pool in pools]
    for name, (text, read) in POOL_GAUGES.items():
        yield _numbers(Family(name, "gauge", text), keyed, read)
    for name, (text, read) in POOL_COUNTERS.items():
        yield _numbers(Family(name, "counter", text), keyed, read)
    for name, (kind, label, text, by_label) in POOL_SETS.items():
        family = Family(name, kind, text)
        for key, pool in keyed:
            for value, count in by_label(pool).items():
                family.add(count, f"{key},{labels(**{label: value})}")
        yield family
    version = Family("trimtab_weight_version", "gauge", "The published weight version")
    for key, pool in keyed:
        if pool.weight_version is not None:
            # Without a published version there is none, not version 0.
            version.add(pool.weight_version, key)
    yield version


def _numbers(
    family: Family, keyed: list[tuple[str, PoolStatistics]], read: Callable[[PoolStatistics], float]
) -> Family:
    for key, pool in keyed:
        family.add(read(pool), key)
    return family


def _state(pool: PoolStatistics) -> dict[str, int]:
    return {name: int(name == pool.state) for name in POOL_STATES}


def _fences(pool: PoolStatistics) -> dict[str, int]:
    return {owner.owner: len(owner.fences) for owner in pool.owners}


# Metric name: type, the label beside the pool, help text, and the values by that label.
POOL_SETS: dict[str, tuple[Literal["gauge", "counter"], str, str, Callable[[PoolStatistics], Mapping[str, int]]]] = {
    "trimtab_leases": ("counter", "outcome", "Settled leases by outcome", lambda pool: pool.outcomes),
    "trimtab_picks": ("counter", "reason", "Granted leases by the reason of the pick", lambda pool: pool.picks),
    "trimtab_waiters": ("gauge", "reason", "Requests for a lease that wait now", lambda pool: pool.waiting),
    "trimtab_parked": ("counter", "reason", "Requests for a lease that had to wait", lambda pool: pool.parked),
    "trimtab_replays": ("counter", "call", "Calls that got the answer of an earlier one", lambda pool: pool.replays),
    "trimtab_pool_state": ("gauge", "state", "1 for the state a pool is in", _state),
    "trimtab_fence": ("gauge", "owner", "Reasons for which an owner is fenced", _fences),
}
