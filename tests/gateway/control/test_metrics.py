"""``/metrics``: names, labels, and that series live exactly as long as what they describe."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.control.conftest import NOBODY, one_role, two_roles
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig
from trimtab_gateway.control.metrics import DATA_PLANE_COUNTERS, DATA_PLANE_GAUGES, render
from trimtab_gateway.control.metrics_pool import POOL_COUNTERS, POOL_GAUGES, POOL_SETS, POOL_STATES

if TYPE_CHECKING:
    import pytest
    from prometheus_client.metrics_core import Metric

    from tests.gateway.control.conftest import Served, Start
    from tests.support.lab import Lab
    from trimtab_gateway.statistics import GatewayStatistics

LABELS = {
    "trimtab_outstanding": {"pool", "backend"},
    "trimtab_capacity": {"pool", "backend"},
    "trimtab_sessions": {"pool", "backend"},
    "trimtab_output_tokens": {"pool", "backend"},
    "trimtab_backend_state": {"pool", "backend", "state"},
    "trimtab_health_budget_used_seconds": {"pool", "backend"},
    "trimtab_request_seconds": {"pool", "phase"},
    "trimtab_acquire_seconds": {"pool"},
    "trimtab_lease_seconds": {"pool", "outcome"},
    "trimtab_drain_seconds": {"pool"},
    "trimtab_loop_lag_seconds": {"loop"},
    "trimtab_requests": {"code"},
    **{name: set[str]() for name in (*DATA_PLANE_GAUGES, *DATA_PLANE_COUNTERS)},
    **{name: {"pool", label} for name, (_, label, _, _) in POOL_SETS.items()},
    **{name: {"pool"} for name in (*POOL_GAUGES, *POOL_COUNTERS)},
}


async def scrape(served: Served) -> dict[str, Metric]:
    """The metric families of a scrape that sees everything that happened before it."""
    await served.forget_snapshot()
    answer = await served.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(family: Metric, **labels: str) -> float:
    """The value of the only sample with ``labels``."""
    (sample,) = [sample for sample in family.samples if labels.items() <= sample.labels.items()]
    return sample.value


async def test_a_request_is_counted_once_everywhere(serve: Start, lab: Lab) -> None:
    """Lease by outcome, pick by reason, tokens and session by backend, answer by code."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority, 4, "e0")))
    await served.eligible(1)
    for _ in range(2):
        await served.client.post("/generate", json={"text": "a"}, headers={"x-trimtab-session": "s"})
    await wait_until(lambda: served.gateway.pool("rollout", "tiny").statistics().outstanding == 0, "the leases to end")
    found = await scrape(served)
    backend = {"pool": "rollout/tiny", "backend": "e0"}
    assert value(found["trimtab_capacity"], **backend) == 4.0
    assert value(found["trimtab_outstanding"], **backend) == 0
    assert value(found["trimtab_sessions"], **backend) == 1
    assert value(found["trimtab_output_tokens"], **backend) == 6
    assert value(found["trimtab_leases"], pool="rollout/tiny", outcome="completed") == 2
    assert value(found["trimtab_picks"], pool="rollout/tiny", reason="new") == 1
    assert value(found["trimtab_picks"], pool="rollout/tiny", reason="sticky") == 1
    assert value(found["trimtab_requests"], code="200") >= 2
    assert value(found["trimtab_open_streams"]) == 0


async def test_every_number_of_the_data_plane_is_exported(serve: Start, lab: Lab) -> None:
    """What the data plane counts can be graphed, and says the same as its statistics."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority), probe_interval_s=3600.0))
    await served.eligible(1)
    await served.client.post("/generate", json={"text": "a"})
    await wait_until(lambda: served.gateway.pool("rollout", "tiny").statistics().outstanding == 0, "the lease to end")
    found = await scrape(served)
    counted = served.gateway.statistics().data_plane
    exported = {key: name for name, (key, _) in (DATA_PLANE_GAUGES | DATA_PLANE_COUNTERS).items()}
    assert exported.keys() == counted.keys() - {"requests_total"}
    for key in ("connections_total", "upstream_connections_total", "retries_total", "probes_total"):
        assert value(found[exported[key]]) == counted[key]
    assert value(found["trimtab_open_requests"]) == 1  # the scrape itself


async def test_labels_are_bounded(serve: Start, lab: Lab) -> None:
    """Exactly the frozen names and labels; nothing a client sent becomes one."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority)))
    await served.eligible(1)
    hostile = {"x-trimtab-session": "hostile-session", "x-hostile": "hostile-header"}
    await served.client.post("/generate?hostile=query", json={"model": "tiny", "text": "hostile"}, headers=hostile)
    await served.client.post("/generate", json={"model": "hostile-model"})
    await served.get("/hostile-path/engines")
    found = await scrape(served)
    labels = {
        name: set(sample.labels) - {"le"}
        for name, family in found.items()
        if name.startswith("trimtab_")
        for sample in family.samples
    }
    assert labels == LABELS
    assert "hostile" not in (await served.get("/metrics")).text


