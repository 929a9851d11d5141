"""``GET /metrics``: Prometheus text, computed from one snapshot at each scrape.

Nothing is counted here: the statistics of that moment are written as series, so that the series of a backend end with
the backend, and no counter can differ from what ``/status`` says. Labels are bounded: ``pool`` and ``backend`` are
configured names, the others are fixed sets. Counters per pool include removed backends and never go down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from trimtab_gateway.control.context import statistics
from trimtab_gateway.control.exposition import CONTENT_TYPE, Family, exposition, labels
from trimtab_gateway.control.metrics_backend import backend_families
from trimtab_gateway.control.metrics_durations import duration_families
from trimtab_gateway.control.metrics_pool import pool_families
from trimtab_gateway.control.metrics_process import process_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


async def metrics(request: web.Request) -> web.Response:
    """One scrape. The text is written in a thread: with a thousand backends it takes some milliseconds."""
    observed = statistics(request)
    text = await asyncio.to_thread(render, observed)
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def render(gateway: GatewayStatistics) -> str:
    """The exposition text of one moment."""
    pools = [model.pool for role in gateway.snapshot.roles.values() for model in role.models]
    families = (
        *backend_families(pools),
        *pool_families(pools),
        *duration_families(pools, gateway.loop_lags),
        *_data_plane_families(gateway.data_plane),
    )
    return exposition(families) + process_text()


def _data_plane_families(data_plane: Mapping[str, object]) -> Iterable[Family]:
    requests = Family("trimtab_requests", "counter", "Answers of the data plane by status code")
    by_code = data_plane.get("requests_total")
    if isinstance(by_code, dict):
        for code, count in by_code.items():
            requests.add(count, labels(code=str(code)))
    yield requests
    for name, (key, text) in DATA_PLANE_GAUGES.items():
        yield _number(Family(name, "gauge", text), data_plane.get(key))
    for name, (key, text) in DATA_PLANE_COUNTERS.items():
        yield _number(Family(name, "counter", text), data_plane.get(key))


def _number(family: Family, value: object) -> Family:
    if isinstance(value, int):
        family.add(value)
    return family
