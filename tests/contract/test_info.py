"""Endpoints that report."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from tests.contract.shapes import LOAD, MODEL_CARD, NONE, check

if TYPE_CHECKING:
    from tests.contract.target import Target

GAUGES = (
    "num_running_reqs",
    "num_queue_reqs",
    "token_usage",
    "num_used_tokens",
    "kv_available_tokens",
    "kv_used_tokens",
    "kv_evictable_tokens",
    "max_total_num_tokens",
    "gen_throughput",
    "cache_hit_rate",
    "utilization",
)
COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "num_requests_total")


@pytest.mark.parametrize("path", ["/ready", "/health", "/health_generate"])
async def test_health_is_an_empty_200(engine: Target, path: str) -> None:
    """GET only."""
    answer = await engine.get(path)
    assert (answer.status, answer.text) == (200, "")
    assert (await engine.post(path)).status == 405


async def test_a_paused_engine_is_not_ready(engine: Target) -> None:
    """``/ready`` says so at once; ``/model_info`` still answers."""
    await engine.pause("in_place")
    assert (await engine.get("/ready")).status == 503
    assert (await engine.get("/model_info")).status == 200
    await engine.resume()
    assert (await engine.get("/ready")).status == 200


async def test_health_of_a_paused_engine_hangs_until_it_continues(engine: Target) -> None:
    """It does not fail at once: a short pause is not noticed by a probe with patience."""
    await engine.pause("retract")
    health = asyncio.create_task(engine.get("/health"))
    await engine.get("/model_info")
    assert not health.done()
    await engine.resume()
    assert (await asyncio.wait_for(health, 25)).status == 200


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
async def test_model_info(engine: Target, path: str) -> None:
    """What a router reads."""
    info = (await engine.get(path)).json
    shape = {
        "model_path": str,
        "served_model_name": str,
        "tokenizer_path": str,
        "is_generation": bool,
        "preferred_sampling_params": NONE,
        "weight_version": str,
        "load_format": str,
        "reasoning_parser": NONE,
        "tool_call_parser": NONE,
        "disaggregation_mode": str,
        "has_image_understanding": bool,
        "has_audio_understanding": bool,
        "model_type": str,
        "architectures": [str],
    }
    check(info, shape, extra=True)
    assert info["model_path"] == info["tokenizer_path"] == engine.models[0]
    assert (info["weight_version"], info["architectures"]) == ("default", ["LlamaForCausalLM"])


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
async def test_server_info(engine: Target, path: str) -> None:
    """A few of its hundreds of keys."""
    info = (await engine.get(path)).json
    shape = {
        "model_path": str,
        "served_model_name": str,
        "weight_version": str,
        "max_running_requests": int,
        "max_total_tokens": int,
        "status": str,
        "version": str,
        "max_total_num_tokens": int,
        "max_req_input_len": int,
        "tp_size": int,
        "dp_size": int,
        "page_size": int,
        "startup_time": dict,
        "internal_states": [dict],
    }
    check(info, shape, extra=True)
    assert (info["status"], info["max_running_requests"], info["max_total_num_tokens"]) == ("ready", 8, 16384)
    assert (info["max_req_input_len"], info["version"]) == (2042, "0.5.23")


async def test_models(engine: Target) -> None:
    """One card, under the served name; others do not exist."""
    answer = (await engine.get("/v1/models")).json
    check(answer, {"object": str, "data": [MODEL_CARD]})
    (card,) = answer["data"]
    assert card["id"] == card["root"] == (await engine.get("/model_info")).json["served_model_name"]
    assert card["max_model_len"] == 2048
    found = await engine.get(f"/v1/models/{card['id'].lstrip('/')}")
    # A model that was renamed to a path by an update is not found under it: the leading slash is lost.
    assert found.status == (404 if card["id"].startswith("/") else 200)
    missing = await engine.get("/v1/models/nope")
    assert missing.status == 404
    assert missing.json["error"] == {
        "message": "The model 'nope' does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_loads(engine: Target) -> None:
    """Counts of an idle and of a full engine."""
    answer = (await engine.get("/v1/loads")).json
    top = {"timestamp": str, "version": str, "accelerator": NONE, "num_accelerators": int, "loads": [LOAD]}
    check(answer, top, extra=True)
    (load,) = answer["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["max_running_requests"]) == (0, 0, 8)
    assert {"memory", "disaggregation", "queues"} <= load.keys()
    (core,) = (await engine.get("/v1/loads?include=core")).json["loads"]
    assert not core.keys() & {"memory", "disaggregation", "queues"}
    await engine.slow_down()
    tasks = [asyncio.create_task(engine.generate(500)) for _ in range(10)]
    await engine.until_load(8, 2)
    assert (await engine.load())["num_used_tokens"] > 0
    await engine.post("/abort_request", {"abort_all": True})
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    await engine.until_load(0)


async def test_metrics(engine: Target) -> None:
    """Prometheus text under SGLang's names; in-flight HTTP requests are exact."""
    await engine.generate(4)
    answer = await engine.get("/metrics")
    assert (answer.content_type or "").startswith("text/plain; version=0.0.4")
    names = set(re.findall(r"^sglang:(\w+)\{", answer.text, re.MULTILINE))
    assert set(GAUGES) | set(COUNTERS) <= names
    line = re.search(
        r'^sglang:http_requests_active\{endpoint="/generate",method="POST"\} (\S+)$', answer.text, re.MULTILINE
    )
    assert line is not None
    assert float(line[1]) == 0
    labels = re.search(r"^sglang:num_running_reqs\{(.*)\}", answer.text, re.MULTILINE)
    assert labels is not None
    assert {"engine_type", "model_name", "tp_rank"} <= set(re.findall(r"(\w+)=", labels[1]))
