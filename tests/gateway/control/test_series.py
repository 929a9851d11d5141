"""The number of series at ``/metrics`` depends on what is configured, never on what came by."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.control.conftest import one_role
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Served, Start
    from tests.support.lab import Lab

SESSIONS = 10_000
SESSIONS_OVER_HTTP = 200
CYCLES = 500
PATHS = 200


async def series(served: Served) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Every series of a scrape that sees everything that happened before it: its name and labels."""
    await served.forget_snapshot()
    families = text_string_to_metric_families((await served.get("/metrics")).text)
    return {(sample.name, frozenset(sample.labels.items())) for family in families for sample in family.samples}


async def some_of_each(served: Served, number: int) -> None:
    """A request with its session, an engine that comes and goes, and a path that nobody serves, all of them new."""
    pool = served.gateway.pool("rollout", "tiny")
    if number < SESSIONS_OVER_HTTP:
        headers = {"x-trimtab-session": f"http-{number}", "user-agent": f"agent-{number}"}
        answer = await served.client.post(f"/generate?q={number}", json={"text": "a"}, headers=headers)
        assert answer.status_code == 200
    else:
        pool.acquire(session=f"session-{number}").settle("completed")
    if number < CYCLES:
        pool.add_backend(f"10.0.{number // 250}.{number % 250 + 1}:30000", 1.0, id=f"engine-{number}")
        pool.remove_backend(f"engine-{number}")
    if number < PATHS:
        path = "".join(random.Random(number).choices("abcdefgh/%._-~", k=12))
        assert (await served.get(f"/x{path}")).status_code == 404


async def test_b96_series_do_not_grow_with_traffic_or_churn(serve: Start, lab: Lab) -> None:
    """B96: 10,000 sessions, 500 engines that come and go, random paths: the series after are the series before."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority), probe_interval_s=3600.0))
    await served.eligible(1)
    await some_of_each(served, 0)
    pool = served.gateway.pool("rollout", "tiny")
    await wait_until(lambda: pool.statistics().outstanding == 0, "the lease to end")
    before = await series(served)
    for number in range(1, SESSIONS):
        await some_of_each(served, number)
    await wait_until(lambda: pool.statistics().outstanding == 0, "the leases to end")
    assert sum(pool.statistics().outcomes.values()) == SESSIONS
    assert await series(served) == before
