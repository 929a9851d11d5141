"""``/generate`` with a stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.contract.shapes import ABORTED, EARLY_META_INFO, META_INFO, check

if TYPE_CHECKING:
    from tests.contract.target import Target


async def test_events_are_cumulative(engine: Target) -> None:
    """Each event has everything so far; only the last has a finish reason and what follows from it."""
    answer = await engine.generate(6, text="stream me", rid="s", stream=True)
    assert answer.content_type == "text/event-stream; charset=utf-8"
    assert answer.headers.get("Transfer-Encoding") == "chunked"
    *early, last = answer.events
    seen: list[int] = []
    for number, event in enumerate(early):
        meta = dict(event["meta_info"])
        assert ("response_sent_to_client_ts" in meta) == (number == 0)
        meta.pop("response_sent_to_client_ts", None)
        check(meta, EARLY_META_INFO)
        assert event["output_ids"][: len(seen)] == seen
        seen = event["output_ids"]
        assert len(seen) == meta["completion_tokens"]
    check(last["meta_info"], META_INFO)
    assert last["meta_info"]["id"] == "s"
    whole = (await engine.generate(6, text="stream me")).json
    assert (last["text"], last["output_ids"]) == (whole["text"], whole["output_ids"])


async def test_logprobs_are_cumulative(engine: Target) -> None:
    """So are they."""
    events = (await engine.generate(4, return_logprob=True, stream=True)).events
    for event in events:
        meta = event["meta_info"]
        assert [row[1] for row in meta["output_token_logprobs"]] == event["output_ids"]
        assert meta["output_token_logprobs_length"] == len(event["output_ids"])


async def test_a_batch_has_an_index(engine: Target) -> None:
    """Events of the executions of a batch are interleaved; ``index`` says whose each is."""
    events = (await engine.generate(3, text=["a", "b"], rid="b", stream=True)).events
    assert {(event["index"], event["meta_info"]["id"]) for event in events} == {(0, "b_0"), (1, "b_1")}
    finished = [event["index"] for event in events if event["meta_info"]["finish_reason"] is not None]
    assert sorted(finished) == [0, 1]


async def test_a_stream_without_output(engine: Target) -> None:
    """One event, which is the last."""
    (event,) = (await engine.generate(0, stream=True)).events
    assert event["output_ids"] == []
    assert event["meta_info"]["finish_reason"] == {"type": "length", "length": 0}


async def test_an_abort_ends_a_stream_in_order(engine: Target) -> None:
    """The last event has what there is and the finish reason ``abort``; ``[DONE]`` follows."""
    await engine.slow_down()
    async with engine.stream(500, rid="to-abort") as stream:
        assert (await engine.post("/abort_request", {"rid": "to-abort"})).status == 200
        last = await asyncio.wait_for(stream.rest(), 20)
    check(last["meta_info"]["finish_reason"], ABORTED)
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert 0 < last["meta_info"]["completion_tokens"] < 500
    await engine.until_load(0)


async def test_the_head_of_a_stream_comes_before_the_first_token(engine: Target) -> None:
    """Even on a paused engine: the status says nothing about the request."""
    await engine.pause("in_place")
    body = {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 1}}
    async with engine.http.post(f"{engine.url}/generate", json=body) as response:
        assert response.status == 200
        await engine.resume()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_a_client_that_leaves_frees_the_engine(engine: Target) -> None:
    """Its execution ends long before its 1,500 tokens."""
    await engine.slow_down()
    async with engine.stream(1_500):
        await engine.until_load(1)
    await engine.until_load(0)


async def test_a_client_that_leaves_without_a_stream_frees_the_engine(engine: Target) -> None:
    """SGLang looks every few seconds; the request does not run to its end in any case."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(1_500))
    await engine.until_load(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await engine.until_load(0)
