"""States and orders of one engine, against a simulated one that dies as SGLang does."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.engine.kit import LONG_RUNNING, QUICK, SIM, controlled, count_calls
from tests.support.waiting import wait_until
from trimtab.errors import InvalidTransition
from trimtab_manager.engine.errors import NotIdle, RestoreFailed
from trimtab_manager.engine.states import Dead, Draining, Onloading, Ready, Sleeping, Starting, name_of
from trimtab_manager.engine.types import MEMORY_TAGS
from trimtab_manager.sim import Fault

if TYPE_CHECKING:
    from trimtab_manager.engine.engine import SGLangEngine
    from trimtab_manager.engine.states import State

STATES = ("starting", "ready", "draining", "sleeping", "onloading", "dead")
ORDERS = ("activate", "drain", "cancel_drain", "deactivate", "shutdown")

AFTER: dict[str, dict[str, str | None]] = {
    "activate": {"starting": "ready", "ready": "ready", "sleeping": "ready", "onloading": "ready"},
    "drain": {"ready": "draining", "draining": "draining", "sleeping": "sleeping"},
    "cancel_drain": {"ready": "ready", "draining": "ready"},
    "deactivate": {"ready": "sleeping", "draining": "sleeping", "sleeping": "sleeping"},
    "shutdown": dict.fromkeys(STATES, "dead"),
}
"""The table of ``engine``'s documentation: the state after an order; what is not there is an error."""


async def bring(engine: SGLangEngine, state: str) -> None:
    """Into a state, by the shortest way."""
    if state == "starting":
        return
    await engine.activate()
    if state == "draining":
        await engine.drain()
    elif state in {"sleeping", "onloading"}:
        await engine.deactivate()
        if state == "onloading":
            await engine.activate(["weights"])
    elif state == "dead":
        engine.mark_dead("the test says so")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("order", ORDERS)
async def test_each_order_in_each_state(order: str, state: str) -> None:
    """It leads where the table says or is refused; either way the engine lives and is never in routing and paused."""
    async with controlled() as lab:
        await bring(lab.engine, state)
        assert lab.engine.statistics().state == state
        after = AFTER[order].get(state)
        if after is None:
            with pytest.raises(InvalidTransition, match=f"engine policy/0 is {state}.*no {order}"):
                await getattr(lab.engine, order)()
            after = state
        else:
            await getattr(lab.engine, order)()
            if order != "shutdown":
                await getattr(lab.engine, order)()
        assert lab.engine.statistics().state == after
        assert lab.gate.is_open == (after == "ready")
        assert lab.sim.crashed is None
        assert not (lab.gate.is_open and lab.sim.statistics().paused)


async def test_sleep_and_wake_and_serve() -> None:
    """The whole way round, twice; each call on memory goes out once a time."""
    async with controlled() as lab:
        await lab.engine.activate()
        for _ in range(2):
            assert await lab.request() == "length"
            await lab.engine.deactivate()
            assert isinstance(lab.engine.state, Sleeping)
            assert lab.engine.state.released == set(MEMORY_TAGS)
            assert lab.sim.statistics().paused == "abort"
            await lab.engine.activate()
            assert lab.engine.control.released == frozenset()
        assert lab.gate.history == ["open", "close", "open", "close", "open"]
        assert await lab.request() == "length"


async def test_waking_stays_in_onloading_until_all_tags_are_in() -> None:
    """Weights, then weights again, then the rest; only then it serves."""
    async with controlled() as lab:
        await bring(lab.engine, "sleeping")
        for _ in range(2):
            await lab.engine.activate(["weights"])
            assert isinstance(lab.engine.state, Onloading)
            assert lab.engine.state.released == {"kv_cache", "cuda_graph"}
            assert not lab.gate.is_open
            assert lab.sim.statistics().paused == "abort"
        await lab.engine.activate(["kv_cache"])
        assert lab.engine.statistics().released == ("cuda_graph",)
        await lab.engine.activate(["cuda_graph"])
        assert isinstance(lab.engine.state, Ready)
        assert lab.gate.is_open


