"""The metric families about updates: what a controller fenced and published, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from trimtab.state import PoolState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from trimtab._core import PoolStatistics

POOL_STATES: tuple[str, ...] = get_args(PoolState)

POOL_GAUGES: dict[str, tuple[str, Callable[[PoolStatistics], float]]] = {
    "trimtab_pool_generation": ("Updates that began", lambda pool: pool.generation),
    "trimtab_senders": ("Senders that are attached", lambda pool: len(pool.senders)),
    "trimtab_tombstones": ("Settled requests that are remembered", lambda pool: pool.tombstones),
    "trimtab_unresolved": ("Executions whose end is being found out", lambda pool: pool.unresolved),
    "trimtab_waiters": ("Requests for a lease that wait now", lambda pool: pool.waiters),
}

POOL_COUNTERS: dict[str, tuple[str, Callable[[PoolStatistics], float]]] = {
    "trimtab_ambiguous": ("Executions of which nobody knows the end", lambda pool: pool.outcomes["ambiguous"]),
    "trimtab_version_mismatch": ("Answers of other weights than those of the lease", lambda p: p.version_mismatches),
    "trimtab_probe_discarded": ("Probes whose answer did not count, such as across a pause", lambda p: p.stale_probes),
    "trimtab_unexpected_abort": ("Executions that engines aborted outside an update", lambda p: p.unexpected_aborts),
}


def control_families(pools: list[PoolStatistics]) -> Iterable[Metric]:
    """The families of the given pools."""
    for kind, table in ((GaugeMetricFamily, POOL_GAUGES), (CounterMetricFamily, POOL_COUNTERS)):
        for name, (text, read) in table.items():
            family = kind(name, text, labels=("pool",))
            for pool in pools:
                family.add_metric((pool.name,), read(pool))
            yield family
    state = GaugeMetricFamily("trimtab_pool_state", "1 for the state a pool is in", labels=("pool", "state"))
    fence = GaugeMetricFamily("trimtab_fence", "Reasons for which an owner is fenced", labels=("pool", "owner"))
    version = GaugeMetricFamily("trimtab_weight_version", "The published weight version", labels=("pool",))
    parked = CounterMetricFamily("trimtab_parked", "Requests for a lease that had to wait", labels=("pool", "reason"))
    for pool in pools:
        for name in POOL_STATES:
            state.add_metric((pool.name, name), float(name == pool.state))
        for owner in pool.owners:
            fence.add_metric((pool.name, owner.owner), len(owner.fences))
        if pool.weight_version is not None:
            # Without a published version there is none, not version 0.
            version.add_metric((pool.name,), pool.weight_version)
        for reason, count in pool.parked.items():
            parked.add_metric((pool.name, reason), count)
    yield from (state, fence, version, parked)