async def test_exactly_one_state_of_a_backend_is_1(serve: Start) -> None:
    """The state is a set of series, so a query can count backends by state."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")

    async def state() -> list[str]:
        samples = (await scrape(served))["trimtab_backend_state"].samples
        return [sample.labels["state"] for sample in samples if sample.value == 1.0]

    assert await state() == ["unproven"]
    pool.report_probe(pool.backends()[0], alive=True)
    assert await state() == ["up"]
    pool.drain_backend("e0")
    assert await state() == ["draining"]


async def test_series_of_a_removed_backend_vanish_and_totals_stay(serve: Start) -> None:
    """A pool's counters never go down; a backend's series end with it."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.acquire().settle("completed", output_tokens=7)
    assert value((await scrape(served))["trimtab_output_tokens"], backend="e0") == 7
    pool.remove_backend("e0")
    found = await scrape(served)
    assert not [sample for family in found.values() for sample in family.samples if "backend" in sample.labels]
    assert value(found["trimtab_leases"], outcome="completed") == 1


async def test_pools_are_told_apart(serve: Start) -> None:
    """The pool label is ``role/model``."""
    served = await serve(two_roles())
    pools = {sample.labels["pool"] for sample in (await scrape(served))["trimtab_leases"].samples}
    assert pools == {"rollout/policy", "rollout/Qwen/Qwen3-0.6B", "genrm/judge"}


async def test_an_update_can_be_graphed(serve: Start) -> None:
    """State, fences, version, generation, and who waits; without a published version there is no version series."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    assert "trimtab_weight_version" not in {
        sample.name for family in (await scrape(served)).values() for sample in family.samples
    }
    pool.publish("u-1", 1)
    pool.attach_owner("train", 1)
    pool.fence("train", "sender_pause")
    pool.attach_sender("worker", "i-1", "train")
    pool.begin_update("u-2", to=2)
    waiting = pool.acquire_or_park(wait_s=60.0)
    found = await scrape(served)
    states = {s.labels["state"]: s.value for s in found["trimtab_pool_state"].samples}
    assert states == {name: float(name == "drained") for name in POOL_STATES}
    assert value(found["trimtab_fence"], owner="train") == 1
    assert value(found["trimtab_fence"], owner="default") == 0
    assert value(found["trimtab_weight_version"]) == 1
    assert value(found["trimtab_pool_generation"]) == 1
    assert value(found["trimtab_senders"]) == 1
    assert value(found["trimtab_waiters"], reason="not_serving") == 1
    assert value(found["trimtab_waiters"], reason="fenced") == 0
    assert value(found["trimtab_parked"], reason="not_serving") == 1
    del waiting


async def test_what_ended_badly_can_be_graphed(serve: Start) -> None:
    """Executions of unknown end and aborts outside an update have counters of their own."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.acquire().settle("ambiguous")
    pool.acquire().settle("aborted")
    found = await scrape(served)
    assert value(found["trimtab_ambiguous"]) == 1
    assert value(found["trimtab_unexpected_abort"]) == 1


def count(family: Metric, **labels: str) -> float:
    """How many durations the only histogram with ``labels`` has."""
    (sample,) = [s for s in family.samples if s.name.endswith("_count") and labels.items() <= s.labels.items()]
    return sample.value


