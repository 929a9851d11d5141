"""Pause and continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.contract.shapes import check
from tests.support.waiting import settled

if TYPE_CHECKING:
    from tests.contract.target import Target

PAUSED = {"message": "Generation paused successfully.", "status": "ok"}
CONTINUED = {"message": "Generation continued successfully.", "status": "ok"}
MODES = ("in_place", "retract", "abort")


@pytest.mark.parametrize("mode", MODES)
async def test_pause_and_continue_are_repeatable(engine: Target, mode: str) -> None:
    """Their answers; the default mode is ``abort``; continuing what is not paused is harmless."""
    for _ in range(2):
        assert (await engine.post("/pause_generation", {"mode": mode})).json == PAUSED
    for _ in range(2):
        assert (await engine.post("/continue_generation", {})).json == CONTINUED
    assert (await engine.post("/pause_generation", {})).json == PAUSED
    assert (await engine.post("/continue_generation", {})).json == CONTINUED
    assert (await engine.generate(1)).status == 200


@pytest.mark.parametrize("mode", MODES)
async def test_a_new_request_waits_for_the_end_of_the_pause(engine: Target, mode: str) -> None:
    """It hangs, without an answer of any kind; an abort does not reach it, not even after the pause."""
    await engine.pause(mode)
    async with engine.stream(12, begun=False, rid="gated") as stream:
        assert (await engine.post("/abort_request", {"rid": "gated"})).status == 200
        task = asyncio.create_task(stream.rest())
        done, _ = await asyncio.wait({task}, timeout=0.5)
        assert not done
        await engine.resume()
        await engine.post("/abort_request", {"rid": "gated"})
        meta = (await asyncio.wait_for(task, 20))["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 12}


async def test_in_place_freezes_what_runs(engine: Target) -> None:
    """A stream goes silent and goes on; the cache cannot be flushed meanwhile; an abort acts only after the pause."""
    await engine.slow_down()
    async with engine.stream(60, rid="frozen") as stream:
        await engine.pause("in_place")
        received = 0

        async def count() -> None:
            nonlocal received
            while await stream.next() is not None:
                received += 1

        reader = asyncio.create_task(count())
        await settled(lambda: received)
        assert not reader.done()
        assert (await engine.post("/flush_cache")).status == 400
        await engine.speed_up()
        await engine.resume()
        await asyncio.wait_for(reader, 30)
    meta = stream.last["meta_info"]
    assert (meta["finish_reason"], meta["num_retractions"]) == ({"type": "length", "length": 60}, 0)


async def test_an_abort_of_a_frozen_request_waits_for_the_end_of_the_pause(engine: Target) -> None:
    """It is marked only; its answer comes after ``/continue_generation``."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(500, rid="frozen"))
    await engine.until_load(1)
    await engine.pause("in_place")
    await engine.post("/abort_request", {"rid": "frozen"})
    done, _ = await asyncio.wait({task}, timeout=0.5)
    assert not done
    await engine.resume()
    answer = await asyncio.wait_for(task, 20)
    assert answer.json["meta_info"]["finish_reason"]["message"] == "Aborted"


async def test_retract_empties_the_batch(engine: Target) -> None:
    """The cache can be flushed; the request goes on later with one retraction on its record."""
    await engine.slow_down()
    async with engine.stream(40, rid="retracted") as stream:
        await engine.pause("retract")
        assert (await engine.post("/flush_cache")).status == 200
        assert (await engine.post("/flush_cache?timeout=0.1")).status == 400
        await engine.speed_up()
        await engine.resume()
        last = await asyncio.wait_for(stream.rest(), 30)
    meta = last["meta_info"]
    assert (meta["finish_reason"], meta["num_retractions"]) == ({"type": "length", "length": 40}, 1)
    assert len(last["output_ids"]) == 40


async def test_a_retracted_request_can_be_aborted(engine: Target) -> None:
    """It is in the queue, so it answers at once, and it has lost its output."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(500, rid="retracted"))
    await engine.until_load(1)
    await engine.pause("retract")
    await engine.post("/abort_request", {"rid": "retracted"})
    answer = (await asyncio.wait_for(task, 20)).json
    assert answer["meta_info"]["finish_reason"]["message"] == "Abort in waiting queue"
    await engine.resume()


async def test_abort_ends_what_runs(engine: Target) -> None:
    """When the call returns, nothing runs; the aborted answers are complete."""
    await engine.slow_down()
    tasks = [asyncio.create_task(engine.generate(500)) for _ in range(10)]
    await engine.until_load(8, 2)
    await engine.pause("abort")
    for answer in await asyncio.wait_for(asyncio.gather(*tasks), 20):
        assert answer.status == 200
        assert answer.json["meta_info"]["finish_reason"]["type"] == "abort"
    assert (await engine.post("/flush_cache")).status == 200
    await engine.resume()


async def test_loads_are_stale_while_paused(engine: Target) -> None:
    """They show the moment of the pause, even after the batch was retracted."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(200, rid="stale"))
    await engine.until_load(1)
    await engine.pause("retract")
    first = await engine.load()
    assert first["num_running_reqs"] == 1
    assert (await engine.load())["timestamp"] == first["timestamp"]
    check(first["timestamp"], float)
    await engine.post("/abort_request", {"rid": "stale"})
    await asyncio.wait_for(task, 20)
    await engine.resume()


async def test_a_pause_to_abort_hangs_on_a_frozen_engine(engine: Target) -> None:
    """Frozen requests cannot end, so ``abort`` after ``in_place`` waits for them, and ``continue`` waits for it.

    The way out is the disconnect of those requests' clients.
    """
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(100, rid="stuck"))
    await engine.until_load(1)
    await engine.pause("in_place")
    pause = asyncio.create_task(engine.post("/pause_generation", {"mode": "abort"}))
    await asyncio.wait({pause}, timeout=0.2)
    resume = asyncio.create_task(engine.post("/continue_generation", {}))
    done, _ = await asyncio.wait({pause, resume, task}, timeout=0.5)
    assert not done
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    answers = await asyncio.wait_for(asyncio.gather(pause, resume), 30)
    assert [answer.status for answer in answers] == [200, 200]
