"""``GET /metrics``: Prometheus text, computed from one snapshot at each scrape.

Nothing is counted here: a collector turns the statistics of that moment into series, so that the series of a backend
end with the backend, and no counter can differ from what ``/status`` says. Labels are bounded: ``pool`` and ``backend``
are configured names, the others are fixed sets. Counters per pool include removed backends and never go down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab_gateway.control.context import statistics
from trimtab_gateway.control.metrics_pool import control_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

    from trimtab._core import PoolStatistics
    from trimtab_gateway.statistics import GatewayStatistics

# Metric name (a counter gains "_total"): key of the data plane's statistics, and help text.
DATA_PLANE_GAUGES = {
    "trimtab_open_requests": ("open_requests", "Client requests that are open now"),
    "trimtab_open_streams": ("open_streams", "Event streams that are open now"),
    "trimtab_open_connections": ("connections", "Client connections that are open now"),
    "trimtab_open_upstream_connections": ("upstream_connections", "Engine connections that are open now"),
    "trimtab_idle_upstream_connections": ("upstream_idle", "Engine connections that wait for a request"),
}
DATA_PLANE_COUNTERS = {
    "trimtab_connections": ("connections_total", "Client connections accepted"),
    "trimtab_connections_turned_away": ("turned_away_total", "Client connections answered 503 for want of descriptors"),
    "trimtab_accept_errors": ("accept_errors_total", "Client connections that could not be accepted"),
    "trimtab_upstream_connections": ("upstream_connections_total", "Engine connections opened"),
    "trimtab_upstream_reused": ("upstream_reused_total", "Requests sent on an engine connection that was open already"),
    "trimtab_retries": ("retries_total", "Attempts after the first, each before a byte of the request was sent"),
    "trimtab_client_gone": ("client_gone_total", "Executions whose client went away before the end"),
    "trimtab_aborts_sent": ("aborts_sent_total", "Abort requests sent to engines"),
    "trimtab_aborts_confirmed": ("aborts_confirmed_total", "Abort requests that an engine confirmed"),
    "trimtab_broken_streams": ("broken_streams_total", "Answers that broke after their head had been relayed"),
    "trimtab_probes": ("probes_total", "Liveness probes sent"),
    "trimtab_probe_failures": ("probe_failures_total", "Liveness probes that failed"),
}
BACKEND_STATES = ("unproven", "up", "suspect", "down", "half_open", "draining")


async def metrics(request: web.Request) -> web.Response:
    """One scrape. The text is rendered in a thread: with a thousand backends it takes tens of milliseconds."""
    observed = statistics(request)
    body = await asyncio.to_thread(render, observed)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def render(gateway: GatewayStatistics) -> bytes:
    """The exposition text of one moment, from a registry of its own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(gateway))
    return generate_latest(registry)


class _Moment(Collector):
    """The metric families of one moment."""

    def __init__(self, gateway: GatewayStatistics) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        pools = [model.pool for role in self._gateway.snapshot.roles.values() for model in role.models]
        yield from _backend_families(pools)
        yield from _pool_families(pools)
        yield from control_families(pools)
        yield from _data_plane_families(self._gateway.data_plane)


def _backend_families(pools: list[PoolStatistics]) -> Iterable[Metric]:
    labels = ("pool", "backend")
    outstanding = GaugeMetricFamily("trimtab_outstanding", "Executions outstanding on a backend", labels=labels)
    capacity = GaugeMetricFamily("trimtab_capacity", "Capacity of a backend", labels=labels)
    sessions = GaugeMetricFamily("trimtab_sessions", "Live sessions pinned to a backend", labels=labels)
    tokens = CounterMetricFamily("trimtab_output_tokens", "Output tokens reported at settlement", labels=labels)
    state = GaugeMetricFamily("trimtab_backend_state", "1 for the state a backend is in", labels=(*labels, "state"))
    for pool in pools:
        for backend in pool.backends:
            key = (pool.name, backend.id)
            outstanding.add_metric(key, backend.outstanding)
            capacity.add_metric(key, backend.capacity)
            sessions.add_metric(key, backend.sessions)
            tokens.add_metric(key, backend.output_tokens)
            current = "draining" if backend.draining else backend.health
            for name in BACKEND_STATES:
                state.add_metric((*key, name), float(name == current))
    return outstanding, capacity, sessions, tokens, state


def _pool_families(pools: list[PoolStatistics]) -> Iterable[Metric]:
    leases = CounterMetricFamily("trimtab_leases", "Settled leases by outcome", labels=("pool", "outcome"))
    picks = CounterMetricFamily("trimtab_picks", "Granted leases by the reason of the pick", labels=("pool", "reason"))
    for pool in pools:
        for outcome, count in pool.outcomes.items():
            leases.add_metric((pool.name, outcome), count)
        for reason, count in pool.picks.items():
            picks.add_metric((pool.name, reason), count)
    return leases, picks


def _data_plane_families(data_plane: Mapping[str, object]) -> Iterable[Metric]:
    requests = CounterMetricFamily("trimtab_requests", "Answers of the data plane by status code", labels=("code",))
    by_code = data_plane.get("requests_total")
    if isinstance(by_code, dict):
        for code, count in by_code.items():
            requests.add_metric((str(code),), count)
    yield requests
    for kind, table in ((GaugeMetricFamily, DATA_PLANE_GAUGES), (CounterMetricFamily, DATA_PLANE_COUNTERS)):
        for name, (key, text) in table.items():
            family = kind(name, text, labels=())
            value = data_plane.get(key)
            if isinstance(value, int):
                family.add_metric((), value)
            yield family
