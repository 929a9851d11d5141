"""Endpoints that report: health, model, server, loads; and the two that only a simulated engine has."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from trimtab_manager.sim.bodies import BodyError, engine_of, json_response
from trimtab_manager.sim.faults import Fault

if TYPE_CHECKING:
    from trimtab_manager.sim.loads import LoadSnapshot

VERSION = "0.5.23"
"""The SGLang version whose behaviour this engine follows."""


async def handle_ready(request: web.Request) -> web.Response:
    """GET ``/ready``: at once 200, or 503 while paused or after a failed health check."""
    return web.Response(status=200 if engine_of(request).ready else 503)


async def handle_health(request: web.Request) -> web.Response:
    """GET ``/health``: 200 after a second. While nothing can be generated it blocks, and fails at its time-out."""
    engine = engine_of(request)
    config, waited = engine.config, 0.0
    while True:
        await asyncio.sleep(config.health_interval_s * config.time_scale)
        waited += config.health_interval_s
        if engine.responsive:
            engine.healthy = True
            return web.Response()
        if waited >= config.health_timeout_s or config.health_interval_s == 0:
            engine.healthy = False
            return web.Response(status=503)


async def handle_model_info(request: web.Request) -> web.Response:
    """GET ``/model_info``: the only place where path, name and weight version are current."""
    engine = engine_of(request)
    weights = engine.weights
    return json_response(
        {
            "model_path": weights.model_path,
            "served_model_name": weights.served_name,
            "tokenizer_path": engine.config.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": weights.version,
            "load_format": "auto",
            "reasoning_parser": None,
            "tool_call_parser": None,
            "disaggregation_mode": "null",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
        }
    )


async def handle_server_info(request: web.Request) -> web.Response:
    """GET ``/server_info``: start-up values. An update does not move them, as in SGLang. Hangs with the scheduler."""
    engine = engine_of(request)
    config = engine.config
    async with engine.scheduler.between_steps():
        throughput = engine.scheduler.counters.throughput
    return json_response(
        {
            "model_path": config.model_path,
            "tokenizer_path": config.model_path,
            "served_model_name": config.model_name,
            "weight_version": "default",
            "skip_tokenizer_init": False,
            "context_length": None,
            "max_running_requests": config.max_running_requests,
            "max_total_tokens": config.max_total_tokens,
            "schedule_policy": "fcfs",
            "page_size": 1,
            "tp_size": 1,
            "pp_size": 1,
            "dp_size": 1,
            "random_seed": config.seed,
            "enable_metrics": True,
            "disaggregation_mode": "null",
            "status": "ready",
            "version": VERSION,
            "frontend": "simulated",
            "max_total_num_tokens": config.max_total_tokens,
            "max_req_input_len": config.max_prompt_tokens,
            "startup_time": engine.startup_time,
            "enable_memory_saver": config.memory_saver,
            "enable_weights_cpu_backup": False,
            "internal_states": [
                {
                    "startup_time": {name: engine.startup_time[name] for name in ("load_weight", "scheduler_e2e")},
                    "last_gen_throughput": throughput,
                    "effective_max_running_requests_per_dp": config.max_running_requests,
                    "memory_usage": {"token_capacity": config.max_total_tokens},
                }
            ],
        }
    )


async def handle_models(request: web.Request) -> web.Response:
    """GET ``/v1/models``."""
    return json_response({"object": "list", "data": [_card(request)]})


async def handle_model(request: web.Request) -> web.Response:
    """GET ``/v1/models/<name>``."""
    name = request.match_info["name"]
    if name == engine_of(request).weights.served_name:
        return json_response(_card(request))
    error = {
        "message": f"The model '{name}' does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    return json_response({"error": error}, 404)


async def handle_loads(request: web.Request) -> web.Response:
    """GET ``/v1/loads[?include=core|all]``: what the scheduler published last; stale while paused or hung."""
    load = load_of(engine_of(request).loads(), detailed=request.query.get("include", "all") != "core")
    return json_response(
        {
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "version": VERSION,
            "accelerator": None,
            "num_accelerators": 1,
            "loads": [load],
        }
    )


async def handle_faults(request: web.Request) -> web.Response:
    """GET, POST (one fault or a list) or DELETE ``/sim/faults``; answers with what is armed."""
    engine = engine_of(request)
    if request.method == "DELETE":
        engine.disarm()
    elif request.method == "POST":
        try:
            given = orjson.loads(await request.read())
            for fault in [Fault.from_mapping(item) for item in (given if isinstance(given, list) else [given])]:
                engine.arm(fault)
        except (ValueError, TypeError) as error:
            raise BodyError("fault", ("body",), str(error)) from error
    return json_response({"faults": [fault.to_mapping() for fault in engine.faults.armed()]})


async def handle_statistics(request: web.Request) -> web.Response:
    """GET ``/sim/statistics``: the frozen statistics of the engine, always current."""
    return json_response(asdict(engine_of(request).statistics()))


def load_of(snapshot: LoadSnapshot, *, detailed: bool) -> dict[str, Any]:
    """One entry of ``loads``: counts of requests and tokens, usage between 0 and 1, tokens per second."""
    kv = snapshot.kv
    load: dict[str, Any] = {
        "timestamp": snapshot.timestamp,
        "dp_rank": 0,
        "num_running_reqs": snapshot.running,
        "num_waiting_reqs": snapshot.waiting,
        "num_waiting_uncached_tokens": snapshot.waiting_tokens,
        "num_used_tokens": kv.used,
        "num_total_tokens": kv.used + snapshot.waiting_tokens,
        "num_active_tokens": snapshot.sequence_tokens + snapshot.waiting_tokens,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": kv.capacity,
        "max_running_requests": snapshot.max_running,
        "token_usage": round(kv.used / kv.capacity, 4),
        "gen_throughput": round(snapshot.throughput, 2),
        "cache_hit_rate": round(snapshot.hit_rate, 4),
        "utilization": round(snapshot.running / snapshot.max_running, 4),
    }
    if detailed:
        load |= {
            "memory": {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": kv.capacity},
            "disaggregation": {"mode": "null"},
            "queues": {"waiting": snapshot.waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
        }
    return load


def _card(request: web.Request) -> dict[str, Any]:
    engine = engine_of(request)
    return {
        "id": engine.weights.served_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": engine.weights.served_name,
        "parent": None,
        "max_model_len": engine.config.context_length,
    }
