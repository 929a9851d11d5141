"""``/metrics`` under SGLang's names. Gauges are read at scrape time; the rest is counted as it happens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from trimtab_manager.sim.engine import SimEngine

PREFIX = "sglang:"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class EngineCollector(Collector):
    """Reads the scheduler's published numbers and the engine's totals."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """One family per metric, in a fixed order."""
        name = self._engine.config.model_name
        labels = {"engine_type": "unified", "model_name": name, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        loads, statistics = self._engine.loads(), self._engine.statistics()
        kv = loads.kv
        gauges = {
            "num_running_reqs": ("The number of running requests.", loads.running),
            "num_queue_reqs": ("The number of requests in the waiting queue.", loads.waiting),
            "num_grammar_queue_reqs": ("The number of requests in the grammar waiting queue.", 0),
            "num_retracted_reqs": ("The number of retracted requests.", 0),
            "num_paused_reqs": ("The number of paused requests by async weight sync.", 0),
            "token_usage": ("The token usage.", kv.used / kv.capacity),
            "num_used_tokens": ("The number of used tokens.", kv.used),
            "kv_available_tokens": ("Number of free token slots in the KV cache pool.", kv.available),
            "kv_evictable_tokens": ("Number of evictable token slots in the KV cache pool.", kv.evictable),
            "kv_used_tokens": ("Number of actively used token slots in the KV cache pool.", kv.used),
            "max_total_num_tokens": ("Maximum total number of tokens in the KV cache pool.", kv.capacity),
            "gen_throughput": ("The generation throughput (token/s).", loads.throughput),
            "cache_hit_rate": ("The prefix cache hit rate.", loads.hit_rate),
            "utilization": ("The utilization.", loads.running / loads.max_running),
        }
        for metric, (text, value) in gauges.items():
            family = GaugeMetricFamily(PREFIX + metric, text, labels=list(labels))
            family.add_metric(list(labels.values()), float(value))
            yield family
        counters = {
            "prompt_tokens": ("Number of prefill tokens processed.", statistics.prompt_tokens),
            "generation_tokens": ("Number of generation tokens processed.", statistics.generated_tokens),
            "num_requests": ("Number of requests processed.", statistics.requests_finished),
            "cached_tokens": ("Number of cached prompt tokens.", statistics.cached_tokens),
            "num_aborted_requests": ("Number of requests aborted.", statistics.requests_aborted),
        }
        for metric, (text, value) in counters.items():
            total = CounterMetricFamily(PREFIX + metric, text, labels=["engine_type", "model_name"])
            total.add_metric(["unified", name], float(value))
            yield total


class HttpMetrics:
    """Counts of HTTP requests by endpoint, and how long inference took."""

    def __init__(self, engine: SimEngine) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(EngineCollector(engine))
        self._name = engine.config.model_name
        endpoint = ["endpoint", "method"]
        self._active = Gauge(
            PREFIX + "http_requests_active", "Number of currently active HTTP requests", endpoint,
            registry=self._registry,
        )  # fmt: skip
        self._requests = Counter(
            PREFIX + "http_requests", "Total number of HTTP requests by endpoint and method", endpoint,
            registry=self._registry,
        )  # fmt: skip
        self._responses = Counter(
            PREFIX + "http_responses", "Total number of HTTP responses by endpoint and status code",
            [*endpoint, "status_code"], registry=self._registry,
        )  # fmt: skip
        self._latency = Histogram(
            PREFIX + "e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds",
            ["engine_type", "model_name"], buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip

    def begin(self, request: web.Request) -> float:
        """A request begins; give the result to ``end``."""
        endpoint = _endpoint(request)
        self._active.labels(endpoint, request.method).inc()
        self._requests.labels(endpoint, request.method).inc()
        return time.perf_counter()

    def end(self, request: web.Request, began: float, status: int | None, *, inference: bool) -> None:
        """It is over; ``status`` is ``None`` when it was never answered."""
        endpoint = _endpoint(request)
        self._active.labels(endpoint, request.method).dec()
        if status is not None:
            self._responses.labels(endpoint, request.method, str(status)).inc()
            if inference:
                self._latency.labels("unified", self._name).observe(time.perf_counter() - began)

    def exposition(self) -> bytes:
        """The Prometheus text of everything."""
        return generate_latest(self._registry)


HTTP_METRICS = web.AppKey("http_metrics", HttpMetrics)


async def handle_metrics(request: web.Request) -> web.Response:
    """GET ``/metrics``."""
    text = request.app[HTTP_METRICS].exposition()
    return web.Response(body=text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


def _endpoint(request: web.Request) -> str:
    # The route, not the path: unknown paths must not make a series each.
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"
