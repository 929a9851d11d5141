"""Control calls that fail: what is repeated, what never is, and what state is left."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.engine.kit import LONG_RUNNING, QUICK, SIM, StepClock, controlled, count_calls
from tests.support.waiting import wait_until
from trimtab.errors import InvalidTransition
from trimtab_manager.engine.errors import (
    ControlError,
    FlushRefused,
    IdentityChanged,
    MissingCapability,
    NotReady,
    Quarantined,
    Refused,
)
from trimtab_manager.engine.limits import RetryPolicy
from trimtab_manager.engine.states import Dead, Draining, Onloading, Sleeping
from trimtab_manager.sim import Fault, SimEngine, SimServer

if TYPE_CHECKING:
    from tests.manager.engine.kit import Controlled

RELEASE = "/release_memory_occupation"
WAKE = "/resume_memory_occupation"
PAUSE = "/pause_generation"
CONTINUE = "/continue_generation"
FLUSH = "/flush_cache"
PATHS = (PAUSE, "/v1/loads", FLUSH, RELEASE, WAKE, CONTINUE, "/ready", "/health", "/server_info")

FAULTS = {
    "502 twice": Fault(kind="status", status=502, times=2),
    "502 for ever": Fault(kind="status", status=502),
    "400 once": Fault(kind="status", status=400, times=1),
    "500 once": Fault(kind="status", status=500, times=1),
    "lost reply": Fault(kind="reset", times=1),
    "hang": Fault(kind="hold", times=1),
    "slow": Fault(kind="delay", delay_s=0.02),
}

HASTY = replace(QUICK, control_timeout_s=0.2, pause_timeout_s=0.2, memory_timeout_s=0.2, ready_deadline_s=0.3)


async def test_b53_two_bad_gateways_are_one_release() -> None:
    """Repeated after another look at the engine; the server released once."""
    async with controlled() as lab:
        await lab.engine.activate()
        released = count_calls(lab.sim, "release_memory")
        lab.sim.arm(Fault(kind="status", status=502, path=RELEASE, times=2))
        await lab.engine.deactivate()
        assert isinstance(lab.engine.state, Sleeping)
        assert released() == 1


async def test_b53_a_bad_gateway_for_ever_is_quarantined() -> None:
    """The error names engine, call and evidence; the engine is out of routing for good, and nobody died."""
    async with controlled() as lab:
        await lab.engine.activate()
        lab.sim.arm(Fault(kind="status", status=502, path=RELEASE))
        with pytest.raises(
            Quarantined, match=r"engine policy/0 .*POST /release_memory_occupation was refused with 502"
        ):
            await lab.engine.deactivate()
        state = lab.engine.state
        assert isinstance(state, Dead)
        assert state.quarantined
        assert not lab.gate.is_open
        with pytest.raises(InvalidTransition, match="was refused with 502"):
            await lab.engine.activate()


@pytest.mark.parametrize("fault", ["500 once", "lost reply", "hang"])
@pytest.mark.parametrize("path", [RELEASE, WAKE])
async def test_a_call_on_memory_without_an_answer_is_never_repeated(path: str, fault: str) -> None:
    """It may have happened, and twice is fatal: quarantined, never asleep."""
    async with controlled(limits=HASTY) as lab:
        await lab.engine.activate()
        if path == WAKE:
            await lab.engine.deactivate()
        lab.sim.arm(replace(FAULTS[fault], path=path))
        with pytest.raises(Quarantined):
            await (lab.engine.deactivate() if path == RELEASE else lab.engine.activate())
        assert lab.engine.statistics().quarantined
        assert lab.engine.statistics().unsure != ()
        assert lab.sim.crashed is None
        assert not lab.gate.is_open


async def test_a_refused_release_leaves_a_drained_engine() -> None:
    """The engine said no, so nothing happened: the order can be given again, or taken back."""
    async with controlled() as lab:
        await lab.engine.activate()
        lab.sim.arm(Fault(kind="status", status=400, path=RELEASE, times=2))
        for _ in range(2):
            with pytest.raises(Refused):
                await lab.engine.deactivate()
            assert isinstance(lab.engine.state, Draining)
        await lab.engine.cancel_drain()
        assert await lab.request() == "length"
        await lab.engine.deactivate()
        assert isinstance(lab.engine.state, Sleeping)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", PATHS)
async def test_no_fault_leaves_an_engine_paused_and_in_routing(path: str, fault: str) -> None:
    """A whole way round with a fault on one call: it recovers, or its state says that it did not. Nobody dies."""
    async with controlled(limits=HASTY) as lab:
        await lab.engine.activate()
        lab.sim.arm(replace(FAULTS[fault], path=path))
        for order in (lab.engine.deactivate, lab.engine.activate):
            with suppress(ControlError, Quarantined, NotReady, InvalidTransition):
                await order()
            check(lab)
        lab.sim.disarm()
        if isinstance(lab.engine.state, Dead):
            assert fault != "502 twice"
            assert fault != "slow"
            return
        await (lab.engine.cancel_drain() if isinstance(lab.engine.state, Draining) else lab.engine.activate())
        assert await lab.request() == "length"
        check(lab)


def check(lab: Controlled) -> None:
    """What holds whatever failed."""
    assert lab.sim.crashed is None
    assert not (lab.gate.is_open and lab.sim.statistics().paused)
    assert lab.gate.is_open == (lab.engine.statistics().state == "ready")


async def test_a_lost_answer_to_a_pause_may_have_paused_it() -> None:
    """While nobody knows, ``maybe``; the engine is quarantined, not put back."""
    async with controlled(limits=HASTY) as lab:
        await lab.engine.activate()
        lab.sim.arm(Fault(kind="reset", path=PAUSE))
        with pytest.raises(Quarantined):
            await lab.engine.drain(policy="abort")
        assert lab.engine.statistics().paused == "maybe"
        assert not lab.gate.is_open


async def test_b5_a_refused_flush_is_repeated_with_growing_gaps() -> None:
    """Until the deadline; then the error names the engine and what it says runs and waits."""
    clock = StepClock()
    config = replace(LONG_RUNNING, max_running_requests=8)
    limits = replace(QUICK, retry=RetryPolicy(first_gap_s=0.1))
    async with controlled(config, limits, clock=clock.clock) as lab:
        await lab.engine.activate()
        running = [asyncio.create_task(lab.request(500)) for _ in range(64)]
        await wait_until(lambda: lab.sim.statistics().waiting == 56, "8 run and 56 wait")
        clock.slept.clear()
        with pytest.raises(FlushRefused, match=r"engine policy/0: .* 8 requests run and 56 wait") as caught:
            await lab.engine.control.flush(2)
        assert (caught.value.running, caught.value.waiting) == (8, 56)
        assert clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.5])  # the last one ends at the deadline
        await lab.engine.pause("retract")
        await lab.engine.control.flush()
        await lab.engine.pause("abort")
        assert set(await asyncio.gather(*running)) == {"abort"}


async def test_b5_what_is_frozen_is_flushed_once_only() -> None:
    """Nothing would ever change; the error says what to do."""
    async with controlled(LONG_RUNNING) as lab:
        await lab.engine.activate()
        running = asyncio.create_task(lab.request(500))
        await wait_until(lambda: lab.sim.statistics().running == 1, "it runs")
        await lab.engine.pause("in_place")
        with pytest.raises(FlushRefused, match=r"in 1 attempts .* continue it, or abort what is frozen"):
            await lab.engine.control.flush()
        await lab.engine.deactivate()
        assert await running == "abort"


async def test_a_sleep_that_cannot_flush_goes_no_further() -> None:
    """Paused and out of routing, its memory untouched; it can be brought back."""
    async with controlled(limits=replace(QUICK, flush_deadline_s=0.01)) as lab:
        await lab.engine.activate()
        lab.sim.arm(Fault(kind="status", status=400, path=FLUSH))
        released = count_calls(lab.sim, "release_memory")
        with pytest.raises(FlushRefused):
            await lab.engine.deactivate()
        assert isinstance(lab.engine.state, Draining)
        assert (lab.engine.statistics().paused, released()) == ("yes", 0)
        await lab.engine.cancel_drain()
        assert await lab.request() == "length"


async def test_a_hung_scheduler_proves_nothing() -> None:
    """Its last words say idle; they get older, and it is not put to sleep."""
    async with controlled(limits=replace(HASTY, fresh_s=0.01)) as lab:
        await lab.engine.activate()
        await lab.request()
        lab.sim.arm(Fault(kind="wedge"))
        await asyncio.sleep(0.02)
        with pytest.raises(Exception, match=r"its scheduler is paused or hangs|quarantined"):
            await lab.engine.drain(0.05)
        assert not lab.gate.is_open
        lab.sim.disarm()


async def test_another_server_on_the_port_gets_no_call() -> None:
    """A reused port: the new server is not paused, and the engine is dead."""
    async with controlled() as lab:
        await lab.engine.activate()
        port = lab.server.port
        await lab.server.stop()
        other = SimServer(SimEngine(SIM), port=port)
        await other.start()
        try:
            with pytest.raises(IdentityChanged, match="another server answers at"):
                await lab.engine.deactivate()
            assert isinstance(lab.engine.state, Dead)
            assert other.engine.statistics().paused is None
        finally:
            await other.stop()


async def test_weights_that_would_be_lost_are_not_released() -> None:
    """Unless somebody restores them; the error names the flag that keeps them."""
    async with controlled(replace(SIM, memory_saver=True)) as lab:
        await lab.engine.activate()
        with pytest.raises(MissingCapability, match="--enable-weights-cpu-backup"):
            await lab.engine.deactivate()
        assert lab.gate.is_open


async def test_a_failed_wake_stays_out_of_routing() -> None:
    """A refusal in the middle: what is in stays in, what is out stays out, and the order goes on from there."""
    async with controlled() as lab:
        await lab.engine.activate()
        await lab.engine.deactivate()
        await lab.engine.activate(["weights"])
        lab.sim.arm(Fault(kind="status", status=400, path=WAKE, times=1))
        with pytest.raises(Refused):
            await lab.engine.activate()
        assert isinstance(lab.engine.state, Onloading)
        assert lab.engine.state.released == {"kv_cache", "cuda_graph"}
        await lab.engine.activate()
        assert lab.gate.is_open
