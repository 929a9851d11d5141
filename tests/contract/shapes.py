"""Shapes of SGLang's JSON, as rules that an answer is held to."""

from __future__ import annotations

from numbers import Real
from typing import Any

Shape = dict[str, Any]
"""Keys with what their value must be: a type, a tuple of types, a nested shape, or a literal list of one shape."""

NONE = type(None)

SPAN: Shape = {"version": str, "start": int, "end": int}

META_INFO: Shape = {
    "id": str,
    "finish_reason": dict,
    "prompt_tokens": int,
    "weight_version": str,
    "num_retractions": int,
    "storage_prefetch_wait": Real,
    "storage_staging_wait": Real,
    "forward_entry_time": Real,
    "prefill_finished_time": Real,
    "queue_time": Real,
    "reasoning_tokens": int,
    "completion_tokens": int,
    "cached_tokens": int,
    "weight_versions": [SPAN],
    "cached_tokens_details": (dict, NONE),
    "dp_rank": NONE,
    "e2e_latency": Real,
    "request_received_ts": Real,
    "first_token_latency": Real,
    "api_server_dispatch_finish_ts": Real,
    "request_finished_ts": Real,
    "decode_throughput": Real,
    "response_sent_to_client_ts": Real,
}

ONLY_WHEN_FINISHED = {
    "weight_versions",
    "e2e_latency",
    "request_received_ts",
    "first_token_latency",
    "api_server_dispatch_finish_ts",
    "request_finished_ts",
    "decode_throughput",
}

EARLY_META_INFO: Shape = {name: rule for name, rule in META_INFO.items() if name not in ONLY_WHEN_FINISHED} | {
    "finish_reason": NONE
}
del EARLY_META_INFO["response_sent_to_client_ts"]

QUEUE_ABORT_META_INFO: Shape = {
    "id": str,
    "finish_reason": {"type": str, "message": str},
    "weight_version": str,
    "e2e_latency": Real,
    "weight_versions": [SPAN],
    "completion_tokens": int,
    "response_sent_to_client_ts": Real,
}

ABORTED: Shape = {"type": str, "message": str, "status_code": NONE, "err_type": NONE}

GENERATED: Shape = {"text": str, "output_ids": list, "meta_info": dict}

VALIDATION_ERROR: Shape = {"object": str, "message": str, "type": str, "param": NONE, "code": int}

USAGE: Shape = {
    "prompt_tokens": int,
    "total_tokens": int,
    "completion_tokens": int,
    "prompt_tokens_details": NONE,
    "reasoning_tokens": int,
    "completion_tokens_details": NONE,
}

METADATA: Shape = {"weight_version": str, "weight_versions": [SPAN]}

CHAT_CHOICE: Shape = {
    "index": int,
    "message": {"role": str, "content": str, "reasoning_content": NONE},
    "logprobs": (dict, NONE),
    "finish_reason": str,
    "matched_stop": (int, str, NONE),
}

CHAT: Shape = {
    "id": str,
    "object": str,
    "created": int,
    "model": str,
    "choices": [CHAT_CHOICE],
    "usage": USAGE,
    "metadata": METADATA,
}

CHAT_CHUNK: Shape = {
    "id": str,
    "object": str,
    "created": int,
    "model": str,
    "choices": [
        {
            "index": int,
            "delta": dict,
            "logprobs": (dict, NONE),
            "finish_reason": (str, NONE),
            "matched_stop": (int, str, NONE),
        }
    ],
}

CHAT_TOKEN: Shape = {"token": str, "bytes": [int], "logprob": float, "top_logprobs": list}

TEXT_CHOICE: Shape = {
    "index": int,
    "text": str,
    "logprobs": (dict, NONE),
    "finish_reason": (str, NONE),
    "matched_stop": (int, str, NONE),
}

COMPLETION: Shape = CHAT | {"choices": [TEXT_CHOICE]}

COMPLETION_CHUNK: Shape = CHAT_CHUNK | {"choices": [TEXT_CHOICE], "usage": (dict, NONE)}

LOAD: Shape = {
    "timestamp": float,
    "dp_rank": int,
    "num_running_reqs": int,
    "num_waiting_reqs": int,
    "num_waiting_uncached_tokens": int,
    "num_used_tokens": int,
    "num_total_tokens": int,
    "num_active_tokens": int,
    "max_total_num_tokens": int,
    "max_running_requests": int,
    "token_usage": Real,
    "gen_throughput": Real,
    "cache_hit_rate": Real,
    "utilization": Real,
}

MODEL_CARD: Shape = {
    "id": str,
    "object": str,
    "created": int,
    "owned_by": str,
    "root": str,
    "parent": NONE,
    "max_model_len": int,
}


def check(value: Any, shape: Any, *, extra: bool = False, where: str = "answer") -> None:
    """Assert that ``value`` has ``shape``. Other keys than the shape's are wrong unless ``extra``."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), f"{where} is {value!r}, not an object"
        missing, unknown = shape.keys() - value.keys(), value.keys() - shape.keys()
        assert not missing, f"{where} lacks {sorted(missing)}"
        assert extra or not unknown, f"{where} has {sorted(unknown)} beside the documented keys"
        for name, rule in shape.items():
            check(value[name], rule, extra=extra, where=f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{where} is {value!r}, not a list"
        for position, item in enumerate(value):
            check(item, shape[0], extra=extra, where=f"{where}[{position}]")
    else:
        assert isinstance(value, shape), f"{where} is {value!r}, not {shape}"
