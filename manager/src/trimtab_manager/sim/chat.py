"""``/v1/chat/completions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab_manager.sim.bodies import (
    BodyError,
    Field,
    engine_of,
    is_boolean,
    is_integer,
    is_list_of,
    is_object,
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
from trimtab_manager.sim.tokens import encode_chat, token_bytes, token_text

if TYPE_CHECKING:
    from aiohttp import web

    from trimtab_manager.sim import wire

ROLES = frozenset({"system", "user", "assistant", "tool", "function", "developer", "latest_reminder", "root"})

_FIELDS = COMMON_FIELDS | {
    "messages": Field(is_list_of(is_object), "a valid list of messages", required=True),
    "max_completion_tokens": Field(is_integer, "a valid integer"),
    "logprobs": Field(is_boolean, "a valid boolean"),
    "top_logprobs": Field(is_integer, "a valid integer"),
}


async def handle_chat(request: web.Request) -> web.StreamResponse:
    """POST ``/v1/chat/completions``."""
    require_json(request)
    body = await read_object(request)
    for name, field in _FIELDS.items():
        field.check(body, name)
    messages = _messages(body)
    if not messages:
        return bad_request("Messages cannot be empty.")
    try:
        executions = _parse(request, body, messages)
        async with engine_of(request).execute(executions):
            if body.get("stream"):
                return await _stream(request, body, executions)
            await finished(executions)
    except RequestError as error:
        return bad_request(str(error))
    version = engine_of(request).weights.version
    choices = [_choice(index, execution) for index, execution in enumerate(executions)]
    answer = Envelope.of(body, "chat.completion").wrap(
        executions[0].rid,
        choices,
        usage=usage(executions, len(executions)),
        metadata=metadata(executions, version),
    )
    return json_response(answer)


async def _stream(request: web.Request, body: dict[str, Any], executions: list[Execution]) -> web.StreamResponse:
    envelope = Envelope.of(body, "chat.completion.chunk")
    out: Body | None = None  # the head leaves with the first event, so that errors before it can be plain 400s
    deltas = [_Deltas(index, execution) for index, execution in enumerate(executions)]
    async for index, execution in progress(executions):
        out = out or await start_stream(request)
        for choice in deltas[index].take():
            await out.write(sse(envelope.wrap(execution.rid, [choice])))
    out = out or await start_stream(request)
    if wants_usage(body):
        await out.write(sse(envelope.wrap(executions[-1].rid, [], usage=usage(executions, len(executions)))))
    await out.write(DONE)
    return await out.end()


class _Deltas:
    """Turns the growing output of one execution into chat chunks: the role, text as it comes, the ending."""

    def __init__(self, index: int, execution: Execution) -> None:
        self._index = index
        self._execution = execution
        self._begun = False
        self._text = 0
        self._tokens = 0

    def take(self) -> list[wire.Json]:
        """The choices that are due now."""
        execution = self._execution
        choices = []
        if not self._begun:
            self._begun = True
            choices.append(self._chunk({"role": "assistant", "content": ""}))
        if len(execution.text) > self._text:
            content = execution.text[self._text :]
            logprobs = _logprobs(execution, self._tokens)
            choices.append(self._chunk({"content": content}, logprobs=logprobs))
            self._text, self._tokens = len(execution.text), len(execution.tokens)
        if execution.finish is not None:
            reason, matched = ending(execution)
            choices.append(self._chunk({}, reason=reason, matched=matched))
        return choices

    def _chunk(
        self, delta: wire.Json, *, logprobs: Any = None, reason: str | None = None, matched: Any = None
    ) -> wire.Json:
        return {
            "index": self._index,
            "delta": {"reasoning_content": None, **delta},
            "logprobs": logprobs,
            "finish_reason": reason,
            "matched_stop": matched,
        }


def _choice(index: int, execution: Execution) -> wire.Json:
    reason, matched = ending(execution)
    return {
        "index": index,
        "message": {"role": "assistant", "content": execution.text, "reasoning_content": None},
        "logprobs": _logprobs(execution, 0),
        "finish_reason": reason,
        "matched_stop": matched,
    }


def _logprobs(execution: Execution, since: int) -> wire.Json | None:
    if execution.logprobs is None:
        return None

    def entry(value: float, token: int) -> wire.Json:
        return {"token": token_text(token), "bytes": list(token_text(token).encode()), "logprob": value}

    content = []
    for position in range(since, len(execution.tokens)):
        choices = execution.top_logprobs[position] if execution.logprobs.top else []
        row = entry(execution.token_logprobs[position], execution.tokens[position])
        row["bytes"] = list(token_bytes(execution.tokens[position]))
        content.append({**row, "top_logprobs": [entry(*choice) for choice in choices]})
    return {"content": content}


def _messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """``(role, content)`` pairs. Raises ``BodyError`` for an unknown role or a content of another type."""
    messages = []
    for position, message in enumerate(body["messages"]):
        role = message.get("role")
        if not isinstance(role, str) or role.lower() not in ROLES:
            raise BodyError("value_error", ("body", "messages", position, "role"), "Input should be a known role", role)
        messages.append((role, _content(message.get("content"), position)))
    return messages


def _content(content: Any, position: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise BodyError("string_type", ("body", "messages", position, "content"), "Input should be a valid string", content)


def _parse(request: web.Request, body: dict[str, Any], messages: list[tuple[str, str]]) -> list[Execution]:
    wanted = body.get("max_completion_tokens") or body.get("max_tokens")
    params = sampling(body, wanted)
    logprobs = LogprobRequest(top=body.get("top_logprobs") or 0, with_text=True) if body.get("logprobs") else None
    return build(
        [encode_chat(messages)],
        [params],
        request_ids(body.get("rid"), 1, single=True, samples=params.n),
        stream=bool(body.get("stream")),
        logprobs=logprobs,
        session=session_of(request.headers, body),
    )
