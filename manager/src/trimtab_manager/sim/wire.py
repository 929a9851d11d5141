"""Shapes of SGLang's JSON: outputs, errors, log-probabilities. Pure functions over executions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trimtab_manager.sim.tokens import logprob, mix, token_text

if TYPE_CHECKING:
    from trimtab_manager.sim.execution import Execution, LogprobRequest

Json = dict[str, Any]


def output(execution: Execution, version: str, *, first: bool = False) -> Json:
    """One object of ``/generate``: a whole answer, or one event of a stream with everything up to now.

    ``version`` is the label that the HTTP side has now; ``first`` marks the first event of a stream.
    """
    return {
        "text": execution.text,
        "output_ids": list(execution.tokens),
        "meta_info": meta_info(execution, version, first=first),
    }


def meta_info(execution: Execution, version: str, *, first: bool = False) -> Json:
    """``meta_info`` of one execution. An execution that was aborted in the queue has a short one, as in SGLang.

    ``weight_version`` is what the HTTP side says until the end, and then the label of the last token.
    """
    times, done = execution.times, execution.finish is not None
    now = time.time()
    if execution.in_queue_abort:
        spans = weight_versions(execution, version)
        return {
            "id": execution.rid,
            "finish_reason": execution.finish,
            "weight_version": spans[-1]["version"],
            "e2e_latency": times.finished - times.received,
            "weight_versions": spans,
            "completion_tokens": len(execution.tokens),
            "response_sent_to_client_ts": now,
        }
    meta: Json = {
        "id": execution.rid,
        "finish_reason": execution.finish,
        "prompt_tokens": len(execution.prompt),
        "weight_version": version,
        "num_retractions": execution.retractions,
        "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0,
        "forward_entry_time": times.forwarded,
        "prefill_finished_time": times.prefilled,
        "queue_time": times.forwarded - times.dispatched,
    }
    if execution.logprobs is not None:
        meta |= logprob_fields(execution, execution.logprobs)
    meta |= {
        "reasoning_tokens": 0,
        "completion_tokens": len(execution.tokens),
        "cached_tokens": execution.cached_tokens,
    }
    if done:
        meta["weight_versions"] = weight_versions(execution, version)
        meta["weight_version"] = meta["weight_versions"][-1]["version"]
    cached = execution.cached_tokens
    meta |= {"cached_tokens_details": {"device": cached, "host": 0} if cached else None, "dp_rank": None}
    if first and not done:
        meta["response_sent_to_client_ts"] = now
    if done:
        meta |= _timing_fields(execution, now)
    return meta


def weight_versions(execution: Execution, version: str) -> list[Json]:
    """Which version made which output tokens: ``start`` inclusive, ``end`` exclusive, adjoining, never empty."""
    spans = execution.spans or [(version, 0)]
    ends = [start for _, start in spans[1:]] + [len(execution.tokens)]
    return [{"version": label, "start": start, "end": end} for (label, start), end in zip(spans, ends, strict=True)]


def logprob_fields(execution: Execution, wanted: LogprobRequest) -> Json:
    """The log-probability fields of ``meta_info``: lists of ``[logprob, token id, text or null]``."""

    def row(value: float | None, token: int) -> list[Any]:
        return [value, token, token_text(token) if wanted.with_text else None]

    prompt = [ord(token) for token in execution.prompt] if wanted.start >= 0 else []
    prompt_rows = [
        row(None if position == 0 else _prompt_logprob(prompt, position), token)
        for position, token in enumerate(prompt[wanted.start :], wanted.start)
    ]
    pairs = zip(execution.token_logprobs, execution.tokens, strict=True)
    fields: Json = {
        "input_token_logprobs": prompt_rows,
        "output_token_logprobs": [row(value, token) for value, token in pairs],
        "output_token_logprobs_length": len(execution.tokens),
    }
    if wanted.top:
        fields["input_top_logprobs"] = [
            None if value is None else [row(value - step * 0.1, (token + step) % 256) for step in range(wanted.top)]
            for value, token, _ in prompt_rows
        ]
        fields["output_top_logprobs"] = [[row(*choice) for choice in choices] for choices in execution.top_logprobs]
    if wanted.token_ids is not None:
        fields["input_token_ids_logprobs"] = [
            None if value is None else [row(_id_logprob(position, token), token) for token in wanted.token_ids]
            for position, (value, _, _) in enumerate(prompt_rows)
        ]
        fields["output_token_ids_logprobs"] = [
            [row(_id_logprob(position, token), token) for token in wanted.token_ids]
            for position in range(len(execution.tokens))
        ]
    return fields


def stream_error(message: str) -> Json:
    """An error of ``/generate`` with ``stream``: it arrives as an event of a 200."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}


def request_error(message: str) -> Json:
    """An error of ``/generate``."""
    return {"error": {"message": message}}


def validation_error(message: str, kind: str = "Bad Request") -> Json:
    """An error of body validation, or with ``kind="BadRequestError"`` of an OpenAI endpoint; the status is 400."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": 400}


def _timing_fields(execution: Execution, now: float) -> Json:
    times = execution.times
    fields: Json = {
        "e2e_latency": times.finished - times.received,
        "request_received_ts": times.received,
        "first_token_latency": times.prefilled - times.received,
        "api_server_dispatch_finish_ts": times.dispatched,
        "request_finished_ts": times.finished,
    }
    decoded, elapsed = len(execution.tokens), times.finished - times.prefilled
    if decoded > 0 and elapsed > 0:
        fields["decode_throughput"] = decoded / elapsed
    return fields | {"response_sent_to_client_ts": now}


def _prompt_logprob(prompt: list[int], position: int) -> float:
    return logprob(mix(prompt[position - 1] << 32 | prompt[position]))


def _id_logprob(position: int, token: int) -> float:
    return logprob(mix(position << 32 | token))
