"""Batching, memory and aborts, on the engine without HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.waiting import wait_until
from trimtab_manager.sim import SimConfig, SimEngine
from trimtab_manager.sim.batching import Batch
from trimtab_manager.sim.execution import Execution
from trimtab_manager.sim.inference import finished
from trimtab_manager.sim.loads import REMEMBERED, Counters
from trimtab_manager.sim.sampling import RequestError, SamplingParams
from trimtab_manager.sim.tokens import encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def execution(rid: str, prompt: str = "abc", tokens: int = 4, **fields: Any) -> Execution:
    """A greedy execution that does not end by itself."""
    params = SamplingParams(max_new_tokens=tokens, temperature=0, ignore_eos=True)
    return Execution(rid, encode(prompt), params, asyncio.Event(), **fields)


@asynccontextmanager
async def engine(**fields: Any) -> AsyncIterator[SimEngine]:
    """A started engine that does not wait."""
    sim = SimEngine(SimConfig(time_scale=0, **fields))
    await sim.start()
    try:
        yield sim
    finally:
        await sim.stop()


async def run(sim: SimEngine, item: Execution) -> Execution:
    """Execute to the end."""
    async with sim.execute([item]):
        await finished([item])
    return item


async def test_the_batch_has_a_size_and_the_queue_keeps_its_order() -> None:
    """What does not fit waits, first come, first served."""
    async with engine(max_running_requests=2) as sim:
        await sim.pause("in_place")
        items = [execution(f"r{number}", tokens=3 + number) for number in range(5)]
        for item in items:
            item.prepare(seed=0, ends_every=320, max_tokens=100)
            sim.scheduler.submit(item)
        assert (sim.statistics().running, sim.statistics().waiting) == (0, 5)
        await sim.resume_generation()
        await wait_until(lambda: all(item.finish for item in items), "all have ended")
    order = sorted(items, key=lambda item: item.times.forwarded)
    assert order == items
    assert [len(item.tokens) for item in items] == [3, 4, 5, 6, 7]


async def test_an_idle_engine_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to do the scheduler waits for a request, not for a time: it uses no CPU."""
    async with engine() as sim:
        await run(sim, execution("a"))
        timers: list[float] = []

        def delay(_pacer: object, now: float, *_durations: float) -> float:
            timers.append(now)
            return 0

        monkeypatch.setattr("trimtab_manager.sim.timing.Pacer.delay", delay)
        for _ in range(100):
            await asyncio.sleep(0)
        assert timers == []
        assert (await run(sim, execution("b"))).finish == {"type": "length", "length": 4}
        assert timers


async def test_statistics_count_everything() -> None:
    """Prompts once, outputs, cache hits, sessions; a snapshot does not change afterwards."""
    async with engine() as sim:
        await run(sim, execution("a", "hello", session="s1"))
        first = sim.statistics()
        await run(sim, execution("b", "hello", session="s1"))
        second = sim.statistics()
    assert (first.requests_received, first.requests_finished) == (1, 1)
    assert (first.prompt_tokens, first.cached_tokens, first.generated_tokens) == (5, 0, 4)
    assert (second.prompt_tokens, second.cached_tokens, second.generated_tokens) == (10, 4, 8)
    assert (dict(first.sessions), dict(second.sessions)) == ({"s1": 1}, {"s1": 2})
    assert (second.running, second.waiting, second.kv_used) == (0, 0, 0)
    assert second.kv_evictable == 5 + 3
    assert (second.paused, second.crashed, second.weight_version) == (None, None, "default")


async def test_an_abort_reaches_queue_and_batch() -> None:
    """Queued ones end at once, running ones with their step; both are remembered by id."""
    async with engine(max_running_requests=1) as sim:
        sim.scheduler.forward_sleep_s = 0.001
        items = [execution("job1", tokens=10_000), execution("job12", tokens=10_000), execution("other", tokens=2)]
        tasks = [asyncio.create_task(run(sim, item)) for item in items]
        await wait_until(lambda: sim.statistics().waiting == 2 and items[0].tokens, "one runs, two wait")
        sim.abort("job1")
        await asyncio.gather(*tasks)
        statistics = sim.statistics()
    assert [item.finish["type"] for item in items if item.finish] == ["abort", "abort", "length"]
    assert items[1].in_queue_abort
    assert items[0].tokens
    assert set(statistics.aborted_rids) == {"job1", "job12"}
    assert statistics.abort_calls == ("job1",)


