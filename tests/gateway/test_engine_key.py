"""The engines' own key: on probes, and with requests that have no credentials of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scripts import one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Lab


async def test_the_engine_key_is_shown(lab: Lab) -> None:
    """A client's own credentials are left alone."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, engine_key="k1", probe_interval_s=0.02)
    assert (await gateway.post("/generate")).status == 200
    assert (await gateway.post("/generate", b"{}", [("authorization", "Bearer own")])).status == 200
    shown = [record.head.get("authorization") for record in engine.requests]
    assert shown == ["Bearer k1", "Bearer own"]
    await wait_until(lambda: engine.probes, "a probe")
    assert engine.probes[0].get("authorization") == "Bearer k1"


async def test_an_engine_that_refuses_the_probe_is_named(lab: Lab) -> None:
    """It is alive, so it stays eligible; ``/ready`` says what it answered."""
    engine = await lab.engine(one(), model_info=401)
    gateway = await lab.gateway(engine, probe_interval_s=0.02)
    await wait_until(lambda: len(engine.probes) >= 2, "a probe was answered")
    answer = await gateway.get("/ready")
    assert answer.status == 200
    (pool,) = answer.json()["pools"].values()
    assert "answered 401" in pool["notes"][engine.authority]
