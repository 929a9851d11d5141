"""``/v1/completions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.shapes import COMPLETION, COMPLETION_CHUNK, VALIDATION_ERROR, check

if TYPE_CHECKING:
    from tests.contract.target import Target


async def test_shape_of_an_answer(engine: Target) -> None:
    """The same output as ``/generate`` on the same text."""
    answer = await engine.complete(4, rid="c-1")
    assert answer.status == 200
    check(answer.json, COMPLETION)
    assert (answer.json["id"], answer.json["object"]) == ("c-1", "text_completion")
    raw = (await engine.generate(4, text="a")).json
    assert answer.json["choices"][0]["text"] == raw["text"]
    assert answer.json["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize(
    ("prompt", "rid", "choices", "tokens"),
    [(["a", "bc"], "c_0", 2, 3), ([1, 2, 3], "c", 1, 3), ([[1, 2, 3]], "c_0", 1, 3)],
    ids=["texts", "ids", "lists-of-ids"],
)
async def test_prompts(engine: Target, prompt: Any, rid: str, choices: int, tokens: int) -> None:
    """A text, texts, ids or lists of ids; a list makes a batch, whose first id is the answer's."""
    answer = (await engine.complete(2, prompt=prompt, rid="c")).json
    assert answer["id"] == rid
    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 2 * choices


async def test_default_length(engine: Target) -> None:
    """16 tokens, as OpenAI."""
    body = {"model": "m", "prompt": "a", "temperature": 0, "ignore_eos": True}
    assert (await engine.post("/v1/completions", body)).json["usage"]["completion_tokens"] == 16


async def test_echo_and_logprobs(engine: Target) -> None:
    """Prompt and output with their probabilities; the first prompt token has none."""
    answer = (await engine.complete(3, prompt=[1, 2, 3], echo=True, logprobs=2)).json
    (choice,) = answer["choices"]
    assert choice["text"].startswith('"#$')
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
    assert logprobs["text_offset"] == [-1] * 6
    assert [value is None for value in logprobs["token_logprobs"]] == [True] + [False] * 5
    assert logprobs["tokens"][:3] == ['"', "#", "$"]
    assert [top is None for top in logprobs["top_logprobs"]] == [True] + [False] * 5


async def test_stream(engine: Target) -> None:
    """Text as it comes; the finish reason is in the last chunk with text; ``usage`` is null but in the last of all."""
    whole = (await engine.complete(8)).json["choices"][0]["text"]
    *chunks, last = (await engine.complete(8, stream=True, stream_options={"include_usage": True})).events
    for chunk in [*chunks, last]:
        check(chunk, COMPLETION_CHUNK)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole
    assert {chunk["usage"] for chunk in chunks} == {None} if all(c["usage"] is None for c in chunks) else False
    *early, final = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert (set(early) - {None}, final) == (set(), "length")
    assert last["choices"] == []
    assert set(last["usage"]) == {"prompt_tokens", "total_tokens", "completion_tokens", "reasoning_tokens"}
    assert last["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "prompt": 5}], ids=["missing", "type"])
async def test_a_wrong_type_is_a_validation_error(engine: Target, body: Any) -> None:
    """400 of type ``Bad Request``."""
    answer = await engine.post("/v1/completions", body)
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)


async def test_an_empty_prompt_is_refused(engine: Target) -> None:
    """400 of type ``BadRequestError``."""
    answer = await engine.post("/v1/completions", {"model": "m", "prompt": []})
    assert (answer.status, answer.json["message"]) == (400, "Prompt cannot be empty")