async def test_restore_runs_between_weights_and_the_rest() -> None:
    """With only the weights' memory back; when it fails, the engine stays out of routing and is asked again."""
    seen: list[tuple[str, tuple[str, ...]]] = []

    async def restore(engine: SGLangEngine) -> None:
        seen.append((name_of(engine.state), engine.statistics().released))
        if len(seen) == 1:
            raise NotIdle("no", engine=engine.id, outstanding=0, running=0, waiting=0)

    async with controlled(restore=restore) as lab:
        await bring(lab.engine, "sleeping")
        with pytest.raises(RestoreFailed):
            await lab.engine.activate()
        assert not lab.gate.is_open
        assert lab.engine.state == Onloading(lab.engine.state.since_s, frozenset({"kv_cache", "cuda_graph"}), False)
        await lab.engine.activate()
        assert isinstance(lab.engine.state, Ready)
        assert seen == [("onloading", ("cuda_graph", "kv_cache"))] * 2


async def test_a_drain_waits_for_what_runs() -> None:
    """No new lease from the first moment; what ran ends by itself."""
    async with controlled(replace(SIM, time_scale=0.05)) as lab:
        await lab.engine.activate()
        running = asyncio.create_task(lab.request(40))
        await wait_until(lambda: lab.sim.statistics().running == 1, "it runs")
        drain = asyncio.create_task(lab.engine.drain())
        await wait_until(lambda: not lab.gate.is_open, "it left routing")
        assert await lab.request() is None
        await drain
        assert await running == "length"
        assert isinstance(lab.engine.state, Draining)
        assert lab.engine.state.confirmed


async def test_a_drain_leaves_routing_before_anything_else() -> None:
    """Also while another order is carried out, before anybody waits."""
    async with controlled() as lab:
        await lab.engine.activate()
        lab.sim.arm(Fault(kind="hold", path="/pause_generation"))
        pause = asyncio.create_task(lab.engine.pause("retract"))
        await wait_until(lambda: lab.engine.statistics().paused == "maybe", "it is being paused")
        assert lab.gate.history == ["open"]
        drain = asyncio.create_task(lab.engine.drain(policy="abort"))
        await asyncio.sleep(0)
        assert lab.gate.history == ["open", "close"]
        lab.sim.disarm()
        await asyncio.gather(pause, drain)
        await lab.engine.cancel_drain()
        assert await lab.request() == "length"


async def test_a_drain_has_a_deadline() -> None:
    """The error has both sides' counts; the engine stays out of routing, and the drain can go on or be cancelled."""
    async with controlled(LONG_RUNNING) as lab:
        await lab.engine.activate()
        running = [asyncio.create_task(lab.request(1_000)) for _ in range(6)]
        await wait_until(lambda: lab.sim.statistics().running == 4, "they run")
        with pytest.raises(NotIdle, match="6 leases are open on it, and it said that 4 requests run and 2 wait"):
            await lab.engine.drain(0.05)
        assert isinstance(lab.engine.state, Draining)
        assert not lab.engine.state.confirmed
        await lab.engine.cancel_drain()
        assert lab.gate.is_open
        await lab.engine.drain(policy="abort")
        assert set(await asyncio.gather(*running)) == {"abort"}


async def test_a_drain_can_be_cancelled_while_it_waits() -> None:
    """Whoever waits for it is told; the engine serves again."""
    async with controlled(LONG_RUNNING) as lab:
        await lab.engine.activate()
        running = asyncio.create_task(lab.request(1_000))
        await wait_until(lambda: lab.sim.statistics().running == 1, "it runs")
        drain = asyncio.create_task(lab.engine.drain())
        await wait_until(lambda: not lab.gate.is_open, "it left routing")
        await lab.engine.cancel_drain()
        with pytest.raises(InvalidTransition, match="the drain was cancelled"):
            await drain
        assert lab.gate.is_open
        await lab.engine.deactivate()
        assert await running == "abort"


