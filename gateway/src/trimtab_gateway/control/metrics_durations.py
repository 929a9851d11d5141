"""The histograms: how long requests, leases, waits and updates take, and how late the loops run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_gateway.control.exposition import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab._core import PoolStatistics
    from trimtab_gateway.control.exposition import Durations


def duration_families(pools: Iterable[PoolStatistics], loop_lags: Mapping[str, Durations]) -> Iterable[Family]:
    """The histograms of the given pools and loops. What never happened has no series."""
    request = Family("trimtab_request_seconds", "histogram", "Phases of the requests that were relayed")
    acquire = Family("trimtab_acquire_seconds", "histogram", "From the call to the grant of a lease")
    lease = Family("trimtab_lease_seconds", "histogram", "From the grant to the settlement of a lease, by outcome")
    drain = Family("trimtab_drain_seconds", "histogram", "From the begin of an update to the end of its drain")
    update = Family("trimtab_update_seconds", "histogram", "Steps of the updates that were not failures")
    lag = Family("trimtab_loop_lag_seconds", "histogram", "How much later than due a timer ran")
    for pool in pools:
        for phase, durations in pool.request_seconds.items():
            request.add_histogram(durations, labels(pool=pool.name, phase=phase))
        acquire.add_histogram(pool.acquire_seconds, labels(pool=pool.name))
        for outcome, durations in pool.lease_seconds.items():
            lease.add_histogram(durations, labels(pool=pool.name, outcome=outcome))
        drain.add_histogram(pool.drain_seconds, labels(pool=pool.name))
        for kind, steps in pool.update_seconds.items():
            for step, durations in steps.items():
                update.add_histogram(durations, labels(pool=pool.name, kind=kind, step=step))
    for loop, lags in loop_lags.items():
        lag.add_histogram(lags, labels(loop=loop))
    return request, acquire, lease, drain, update, lag
