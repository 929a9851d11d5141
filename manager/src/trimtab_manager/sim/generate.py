"""``/generate``: SGLang's own inference endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from trimtab_manager.sim import wire
from trimtab_manager.sim.bodies import (
    Field,
    any_of,
    engine_of,
    is_boolean,
    is_integer,
    is_list_of,
    is_object,
    is_string,
    json_response,
    read_object,
)
from trimtab_manager.sim.execution import Execution, LogprobRequest
from trimtab_manager.sim.inference import build, finished, progress, request_ids, session_of
from trimtab_manager.sim.reply import start_stream
from trimtab_manager.sim.sampling import RequestError, SamplingParams, SchemaError, check_schema
from trimtab_manager.sim.tokens import encode, pack

if TYPE_CHECKING:
    from aiohttp import web

DONE = b"data: [DONE]\n\n"

_FIELDS = {
    "text": Field(any_of(is_string, is_list_of(is_string)), "a valid string or a list of strings"),
    "input_ids": Field(
        any_of(is_list_of(is_integer), is_list_of(is_list_of(is_integer))), "a list of ints or of lists of ints"
    ),
    "sampling_params": Field(any_of(is_object, is_list_of(is_object)), "a valid dictionary or a list of them"),
    "rid": Field(any_of(is_string, is_list_of(is_string)), "a valid string or a list of strings"),
    "stream": Field(is_boolean, "a valid boolean"),
    "return_logprob": Field(any_of(is_boolean, is_list_of(is_boolean)), "a valid boolean or a list of them"),
    "logprob_start_len": Field(any_of(is_integer, is_list_of(is_integer)), "a valid integer or a list of them"),
    "top_logprobs_num": Field(any_of(is_integer, is_list_of(is_integer)), "a valid integer or a list of them"),
    "token_ids_logprob": Field(is_list_of(is_integer), "a list of ints"),
    "return_text_in_logprobs": Field(is_boolean, "a valid boolean"),
}


async def handle_generate(request: web.Request) -> web.StreamResponse:
    """POST or PUT ``/generate``."""
    body = await read_object(request)
    for name, field in _FIELDS.items():
        field.check(body, name)
    try:
        _check_sampling(body)
    except SchemaError as error:
        return json_response({"error": str(error)}, 400)
    if body.get("stream"):
        return await _stream(request, body)
    try:
        executions, single = _parse(request, body)
        async with engine_of(request).execute(executions):
            await finished(executions)
    except RequestError as error:
        return json_response(wire.request_error(str(error)), 400)
    version = engine_of(request).weights.version
    outputs = [wire.output(execution, version) for execution in executions]
    return json_response(outputs[0] if single else outputs)


async def _stream(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    engine = engine_of(request)
    out = await start_stream(request)
    try:
        executions, single = _parse(request, body)
        started: set[int] = set()
        async with engine.execute(executions):
            async for index, execution in progress(executions):
                event = wire.output(execution, engine.weights.version, first=index not in started)
                started.add(index)
                if not single:
                    event["index"] = index
                await out.write(sse(event))
    except RequestError as error:
        # The head of a 200 is out already, as in SGLang: the error is an event.
        await out.write(sse(wire.stream_error(str(error))))
    await out.write(DONE)
    return await out.end()


def sse(event: object) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(event) + b"\n\n"


def _check_sampling(body: dict[str, Any]) -> None:
    given = body.get("sampling_params") or {}
    for item in given if isinstance(given, list) else [given]:
        check_schema(item)


def _parse(request: web.Request, body: dict[str, Any]) -> tuple[list[Execution], bool]:
    """The executions that a body asks for, and whether the answer is one object instead of a list."""
    prompts, single = _prompts(body)
    given = body.get("sampling_params") or {}
    if isinstance(given, list):
        # SGLang fails with a 500 on a list that is too short; so does this, by the same accident.
        params = [SamplingParams.parse(given[position]) for position in range(len(prompts))]
    else:
        params = [SamplingParams.parse(given)] * len(prompts)
    samples = params[0].n if params else 1
    if any(item.n != samples for item in params):
        raise RequestError("The parallel_sample_num should be the same for all samples in sample params.")
    rids = request_ids(body.get("rid"), len(prompts), single=single, samples=samples)
    executions = build(
        prompts,
        params,
        rids,
        stream=bool(body.get("stream")),
        logprobs=_logprobs(body),
        session=session_of(request.headers, body),
    )
    return executions, single and samples == 1


def _prompts(body: dict[str, Any]) -> tuple[list[str], bool]:
    """Packed prompts, and whether there is one that is not in a list. With both given, the ids are what counts."""
    text, ids = body.get("text"), body.get("input_ids")
    if text is None and ids is None:
        raise RequestError("Either text, input_ids or input_embeds should be provided.")
    if ids is not None:
        if not ids:
            raise RequestError("input_ids cannot be empty.")
        return (list(map(pack, ids)), False) if isinstance(ids[0], list) else ([pack(ids)], True)
    return ([encode(text)], True) if isinstance(text, str) else (list(map(encode, text or [])), False)


def _logprobs(body: dict[str, Any]) -> LogprobRequest | None:
    if not _first(body.get("return_logprob")):
        return None
    ids = body.get("token_ids_logprob")
    return LogprobRequest(
        start=_first(body.get("logprob_start_len"), -1),
        top=_first(body.get("top_logprobs_num"), 0),
        token_ids=tuple(ids) if ids else None,
        with_text=bool(body.get("return_text_in_logprobs")),
    )


def _first(value: Any, default: Any = None) -> Any:
    """A value that may come as one per prompt; the first one then counts for all."""
    if isinstance(value, list):
        value = value[0] if value else None
    return default if value is None else value