async def test_a_waiting_drain_can_be_made_to_abort() -> None:
    """The second drain joins the first, which then ends what runs."""
    async with controlled(LONG_RUNNING) as lab:
        await lab.engine.activate()
        running = asyncio.create_task(lab.request(1_000))
        await wait_until(lambda: lab.sim.statistics().running == 1, "it runs")
        waiting = asyncio.create_task(lab.engine.drain())
        await wait_until(lambda: isinstance(lab.engine.state, Draining), "it drains")
        await asyncio.gather(waiting, lab.engine.drain(policy="abort"))
        assert await running == "abort"
        await lab.engine.cancel_drain()
        assert await lab.request(2) == "length"


async def test_a_request_at_the_pause_gate_does_not_keep_an_engine_awake() -> None:
    """It came after the pause, so no abort reaches it; its lease ends all the same."""
    async with controlled() as lab:
        await lab.engine.activate()
        await lab.sim.pause("abort")
        late = asyncio.create_task(lab.request())
        await wait_until(lambda: lab.sim.statistics().at_gate == 1, "it waits at the gate")
        await lab.engine.deactivate()
        assert await late in {"abort", "length"}
        assert isinstance(lab.engine.state, Sleeping)


async def test_concurrent_duplicates_join() -> None:
    """Ten of each: one release, one resume."""
    async with controlled() as lab:
        await asyncio.gather(*[lab.engine.activate() for _ in range(10)])
        released = count_calls(lab.sim, "release_memory")
        resumed = count_calls(lab.sim, "resume_memory")
        await asyncio.gather(*[lab.engine.deactivate() for _ in range(10)])
        await asyncio.gather(*[lab.engine.activate() for _ in range(10)])
        assert (released(), resumed()) == (1, 2)  # weights, then the rest
        assert lab.gate.history == ["open", "close", "open"]


async def test_a_caller_who_leaves_takes_nothing_along() -> None:
    """The order goes on, and the next caller joins it."""
    async with controlled() as lab:
        await lab.engine.activate()
        first = asyncio.create_task(lab.engine.deactivate())
        await wait_until(lambda: lab.engine.statistics().operation == "deactivate", "it began")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await lab.engine.deactivate()
        assert isinstance(lab.engine.state, Sleeping)


async def test_shutdown_does_not_wait_for_a_drain() -> None:
    """The drain is told; nothing works afterwards, and the reason says why."""
    async with controlled(LONG_RUNNING) as lab:
        await lab.engine.activate()
        running = asyncio.create_task(lab.request(1_000))
        await wait_until(lambda: lab.sim.statistics().running == 1, "it runs")
        drain = asyncio.create_task(lab.engine.drain())
        await wait_until(lambda: not lab.gate.is_open, "it left routing")
        await lab.engine.shutdown()
        with pytest.raises(InvalidTransition, match="drain was stopped by shutdown"):
            await drain
        with pytest.raises(InvalidTransition, match="is shut down: no activate"):
            await lab.engine.activate()
        assert isinstance(lab.engine.state, Dead)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_every_transition_is_told() -> None:
    """Before and after, in order."""
    told: list[tuple[str, str]] = []

    def note(before: State, after: State) -> None:
        if name_of(before) != name_of(after):
            told.append((name_of(before), name_of(after)))

    async with controlled(on_change=note) as lab:
        await lab.engine.activate()
        await lab.engine.deactivate()
        await lab.engine.activate()
        lab.engine.quarantine("enough")
        lab.engine.mark_dead("again")
    way = ["starting", "ready", "draining", "sleeping", "onloading", "ready", "dead"]
    assert told == list(itertools.pairwise(way))


async def test_an_engine_that_is_paused_by_somebody_else_is_not_activated() -> None:
    """It would take requests and answer none."""
    async with controlled(limits=replace(QUICK, ready_deadline_s=0.02)) as lab:
        await lab.sim.pause("in_place")
        with pytest.raises(Exception, match=r"was not well within 0\.02 s"):
            await lab.engine.activate()
        assert isinstance(lab.engine.state, Starting)
        assert not lab.gate.is_open
        await lab.engine.resume()
        await lab.engine.activate()
        assert lab.gate.is_open


async def test_an_unknown_tag_is_refused() -> None:
    """Before anything is sent: SGLang would die of it."""
    async with controlled() as lab:
        with pytest.raises(ValueError, match="unknown memory tag 'kv'"):
            await lab.engine.activate(["kv"])  # type: ignore[list-item]
