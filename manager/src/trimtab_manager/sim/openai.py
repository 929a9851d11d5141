"""What chat and completions share: parameters in OpenAI's words, usage, metadata, errors."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab_manager.sim import wire
from trimtab_manager.sim.bodies import (
    JSON,
    BodyError,
    Field,
    any_of,
    is_boolean,
    is_integer,
    is_list_of,
    is_number,
    is_object,
    is_string,
    json_response,
)
from trimtab_manager.sim.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from trimtab_manager.sim.execution import Execution

DEFAULT_MODEL = "default"
_STOP = any_of(is_string, is_list_of(is_string))

COMMON_FIELDS = {
    "model": Field(is_string, "a valid string"),
    "max_tokens": Field(is_integer, "a valid integer"),
    "temperature": Field(is_number, "a valid number"),
    "top_p": Field(is_number, "a valid number"),
    "n": Field(is_integer, "a valid integer"),
    "stop": Field(_STOP, "a valid string or a list of strings"),
    "stop_token_ids": Field(is_list_of(is_integer), "a list of ints"),
    "seed": Field(is_integer, "a valid integer"),
    "min_tokens": Field(is_integer, "a valid integer"),
    "ignore_eos": Field(is_boolean, "a valid boolean"),
    "no_stop_trim": Field(is_boolean, "a valid boolean"),
    "stream": Field(is_boolean, "a valid boolean"),
    "stream_options": Field(is_object, "a valid dictionary"),
    "rid": Field(any_of(is_string, is_list_of(is_string)), "a valid string or a list of strings"),
}


@dataclass(frozen=True)
class Envelope:
    """What stays the same in every object of one answer."""

    kind: str
    model: str
    created: int

    @classmethod
    def of(cls, body: dict[str, Any], kind: str) -> Envelope:
        """The envelope of an answer; the model is echoed, whatever it is, as SGLang does."""
        return cls(kind, body.get("model") or DEFAULT_MODEL, int(time.time()))

    def wrap(self, rid: str, choices: list[wire.Json], **more: Any) -> wire.Json:
        """One object of the answer."""
        head = {"id": rid, "object": self.kind, "created": self.created, "model": self.model}
        return {**head, "choices": choices, **more}


def require_json(request: web.Request) -> None:
    """Raises ``BodyError`` unless the content type is JSON; the OpenAI endpoints check it first."""
    if request.content_type != JSON:
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise BodyError("value_error", ("header", "content-type"), message)


def sampling(body: dict[str, Any], max_tokens: int | None) -> SamplingParams:
    """Sampling parameters of an OpenAI body. Raises ``RequestError`` for a value out of range."""
    temperature, top_p = body.get("temperature"), body.get("top_p")
    return SamplingParams.parse(
        {
            "max_new_tokens": max_tokens,
            "min_new_tokens": body.get("min_tokens"),
            "temperature": None if temperature is None else float(temperature),
            "top_p": None if top_p is None else float(top_p),
            "n": body.get("n"),
            "stop": body.get("stop"),
            "stop_token_ids": body.get("stop_token_ids"),
            "ignore_eos": body.get("ignore_eos"),
            "no_stop_trim": body.get("no_stop_trim"),
            "sampling_seed": body.get("seed"),
        }
    )


def wants_usage(body: dict[str, Any]) -> bool:
    """Whether a stream ends with a usage chunk."""
    return bool((body.get("stream_options") or {}).get("include_usage"))


def usage(executions: Sequence[Execution], samples: int) -> wire.Json:
    """Token counts of an answer. A prompt counts once, whatever its samples; one aborted in the queue not at all."""
    firsts = executions[::samples]
    prompt = sum(0 if execution.in_queue_abort else len(execution.prompt) for execution in firsts)
    completion = sum(len(execution.tokens) for execution in executions)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def metadata(executions: Sequence[Execution], version: str) -> wire.Json:
    """SGLang's addition to the answer: which weights made it."""
    spans = wire.weight_versions(executions[0], version)
    return {"weight_version": spans[-1]["version"], "weight_versions": spans}


def ending(execution: Execution) -> tuple[str | None, Any]:
    """``finish_reason`` and ``matched_stop`` of a choice."""
    finish = execution.finish
    return (finish["type"], finish.get("matched")) if finish is not None else (None, None)


def bad_request(message: str) -> web.Response:
    """A 400 of the OpenAI endpoints; they give it for streams, too."""
    return json_response(wire.validation_error(message, "BadRequestError"), 400)
