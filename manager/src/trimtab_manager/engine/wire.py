"""SGLang's JSON to our types, and back: every policy flag is written out, so that no default of a version decides."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import orjson

from trimtab_manager.engine.types import Loads, ModelInfo, RankLoad, ServerInfo

QUEUES = ("grammar", "paused", "retracted")
DISAGGREGATION_QUEUES = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
)


def model_info(body: dict[str, Any]) -> ModelInfo:
    """``GET /model_info``. Raises ``KeyError`` for an answer without a path."""
    path = str(body["model_path"])
    return ModelInfo(
        model_path=path,
        served_model_name=str(body.get("served_model_name", path)),
        weight_version=str(body.get("weight_version", "default")),
        raw=body,
    )


def server_info(body: dict[str, Any]) -> ServerInfo:
    """``GET /server_info``. Raises ``KeyError`` for an answer without a path."""
    return ServerInfo(
        version=str(body.get("version", "unknown")),
        model_path=str(body["model_path"]),
        tp_size=int(body.get("tp_size") or 1),
        pp_size=int(body.get("pp_size") or 1),
        dp_size=int(body.get("dp_size") or 1),
        max_running_requests=_effective_limit(body),
        max_total_tokens=_whole(body.get("max_total_num_tokens")),
        incarnation=incarnation(body),
        raw=body,
    )


def incarnation(body: dict[str, Any]) -> str:
    """What in ``/server_info`` no other start of a server has: see ``identity``."""
    states = [state.get("startup_time") for state in body.get("internal_states") or [] if isinstance(state, dict)]
    starts = sorted(orjson.dumps(start, option=orjson.OPT_SORT_KEYS).decode() for start in states if start)
    # The schedulers' own words first: an HTTP front of several processes may not know them in each.
    parts = (starts or body.get("startup_time"), body.get("random_seed"), body.get("port"), body.get("version"))
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def loads(body: dict[str, Any]) -> Loads:
    """``GET /v1/loads``. Raises ``KeyError`` for an answer without ranks, numbers or moments."""
    now_s = datetime.fromisoformat(str(body["timestamp"]).replace("Z", "+00:00")).timestamp()
    ranks = tuple(_rank(entry) for entry in body["loads"])
    ages = [now_s - rank.published_s for rank in ranks if rank.published_s is not None]
    return Loads(ranks, max([0.0, *ages]), body)


def old_loads(body: list[dict[str, Any]]) -> Loads:
    """``GET /get_load`` of older servers: the scheduler is asked for each answer, so it is never stale."""
    ranks = tuple(
        RankLoad(
            rank=int(entry["dp_rank"]),
            running=int(entry["num_reqs"]) - int(entry["num_waiting_reqs"]),
            waiting=int(entry["num_waiting_reqs"]),
        )
        for entry in body
    )
    return Loads(ranks, 0.0, body)


def _rank(entry: dict[str, Any]) -> RankLoad:
    queues, disaggregation = entry.get("queues") or {}, entry.get("disaggregation") or {}
    elsewhere = sum(int(queues.get(name, 0)) for name in QUEUES)
    elsewhere += sum(int(disaggregation.get(name, 0)) for name in DISAGGREGATION_QUEUES)
    return RankLoad(
        rank=int(entry["dp_rank"]),
        running=int(entry["num_running_reqs"]),
        waiting=int(entry["num_waiting_reqs"]),
        elsewhere=elsewhere,
        max_running_requests=_whole(entry.get("max_running_requests")),
        published_s=float(entry["timestamp"]),
    )


def _effective_limit(body: dict[str, Any]) -> int | None:
    states = [state for state in body.get("internal_states") or [] if isinstance(state, dict)]
    limits = [_whole(state.get("effective_max_running_requests_per_dp")) for state in states]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(states) else _whole(body.get("max_running_requests"))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
