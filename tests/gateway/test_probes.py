"""Liveness probes: an engine enters routing when it answers, leaves when it is gone, and comes back by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import request_bytes
from tests.support.scripts import hold, one
from tests.support.sockets import refusing_address
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Gateway, Lab


def health(gateway: Gateway) -> list[str]:
    """Health of every backend."""
    return [backend.health for backend in gateway.pool.statistics().backends]


@pytest.mark.parametrize("answer", [200, 404])
async def test_an_unproven_engine_is_probed_at_once_and_then_eligible(lab: Lab, answer: int) -> None:
    """Any HTTP answer proves life; the first probe does not wait for the interval."""
    engine = await lab.engine(one(), model_info=answer)
    gateway = await lab.gateway(engine, pool_options={"proven": False})
    await wait_until(lambda: health(gateway) == ["up"], "the engine is proven")
    assert (await gateway.post("/generate")).status == 200
    assert engine.probes[0].target == "/model_info"


async def test_an_unproven_engine_gets_nothing(lab: Lab) -> None:
    """Nobody answers there yet: 503 with the count of unproven engines, and ``/ready`` says the same."""
    gateway = await lab.gateway(lab.enter(refusing_address()), pool_options={"proven": False})
    assert "1 not reached yet" in error(await gateway.post("/generate"), 503, "no_eligible_backend")["message"]
    assert (await gateway.get("/ready")).json()["pools"]["rollout/tiny"]["unproven"] == 1


async def test_a_backend_added_later_is_probed_too(lab: Lab) -> None:
    """Membership is read anew for every round."""
    gateway = await lab.gateway(probe_interval_s=0.02)
    engine = await lab.engine(one())
    gateway.pool.add_backend(engine.authority, proven=False)
    await wait_until(lambda: health(gateway) == ["up"], "the engine is proven")


async def test_a_dead_engine_goes_down_and_comes_back(lab: Lab) -> None:
    """Probes alone notice both, without a request."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, probe_interval_s=0.02)
    await engine.kill()
    await wait_until(lambda: health(gateway) == ["down"], "the engine is down")
    error(await gateway.post("/generate"), 503, "no_eligible_backend")
    await engine.__aenter__()
    await wait_until(lambda: health(gateway) == ["up"], "the engine is up again")
    assert (await gateway.post("/generate")).status == 200


async def test_an_engine_that_accepts_and_says_nothing_goes_down(lab: Lab) -> None:
    """A wedged process answers no probe: the timeout is a failure."""
    engine = await lab.engine(hold(), model_info=None)
    gateway = await lab.gateway(engine, probe_interval_s=0.02, probe_timeout_s=0.05)
    await wait_until(lambda: health(gateway) == ["down"], "the engine is down")


async def test_probes_do_not_count_as_executions(lab: Lab) -> None:
    """Outstanding, picks and outcomes know nothing of them."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, probe_interval_s=0.01)
    await wait_until(lambda: len(engine.probes) >= 10, "ten probes")
    statistics = gateway.pool.statistics()
    assert (statistics.outstanding, sum(statistics.picks.values()), gateway.outcomes()) == (0, 0, {})


async def test_a_removed_backend_is_not_probed_any_more(lab: Lab) -> None:
    """After the removal at most the probe that was on its way arrives."""
    engine, other = await lab.engines(2, one())
    gateway = await lab.gateway(engine, other, probe_interval_s=0.01)
    await wait_until(lambda: engine.probes, "a first probe")
    gateway.pool.remove_backend(engine.authority)
    seen = len(engine.probes)
    later = len(other.probes)
    await wait_until(lambda: len(other.probes) >= later + 10, "ten more rounds")
    assert len(engine.probes) <= seen + 1


async def test_one_wedged_engine_does_not_delay_the_probes_of_the_others(lab: Lab) -> None:
    """Probes of different engines are independent."""
    wedged = await lab.engine(hold(), model_info=None)
    fine = await lab.engine(one())
    await lab.gateway(wedged, fine, probe_interval_s=0.01, probe_timeout_s=60)
    await wait_until(lambda: len(fine.probes) >= 5, "the other engine is probed")


async def test_a_long_execution_on_a_busy_engine_is_not_ended_by_probes(lab: Lab) -> None:
    """Down means "no new executions": what runs there goes on."""
    engine = await lab.engine(hold(), model_info=None)
    gateway = await lab.gateway(engine, probe_interval_s=0.02, probe_timeout_s=0.05)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"rid":"r"}'))
    await wait_until(lambda: health(gateway) == ["down"], "the engine is down")
    assert gateway.outstanding == 1
    assert engine.disconnects == 0


async def test_an_engine_that_refuses_its_probes_is_noted(lab: Lab) -> None:
    """It is alive and serves; what is odd about it is told to whoever asks."""
    engine = await lab.engine(one(), model_info=404)
    gateway = await lab.gateway(engine)
    (note,) = await wait_until(gateway.plane.engine_notes, "it is noted")
    assert (note["pool"], note["backend"]) == ("rollout/tiny", gateway.pool.backends()[0].id)
    assert "answered 404" in note["note"]
