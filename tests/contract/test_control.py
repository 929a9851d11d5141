"""Abort, flush and memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.shapes import ABORTED, QUEUE_ABORT_META_INFO, VALIDATION_ERROR, check

if TYPE_CHECKING:
    from tests.contract.target import Target

FLUSHED = "Cache flushed."
NEED_A_BODY = (
    "/abort_request",
    "/pause_generation",
    "/continue_generation",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/update_weights_from_disk",
    "/update_weight_version",
    "/slow_down",
)


@pytest.mark.parametrize("path", NEED_A_BODY)
async def test_a_body_is_required(engine: Target, path: str) -> None:
    """Even where ``{}`` is enough."""
    answer = await engine.post(path)
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/pause_generation", {"mode": "zzz"}),
        ("/abort_request", {"rid": 5}),
        ("/slow_down", {}),
        ("/update_weights_from_disk", {}),
        ("/update_weight_version", {}),
    ],
)
async def test_a_bad_body_is_a_validation_error(engine: Target, path: str, body: Any) -> None:
    """400 of type ``Bad Request``."""
    answer = await engine.post(path, body)
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)


async def test_abort_of_what_is_not_there(engine: Target) -> None:
    """200 without a body."""
    for body in ({"rid": "nope"}, {}, {"abort_all": True}):
        answer = await engine.post("/abort_request", body)
        assert (answer.status, answer.text) == (200, "")


async def test_abort_is_a_prefix_match(engine: Target) -> None:
    """``job1`` takes ``job10`` along, in the batch and in the queue; ``other`` lives on."""
    await engine.slow_down()
    tasks = [asyncio.create_task(engine.generate(500, rid=f"job1{number}")) for number in range(8)]
    await engine.until_load(8)
    tasks.append(asyncio.create_task(engine.generate(500, rid="job1")))
    other = asyncio.create_task(engine.generate(3, rid="other"))
    await engine.until_load(8, 2)
    assert (await engine.post("/abort_request", {"rid": "job1"})).status == 200
    answers = [answer.json["meta_info"] for answer in await asyncio.wait_for(asyncio.gather(*tasks), 20)]
    for meta in answers[:8]:
        check(meta["finish_reason"], ABORTED)
        assert meta["finish_reason"]["message"] == "Aborted"
        assert meta["completion_tokens"] > 0
    queued = answers[8]
    check(queued, QUEUE_ABORT_META_INFO)
    assert queued["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert queued["completion_tokens"] == 0
    assert (await asyncio.wait_for(other, 20)).json["meta_info"]["finish_reason"]["type"] == "length"


async def test_abort_of_a_mere_prefix_does_nothing(engine: Target) -> None:
    """The id itself must be in flight for the prefix match to begin."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(10, rid="job77"))
    await engine.until_load(1)
    await engine.post("/abort_request", {"rid": "job7"})
    assert (await asyncio.wait_for(task, 20)).json["meta_info"]["finish_reason"]["type"] == "length"


async def test_an_id_in_flight_is_refused(engine: Target) -> None:
    """400 naming it; free again when the request is over."""
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(20, rid="twice"))
    await engine.until_load(1)
    refused = await engine.generate(1, rid="twice")
    assert (refused.status, refused.json) == (400, {"error": {"message": "Duplicate request ID detected: twice"}})
    await asyncio.wait_for(task, 20)
    assert (await engine.generate(1, rid="twice")).status == 200


async def test_flush(engine: Target) -> None:
    """Plain text without a content type; refused while a request runs; ``timeout`` waits for idleness."""
    for method in ("GET", "POST"):
        answer = await engine.call(method, "/flush_cache")
        assert (answer.status, answer.content_type) == (200, None)
        assert answer.text.startswith(FLUSHED)
    await engine.slow_down()
    task = asyncio.create_task(engine.generate(30))
    await engine.until_load(1)
    refused = await engine.post("/flush_cache")
    assert (refused.status, refused.text) == (400, "Flush cache failed.\n")
    late = await engine.get("/flush_cache?timeout=0.1")
    assert (late.status, late.text) == (400, "Timed out waiting for idle state.")
    assert (await engine.get("/flush_cache?timeout=20")).status == 200
    assert (await asyncio.wait_for(task, 20)).status == 200


@pytest.mark.parametrize("timeout", ["-1", "soon"])
async def test_a_bad_flush_timeout_is_a_validation_error(engine: Target, timeout: str) -> None:
    """400."""
    answer = await engine.get(f"/flush_cache?timeout={timeout}")
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)


@pytest.mark.parametrize("tags", [{"tags": ["kv_cache"]}, {"tags": ["weights", "kv_cache"]}, {}])
async def test_release_and_resume(engine: Target, tags: dict[str, Any]) -> None:
    """``null``; a second release is harmless; no tags are all tags."""
    for _ in range(2):
        released = await engine.post("/release_memory_occupation", tags)
        assert (released.status, released.json) == (200, None)
    resumed = await engine.post("/resume_memory_occupation", tags)
    assert (resumed.status, resumed.json) == (200, None)
    assert (await engine.generate(1)).status == 200


async def test_releasing_the_kv_cache_empties_it(engine: Target) -> None:
    """Nothing is cached afterwards."""
    await engine.generate(2, text="remember this")
    await engine.post("/release_memory_occupation", {"tags": ["kv_cache"]})
    await engine.post("/resume_memory_occupation", {"tags": ["kv_cache"]})
    assert (await engine.generate(2, text="remember this")).json["meta_info"]["cached_tokens"] == 0
