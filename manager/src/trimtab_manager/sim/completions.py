"""``/v1/completions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab_manager.sim.bodies import (
    Field,
    any_of,
    engine_of,
    is_boolean,
    is_integer,
    is_list_of,
    is_string,
    json_response,
    read_object,
)
from trimtab_manager.sim.execution import Execution, LogprobRequest
from trimtab_manager.sim.generate import DONE, sse
from trimtab_manager.sim.inference import build, finished, progress, request_ids, session_of
from trimtab_manager.sim.openai import (
    COMMON_FIELDS,
    Envelope,
    bad_request,
    ending,
    metadata,
    require_json,
    sampling,
    usage,
    wants_usage,
)
from trimtab_manager.sim.reply import Body, start_stream
from trimtab_manager.sim.sampling import RequestError
from trimtab_manager.sim.tokens import decode, encode, pack, token_text
from trimtab_manager.sim.wire import logprob_fields

if TYPE_CHECKING:
    from aiohttp import web

    from trimtab_manager.sim import wire

DEFAULT_MAX_TOKENS = 16

_IDS = is_list_of(is_integer)
_FIELDS = COMMON_FIELDS | {
    "prompt": Field(
        any_of(is_string, is_list_of(is_string), _IDS, is_list_of(_IDS)), "a string, ids, or a list of either",
        required=True,
    ),
    "logprobs": Field(is_integer, "a valid integer"),
    "echo": Field(is_boolean, "a valid boolean"),
}  # fmt: skip


async def handle_completions(request: web.Request) -> web.StreamResponse:
    """POST ``/v1/completions``."""
    require_json(request)
    body = await read_object(request)
    for name, field in _FIELDS.items():
        field.check(body, name)
    if not body["prompt"]:
        return bad_request("Prompt cannot be empty")
    try:
        executions = _parse(request, body)
        async with engine_of(request).execute(executions):
            if body.get("stream"):
                return await _stream(request, body, executions)
            await finished(executions)
    except RequestError as error:
        return bad_request(str(error))
    version = engine_of(request).weights.version
    choices = [_choice(index, execution, _Seen(), body) for index, execution in enumerate(executions)]
    answer = Envelope.of(body, "text_completion").wrap(
        executions[0].rid,
        choices,
        usage=usage(executions, executions[0].params.n),
        metadata=metadata(executions, version),
    )
    return json_response(answer)


async def _stream(request: web.Request, body: dict[str, Any], executions: list[Execution]) -> web.StreamResponse:
    envelope = Envelope.of(body, "text_completion")
    out: Body | None = None  # the head leaves with the first event, so that errors before it can be plain 400s
    seen = [_Seen() for _ in executions]
    async for index, execution in progress(executions):
        out = out or await start_stream(request)
        choice = _choice(index, execution, seen[index], body)
        await out.write(sse(envelope.wrap(execution.rid, [choice], usage=None)))
    out = out or await start_stream(request)
    if wants_usage(body):
        counts = usage(executions, executions[0].params.n)
        short = {name: value for name, value in counts.items() if not name.endswith("_details")}
        await out.write(sse(envelope.wrap(executions[-1].rid, [], usage=short)))
    await out.write(DONE)
    return await out.end()


class _Seen:
    """How much of an execution's text and tokens has been sent."""

    def __init__(self) -> None:
        self.begun = False
        self.text = 0
        self.tokens = 0


def _choice(index: int, execution: Execution, seen: _Seen, body: dict[str, Any]) -> wire.Json:
    text = execution.text[seen.text :]
    if body.get("echo") and not seen.begun:
        text = decode(execution.prompt) + text
    logprobs = _logprobs(execution, seen, echo=bool(body.get("echo")))
    seen.begun, seen.text, seen.tokens = True, len(execution.text), len(execution.tokens)
    reason, matched = ending(execution)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, "matched_stop": matched}


def _logprobs(execution: Execution, seen: _Seen, *, echo: bool) -> wire.Json | None:
    if execution.logprobs is None:
        return None
    fields = logprob_fields(execution, execution.logprobs)
    rows = fields["output_token_logprobs"][seen.tokens :]
    tops = fields.get("output_top_logprobs", [])[seen.tokens :]
    if echo and not seen.begun:
        rows = fields["input_token_logprobs"] + rows
        tops = fields.get("input_top_logprobs", []) + tops
    return {
        "text_offset": [-1] * len(rows),
        "token_logprobs": [value for value, _, _ in rows],
        "tokens": [token_text(token) for _, token, _ in rows],
        "top_logprobs": [
            None if choices is None else {token_text(token): value for value, token, _ in choices} for choices in tops
        ],
    }


def _parse(request: web.Request, body: dict[str, Any]) -> list[Execution]:
    prompt = body["prompt"]
    single = isinstance(prompt, str) or isinstance(prompt[0], int)
    prompts = [_pack(item) for item in ([prompt] if single else prompt)]
    params = sampling(body, body.get("max_tokens", DEFAULT_MAX_TOKENS))
    top = body.get("logprobs")
    start = 0 if body.get("echo") else -1
    logprobs = None if top is None else LogprobRequest(start=start, top=top, with_text=True)
    return build(
        prompts,
        [params] * len(prompts),
        request_ids(body.get("rid"), len(prompts), single=single, samples=params.n),
        stream=bool(body.get("stream")),
        logprobs=logprobs,
        session=session_of(request.headers, body),
    )


def _pack(prompt: str | list[int]) -> str:
    return encode(prompt) if isinstance(prompt, str) else pack(prompt)
