"""``/v1/chat/completions``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.shapes import CHAT, CHAT_CHUNK, CHAT_TOKEN, USAGE, VALIDATION_ERROR, check

if TYPE_CHECKING:
    from tests.contract.target import Target


async def test_shape_of_an_answer(engine: Target) -> None:
    """OpenAI's shape plus ``metadata``; the id is the client's ``rid``; the model is echoed, not checked."""
    answer = await engine.chat(4, rid="chat-1", model="nobody-knows-it")
    assert (answer.status, answer.content_type) == (200, "application/json")
    check(answer.json, CHAT)
    assert (answer.json["id"], answer.json["object"]) == ("chat-1", "chat.completion")
    assert answer.json["model"] == "nobody-knows-it"
    (choice,) = answer.json["choices"]
    assert (choice["index"], choice["finish_reason"], choice["matched_stop"]) == (0, "length", None)
    assert choice["message"]["role"] == "assistant"
    usage = answer.json["usage"]
    # The chat template of the tiny model makes 21 tokens of one user message "hi".
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (21, 4, 25)
    assert answer.json["metadata"]["weight_versions"] == [{"version": "default", "start": 0, "end": 4}]


async def test_without_a_model(engine: Target) -> None:
    """It is called ``default`` then."""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 2, "ignore_eos": True}
    answer = await engine.post("/v1/chat/completions", body)
    assert (answer.status, answer.json["model"], answer.json["usage"]["completion_tokens"]) == (200, "default", 2)


async def test_content_in_parts_is_the_same_text(engine: Target) -> None:
    """A list of text parts is what its texts are together."""
    whole = await engine.chat(4)
    parts = await engine.chat(4, messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}])
    assert parts.json["choices"] == whole.json["choices"]


async def test_samples(engine: Target) -> None:
    """``n`` choices; the prompt counts once."""
    answer = (await engine.chat(3, n=2)).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"] | {"prompt_tokens": 21, "completion_tokens": 6, "total_tokens": 27} == answer["usage"]


async def test_logprobs(engine: Target) -> None:
    """Per token: text, bytes, log-probability, and the likeliest tokens."""
    answer = (await engine.chat(3, logprobs=True, top_logprobs=2)).json
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for token in content:
        check(token, CHAT_TOKEN)
        assert [set(top) for top in token["top_logprobs"]] == [{"token", "bytes", "logprob"}] * 2


async def test_stream(engine: Target) -> None:
    """The role first, then text, then the finish reason in a chunk without content; no metadata."""
    whole = (await engine.chat(8)).json["choices"][0]["message"]["content"]
    answer = await engine.chat(8, rid="c", stream=True)
    assert answer.content_type == "text/event-stream; charset=utf-8"
    events = answer.events
    for event in events:
        check(event, CHAT_CHUNK)
        assert (event["id"], event["object"]) == ("c", "chat.completion.chunk")
    first, *middle, last = [event["choices"][0] for event in events]
    assert first["delta"] == {"role": "assistant", "content": "", "reasoning_content": None}
    assert "".join(choice["delta"]["content"] for choice in middle) == whole
    assert {choice["finish_reason"] for choice in [first, *middle]} == {None}
    assert (last["delta"], last["finish_reason"]) == ({"reasoning_content": None}, "length")


async def test_stream_with_usage(engine: Target) -> None:
    """The last chunk has no choices, and the counts of all samples."""
    events = (await engine.chat(3, n=2, stream=True, stream_options={"include_usage": True})).events
    *chunks, last = events
    check(last, CHAT_CHUNK | {"usage": USAGE})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0, 1}
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "Messages cannot be empty."),
        ({"messages": [{"role": "user", "content": "x" * 3000}]}, "The input (3019 tokens) is longer than"),
        ({"max_tokens": 5000}, "Requested token count exceeds the model's maximum context length of 2048 tokens."),
        ({"temperature": -1}, "temperature must be a non-negative finite number, got -1.0."),
    ],
    ids=["empty", "long", "total", "temperature"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_a_plain_400(engine: Target, fields: dict[str, Any], message: str, stream: bool) -> None:
    """Also for a stream, unlike ``/generate``."""
    answer = await engine.chat(4, stream=stream, **fields)
    assert (answer.status, answer.content_type) == (400, "application/json")
    check(answer.json, VALIDATION_ERROR)
    assert answer.json["message"].startswith(message)
    assert answer.json["type"] == "BadRequestError"


@pytest.mark.parametrize(
    "body",
    [{"model": "m"}, {"messages": [{"role": "zzz", "content": "x"}]}, {"messages": "hi"}],
    ids=["missing", "role", "type"],
)
async def test_a_wrong_type_is_a_validation_error(engine: Target, body: Any) -> None:
    """400 of type ``Bad Request``."""
    answer = await engine.post("/v1/chat/completions", body)
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)
    assert answer.json["type"] == "Bad Request"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_the_content_type_must_be_json(engine: Target, path: str) -> None:
    """Checked before the body; GET is 405."""
    answer = await engine.call("POST", path, data=b"{}", headers={"content-type": "text/plain"})
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)
    assert (await engine.get(path)).status == 405


@pytest.mark.parametrize("stream", [False, True])
async def test_an_abort_is_a_finish_reason(engine: Target, stream: bool) -> None:
    """200 with what there is."""
    await engine.slow_down()
    task = asyncio.create_task(engine.chat(500, rid="chat-abort", stream=stream))
    await engine.until_load(1)
    await engine.post("/abort_request", {"rid": "chat-abort"})
    answer = await asyncio.wait_for(task, 20)
    assert answer.status == 200
    last = answer.events[-1] if stream else answer.json
    assert last["choices"][0]["finish_reason"] == "abort"


async def test_the_head_of_a_stream_waits_for_the_first_token(engine: Target) -> None:
    """Unlike ``/generate``: that is why its errors can be plain 400s."""
    await engine.pause("in_place")
    task = asyncio.create_task(engine.chat(2, stream=True))
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2}
    head = asyncio.create_task(engine.http.post(f"{engine.url}/v1/chat/completions", json=body).__aenter__())
    done, _ = await asyncio.wait({head}, timeout=0.5)
    assert not done
    await engine.resume()
    response = await asyncio.wait_for(head, 20)
    assert response.status == 200
    response.close()
    assert (await asyncio.wait_for(task, 20)).status == 200
