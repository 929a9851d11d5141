"""How ``/generate`` refuses: status, shape, and SGLang's words where clients may look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.shapes import VALIDATION_ERROR, check

if TYPE_CHECKING:
    from tests.contract.target import Target

TOO_LONG = "The input (3000 tokens) is longer than the model's context length (2048 tokens)."
NO_ROOM = {"input_ids": [1] * 2047}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "Either text, input_ids or input_embeds should be provided."),
    ({"input_ids": []}, "input_ids cannot be empty."),
    ({"input_ids": [1] * 3000}, TOO_LONG),
    (NO_ROOM, "Input length (2047 tokens) exceeds the maximum allowed length (2042 tokens)."),
    (
        {"input_ids": [1] * 2000, "sampling_params": {"max_new_tokens": 200}},
        "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total of",
    ),
    ({"text": "a", "sampling_params": {"temperature": -1}}, "temperature must be a non-negative finite number, got -1"),
    ({"text": "a", "sampling_params": {"top_p": 2}}, "top_p must be in (0, 1], got 2."),
    ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens must be at least 0, got -1."),
    (
        {"text": "a", "sampling_params": {"max_new_tokens": 2, "min_new_tokens": 3}},
        "min_new_tokens must be in [0, max_new_tokens(2)], got 3.",
    ),
    ({"text": ["a", "b"], "rid": ["x"]}, "The specified rids length mismatch with the batch_size"),
    ({"text": ["a", "b"], "rid": ["x", "x"]}, "Duplicate request IDs detected within the request: ['x']"),
]
IDS = [
    "nothing",
    "empty",
    "too-long",
    "no-room",
    "total",
    "temperature",
    "top-p",
    "negative",
    "min",
    "rids",
    "repeated",
]


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=IDS)
async def test_a_refusal_is_a_400_with_a_message(engine: Target, body: dict[str, Any], message: str) -> None:
    """``{"error": {"message": ...}}``."""
    answer = await engine.post("/generate", body)
    assert answer.status == 400
    check(answer.json, {"error": {"message": str}})
    assert answer.json["error"]["message"].startswith(message)


async def test_a_stream_that_only_the_scheduler_refuses_is_an_abort(engine: Target) -> None:
    """A prompt that fits the context but not the five tokens kept for the output: an answer with one bogus token."""
    (event,) = (await engine.post("/generate", {"input_ids": [1] * 2047, "stream": True})).events
    assert event["output_ids"] == [0]
    assert event["text"] == "!"
    meta = event["meta_info"]
    assert meta["prompt_tokens"] == 1
    finish = meta["finish_reason"]
    assert (finish["type"], finish["status_code"], finish["err_type"]) == ("abort", 400, "BadRequestError")
    assert finish["message"].startswith("Input length (2047 tokens) exceeds the maximum allowed length (2042 tokens).")


@pytest.mark.parametrize(
    ("body", "message"), [row for row in REFUSED if row[0] != NO_ROOM], ids=[name for name in IDS if name != "no-room"]
)
async def test_a_refused_stream_is_a_200_with_an_error_event(
    engine: Target, body: dict[str, Any], message: str
) -> None:
    """The head of the stream is out before the request is looked at."""
    answer = await engine.post("/generate", {**body, "stream": True})
    assert answer.status == 200
    assert answer.content_type == "text/event-stream; charset=utf-8"
    (event,) = answer.events
    check(event, {"error": {"message": str, "type": str, "code": int, "retryable": bool}})
    assert event["error"]["message"].startswith(message)
    assert (event["error"]["code"], event["error"]["retryable"]) == (400, False)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"foo": 1}, "unknown field `foo`, expected one of `max_new_tokens`"), ({"max_new_tokens": "a"}, "invalid type")],
    ids=["unknown", "type"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bad_sampling_parameter_is_a_400_with_a_text(
    engine: Target, params: dict[str, Any], message: str, stream: bool
) -> None:
    """Here ``error`` is a string, and a stream gets the 400, too."""
    answer = await engine.post("/generate", {"text": "a", "stream": stream, "sampling_params": params})
    assert answer.status == 400
    check(answer.json, {"error": str})
    assert answer.json["error"].startswith(message)


@pytest.mark.parametrize(
    "body",
    [
        {"text": 5},
        {"input_ids": "abc"},
        {"input_ids": ["abc"]},
        {"input_ids": [1, 1.5]},
        {"text": "a", "sampling_params": "x"},
        {"text": "a", "stream": "maybe"},
        {"text": "a", "rid": 5},
        [1, 2],
    ],
    ids=["text", "ids", "words", "fraction", "params", "stream", "rid", "list"],
)
async def test_a_wrong_type_is_a_validation_error(engine: Target, body: Any) -> None:
    """400, never 422."""
    answer = await engine.post("/generate", body)
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)
    assert (answer.json["object"], answer.json["code"]) == ("error", 400)


@pytest.mark.parametrize(
    ("data", "content_type"),
    [(b"{bad", "application/json"), (b"", "application/json"), (b'{"text":"a"}', "text/plain")],
    ids=["malformed", "empty", "content-type"],
)
async def test_a_body_that_is_no_json_is_a_validation_error(engine: Target, data: bytes, content_type: str) -> None:
    """Malformed, missing, or under another content type."""
    answer = await engine.call("POST", "/generate", data=data, headers={"content-type": content_type})
    assert answer.status == 400
    check(answer.json, VALIDATION_ERROR)


async def test_a_list_of_parameters_that_is_too_short_is_a_500(engine: Target) -> None:
    """SGLang's accident, in plain text; the engine survives it."""
    params = [{"max_new_tokens": 1}]
    answer = await engine.post("/generate", {"text": ["a", "b"], "sampling_params": params})
    assert (answer.status, answer.text) == (500, "Internal Server Error")
    assert (await engine.generate(1)).status == 200


async def test_other_methods_and_paths(engine: Target) -> None:
    """405 with the allowed methods, and 404; ``/get_load`` and ``/chat/completions`` do not exist."""
    refused = await engine.get("/generate")
    assert (refused.status, refused.json) == (405, {"detail": "Method Not Allowed"})
    assert set(refused.headers["Allow"].split(", ")) == {"POST", "PUT"}
    for path in ("/nope", "/get_load"):
        unknown = await engine.get(path)
        assert (unknown.status, unknown.json) == (404, {"detail": "Not Found"})
    assert (await engine.post("/chat/completions", {})).status == 404