async def test_durations_can_be_graphed(serve: Start, lab: Lab) -> None:
    """Phases of requests, waits, leases and the steps of an update are histograms with cumulative buckets."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority, 4, "e0")))
    await served.eligible(1)
    pool = served.gateway.pool("rollout", "tiny")
    pool.publish("u-1", 1)
    await served.client.post("/generate", json={"text": "a"})
    await wait_until(lambda: pool.statistics().outstanding == 0, "the lease to end")
    pool.begin_update("u-2", to=2)
    pool.drain("u-2", timeout_s=10.0)
    pool.publish("u-2", 2)
    pool.end_server_pause("u-2")
    found = await scrape(served)
    for phase in ("queue", "first_byte", "total"):
        assert count(found["trimtab_request_seconds"], phase=phase) == 1
    assert count(found["trimtab_acquire_seconds"]) == 1
    assert count(found["trimtab_lease_seconds"], outcome="completed") == 1
    assert count(found["trimtab_drain_seconds"]) == 1
    for step in ("quiesce", "confirm", "transfer", "pause", "total"):
        assert count(found["trimtab_update_seconds"], kind="weights", step=step) == 1
    buckets = [s.value for s in found["trimtab_acquire_seconds"].samples if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1


async def test_loops_are_watched(serve: Start) -> None:
    """Both loops say how late their timers run; a wait that blocks the control loop shows."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    lags = served.gateway.statistics().loop_lags
    await wait_until(lambda: lags["control"].cumulative[-1] > 0, "a first measurement")
    before = lags["control"].sum_s
    time.sleep(0.3)  # noqa: ASYNC251 -- the fault itself: it blocks the control loop, which is to be noticed
    await wait_until(lambda: lags["control"].sum_s > before + 0.1, "the lag to be counted")
    found = await scrape(served)
    for loop in ("control", "data"):
        assert count(found["trimtab_loop_lag_seconds"], loop=loop) > 0


async def test_repeated_calls_and_unhealthy_time_can_be_graphed(serve: Start) -> None:
    """A call that was told the answer of an earlier one, and an engine that uses its health budget up."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0"), probe_interval_s=3600.0))
    pool = served.gateway.pool("rollout", "tiny")
    pool.publish("u-1", 1)
    pool.publish("u-1", 1)
    await wait_until(lambda: pool.statistics().backends[0].unhealthy_s > 0, "time to pass")
    found = await scrape(served)
    assert value(found["trimtab_replays"], call="update") == 1
    assert value(found["trimtab_replays"], call="acquire") == 0
    assert value(found["trimtab_health_budget_used_seconds"], backend="e0") > 0


async def test_the_process_is_visible(serve: Start) -> None:
    """Descriptors with their limit, threads, memory and CPU, under their usual names."""
    served = await serve(one_role())
    found = await scrape(served)
    for name in ("open_fds", "max_fds", "threads", "resident_memory_bytes", "start_time_seconds"):
        assert value(found[f"process_{name}"]) > 0
    assert "process_cpu_seconds" in found


async def test_b96_series_stay_constant_under_churn(serve: Start) -> None:
    """10,000 sessions, 500 engines that come and go and random paths leave the series as they were (B96)."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0")))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    pool.acquire("first").settle("completed")

    async def series() -> int:
        return sum(len(family.samples) for name, family in (await scrape(served)).items() if name != "trimtab_requests")

    before = await series()
    for number in range(10_000):
        pool.acquire(f"session-{number}").settle("completed")
    for number in range(500):
        pool.add_backend(f"127.0.0.1:{20_000 + number}", id=f"churn-{number}")
        pool.remove_backend(f"churn-{number}")
    for number in range(50):
        await served.get(f"/{number:x}/{number}?x={number}")
    assert await series() == before


async def test_b44_a_scrape_does_not_hold_the_loop(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the text of a scrape is being written other requests are answered (B44)."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    may_end = threading.Event()

    def slow_render(gateway: GatewayStatistics) -> str:
        may_end.wait(60)
        return render(gateway)

    monkeypatch.setattr("trimtab_gateway.control.metrics.render", slow_render)
    scraping = asyncio.create_task(served.get("/metrics"))
    assert (await served.get("/status")).status_code == 200
    assert not scraping.done()
    may_end.set()
    assert (await scraping).status_code == 200