def test_aborts_are_counted_beyond_the_ids_that_are_remembered() -> None:
    """The ids are a bounded list; a counter that stopped with it would look like an end of the aborts."""
    counters = Counters()
    for number in range(REMEMBERED + 1):
        counters.note_end(str(number), aborted=True)
    assert (counters.requests_aborted, len(counters.aborted)) == (REMEMBERED + 1, REMEMBERED)


async def test_leaving_an_execution_aborts_it() -> None:
    """Whoever waits for it and is cancelled frees the engine."""
    async with engine() as sim:
        sim.scheduler.forward_sleep_s = 0.001
        item = execution("gone", tokens=10_000)
        task = asyncio.create_task(run(sim, item))
        await wait_until(lambda: item.tokens, "it runs")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await wait_until(lambda: sim.statistics().running == 0, "the batch is empty")
        assert (item.finish or {})["type"] == "abort"


async def test_an_id_in_flight_is_refused_and_free_again_afterwards() -> None:
    """The refused one leaves no trace."""
    async with engine() as sim:
        await sim.pause("in_place")
        task = asyncio.create_task(run(sim, execution("same")))
        await wait_until(lambda: sim.statistics().at_gate == 1, "it waits at the gate")
        with pytest.raises(RequestError, match="Duplicate request ID detected: same"):
            await run(sim, execution("same"))
        await sim.resume_generation()
        await task
        await run(sim, execution("same"))


async def test_when_memory_is_short_the_youngest_goes_back_to_the_queue() -> None:
    """It is retracted, computed again later, and its output is what it would have been."""
    async with engine(max_total_tokens=120, context_length=100, max_running_requests=2) as sim:
        items = [execution("old", "abc", 90), execution("young", "xyz", 90)]
        await asyncio.gather(*(run(sim, item) for item in items))
        again = await run(sim, execution("again", "xyz", 90))
    assert [item.retractions for item in items] == [0, 1]
    assert [len(item.tokens) for item in items] == [90, 90]
    assert items[1].tokens == again.tokens


async def test_sampled_output_follows_the_seed() -> None:
    """Equal seeds repeat; by default the id makes the difference."""
    async with engine() as sim:
        params = SamplingParams(max_new_tokens=20, ignore_eos=True, sampling_seed=7)
        items = [Execution(f"r{number}", encode("abc"), params, asyncio.Event()) for number in range(2)]
        free = [
            Execution(rid, encode("abc"), SamplingParams(max_new_tokens=20, ignore_eos=True), asyncio.Event())
            for rid in ("x", "y")
        ]
        for item in [*items, *free]:
            await run(sim, item)
    assert items[0].tokens == items[1].tokens
    assert free[0].tokens != free[1].tokens


async def test_an_output_ends_by_itself() -> None:
    """The end-of-text token is part of the output, unless ``min_new_tokens`` or ``ignore_eos`` forbids it."""
    async with engine(ends_every=1) as sim:
        params = SamplingParams(max_new_tokens=20, temperature=0, min_new_tokens=3)
        item = await run(sim, Execution("r", encode("abc"), params, asyncio.Event()))
    assert item.finish == {"type": "stop", "matched": 258}
    assert len(item.tokens) == 4


async def test_a_prompt_is_shared_as_soon_as_it_is_computed() -> None:
    """A second request with the same prompt finds it while the first still runs."""
    batch = Batch(100, 4)
    first, second = execution("a", "prompt"), execution("b", "prompt")
    assert batch.admit(_queue(first)) == [first]
    batch.share(first)
    assert batch.admit(_queue(second)) == [second]
    assert (first.cached_tokens, second.cached_tokens) == (0, 5)
    assert batch.kv.statistics().used == 6 + 1
    batch.retract_all()
    assert batch.kv.statistics().used == 0


def _queue(*items: Execution) -> Any:
    from collections import deque

    return deque(items)
