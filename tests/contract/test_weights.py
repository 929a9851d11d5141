"""Weight updates from disk, and version labels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.target import Target

UPDATED = "Succeeded to update model weights."
NOT_FLUSHED = "Weights were updated, but the cache was not flushed because requests are still running or queued."


async def update(engine: Target, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of an update from disk."""
    answer = await engine.post("/update_weights_from_disk", {"model_path": path, **fields})
    assert set(answer.json) == {"success", "message", "num_paused_requests"}
    assert answer.json["success"] == (answer.status == 200)
    return answer.status, answer.json


async def test_an_update_changes_output_version_and_name(engine: Target) -> None:
    """Other weights, other greedy output; back again, the first output. The model is renamed to the path."""
    before = (await engine.generate(8)).json
    status, body = await update(engine, engine.models[1], weight_version="v1")
    assert (status, body["message"]) == (200, f"{UPDATED} Weight version updated to v1.")
    assert body["num_paused_requests"] == 0
    info = (await engine.get("/model_info")).json
    assert (info["weight_version"], info["model_path"]) == ("v1", engine.models[1])
    assert info["served_model_name"] == engine.models[1]
    assert (await engine.get("/v1/models")).json["data"][0]["id"] == engine.models[1]
    after = (await engine.generate(8)).json
    assert after["output_ids"] != before["output_ids"]
    assert after["meta_info"]["weight_versions"] == [{"version": "v1", "start": 0, "end": 8}]
    # The start-up values of /server_info do not move.
    assert (await engine.get("/server_info")).json["model_path"] == engine.models[0]
    await update(engine, engine.models[0])
    again = (await engine.generate(8)).json
    assert again["output_ids"] == before["output_ids"]
    # Without a version the old label stays, on other weights.
    assert again["meta_info"]["weight_version"] == "v1"


async def test_an_update_flushes_the_cache_unless_told_not_to(engine: Target) -> None:
    """``flush_cache`` is true by default."""
    await engine.generate(2, text="cached with old weights")
    await update(engine, engine.models[1], flush_cache=False)
    kept = (await engine.generate(2, text="cached with old weights")).json["meta_info"]["cached_tokens"]
    await update(engine, engine.models[0])
    flushed = (await engine.generate(2, text="cached with old weights")).json["meta_info"]["cached_tokens"]
    assert kept > 0
    assert flushed == 0


async def test_a_bad_path_changes_nothing(engine: Target) -> None:
    """400; the engine goes on with its weights and its version."""
    before = (await engine.generate(4)).json["output_ids"]
    status, body = await update(engine, "/no/such/folder", weight_version="v9")
    assert status == 400
    assert body["message"].startswith("Failed to get weights iterator: ")
    info = (await engine.get("/model_info")).json
    assert (info["weight_version"], info["model_path"]) == ("default", engine.models[0])
    assert (await engine.generate(4)).json["output_ids"] == before


async def test_an_update_waits_for_running_requests(engine: Target) -> None:
    """They end with the old weights; what comes after the update call waits for the new ones."""
    await engine.slow_down()
    running = asyncio.create_task(engine.generate(30))
    await engine.until_load(1)
    updating = asyncio.create_task(update(engine, engine.models[1], weight_version="v1"))
    await asyncio.wait({updating}, timeout=0.2)
    behind = asyncio.create_task(engine.generate(3))
    await engine.speed_up()
    status, _ = await asyncio.wait_for(updating, 30)
    assert status == 200
    spans = [answer.json["meta_info"]["weight_versions"] for answer in (await running, await behind)]
    assert spans == [[{"version": "default", "start": 0, "end": 30}], [{"version": "v1", "start": 0, "end": 3}]]


async def test_an_update_can_abort_instead_of_waiting(engine: Target) -> None:
    """``abort_all_requests`` cuts what runs."""
    await engine.slow_down()
    running = asyncio.create_task(engine.generate(500))
    await engine.until_load(1)
    status, _ = await update(engine, engine.models[1], weight_version="v1", abort_all_requests=True)
    assert status == 200
    meta = (await asyncio.wait_for(running, 20)).json["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert meta["weight_versions"][0]["version"] == "default"


@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_a_request_that_lives_through_an_update_tells_its_versions(engine: Target, mode: str) -> None:
    """While paused an update is immediate; the output then has one span of tokens per version."""
    await engine.slow_down()
    async with engine.stream(40) as stream:
        await engine.pause(mode)
        status, _ = await update(engine, engine.models[1], weight_version="v1", flush_cache=mode == "retract")
        assert status == 200
        await engine.speed_up()
        await engine.resume()
        meta = (await asyncio.wait_for(stream.rest(), 30))["meta_info"]
    old, new = meta["weight_versions"]
    assert (old["version"], old["start"], new["version"], new["end"]) == ("default", 0, "v1", 40)
    assert old["end"] == new["start"] > 0
    assert meta["weight_version"] == "v1"


async def test_an_update_whose_flush_is_refused_has_changed_the_weights(engine: Target) -> None:
    """400, and ``/model_info`` keeps the old version, though the tokens carry the new one."""
    await engine.slow_down()
    async with engine.stream(40) as stream:
        await engine.pause("in_place")
        status, body = await update(engine, engine.models[1], weight_version="v1")
        assert status == 400
        assert body["message"].startswith(NOT_FLUSHED)
        info = (await engine.get("/model_info")).json
        assert (info["weight_version"], info["model_path"]) == ("default", engine.models[0])
        await engine.speed_up()
        await engine.resume()
        meta = (await asyncio.wait_for(stream.rest(), 30))["meta_info"]
    assert [span["version"] for span in meta["weight_versions"]] == ["default", "v1"]
    # An answer that is complete is labelled by its last token, whatever /model_info says.
    assert meta["weight_version"] == "v1"
    # Give the shared engine its label back, which a reset could not see to be wrong.
    await update(engine, engine.models[0], weight_version="default")


async def test_a_version_can_change_alone(engine: Target) -> None:
    """By default every request is aborted; told not to, they go on under the new label."""
    await engine.slow_down()
    async with engine.stream(40) as stream:
        body = {"new_version": "v4", "abort_all_requests": False}
        answer = await engine.post("/update_weight_version", body)
        assert answer.json == {"success": True, "message": "Weight version updated to v4", "new_version": "v4"}
        await engine.speed_up()
        meta = (await asyncio.wait_for(stream.rest(), 30))["meta_info"]
    assert [span["version"] for span in meta["weight_versions"]] == ["default", "v4"]
    await engine.slow_down()
    async with engine.stream(500) as stream:
        assert (await engine.post("/update_weight_version", {"new_version": "v5"})).status == 200
        meta = (await asyncio.wait_for(stream.rest(), 30))["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert (await engine.get("/model_info")).json["weight_version"] == "v5"
    assert (await engine.get("/server_info")).json["weight_version"] == "default"
