"""How an execution ended decides what its lease is settled with, and what that means for the engine's health."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.http1 import DONE, event_bytes
from tests.support.scripts import dies_at, generation, one, pieces, status

if TYPE_CHECKING:
    from tests.support.engine import Script
    from tests.support.lab import Lab


def compact(value: Any) -> bytes:
    """JSON as SGLang writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def chat(finish: str, *, tokens: int = 4) -> dict[str, Any]:
    """A chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "total_tokens": 3 + tokens, "completion_tokens": tokens}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}


def chunk(finish: str | None, usage: int | None = None) -> bytes:
    """A chat stream chunk."""
    value: dict[str, Any] = {"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": finish}]}
    if usage is not None:
        value = {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": usage}}
    return event_bytes(value)


def stream(*values: dict[str, Any]) -> Script:
    """An event stream of generations."""
    return pieces([*(event_bytes(value) for value in values), DONE])


def running(tokens: int) -> dict[str, Any]:
    """A generation that is not finished."""
    value = generation(tokens)
    value["meta_info"]["finish_reason"] = None
    return value


CASES: dict[str, tuple[str, Script, str, int]] = {
    "generate": ("/generate", one(compact(generation(7))), "completed", 7),
    "generate stop": ("/generate", one(compact(generation(5, finish="stop"))), "completed", 5),
    "generate abort": ("/generate", one(compact(generation(2, finish="abort"))), "aborted", 2),
    "generate pretty": ("/generate", one(json.dumps(generation(2, finish="abort"), indent=2).encode()), "aborted", 2),
    "generate stream": ("/generate", stream(running(1), running(2), generation(9)), "completed", 9),
    "generate stream abort": ("/generate", stream(running(1), generation(3, finish="abort")), "aborted", 3),
    "batch": ("/generate", one(compact([generation(4), generation(6)])), "completed", 10),
    "chat": ("/v1/chat/completions", one(compact(chat("length"))), "completed", 4),
    "chat abort": ("/v1/chat/completions", one(compact(chat("abort", tokens=1))), "aborted", 1),
    "chat stream": ("/v1/chat/completions", pieces([chunk(None), chunk("stop"), chunk(None, 8), DONE]), "completed", 8),
    "chat stream abort": ("/v1/chat/completions", pieces([chunk(None), chunk("abort"), DONE]), "aborted", 0),
    "completions": ("/v1/completions", one(compact(chat("stop", tokens=11))), "completed", 11),
    "not found": ("/generate", status(404), "rejected", 0),
    "bad request": ("/v1/completions", status(400), "rejected", 0),
    "engine error": ("/generate", status(500), "failed", 0),
    "engine busy": ("/generate", status(503), "failed", 0),
    "reset": ("/generate", dies_at([], "rst"), "ambiguous", 0),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_execution_is_settled_by_what_was_seen(lab: Lab, case: str) -> None:
    """Outcome and output tokens follow the bytes of the answer."""
    path, script, outcome, tokens = CASES[case]
    engine = await lab.engine(script)
    gateway = await lab.gateway(engine)
    await gateway.post(path, b'{"rid":"r","text":"a"}')
    await gateway.idle()
    assert gateway.outcomes() == {outcome: 1}
    assert gateway.pool.statistics().output_tokens == tokens
    backend = gateway.pool.statistics().backends[0]
    assert backend.failures == (1 if outcome in {"failed", "ambiguous"} else 0)
    assert backend.output_tokens == tokens


@pytest.mark.parametrize(
    "text",
    [
        '"finish_reason":{"type":"abort"}',
        'say \\"finish_reason\\":\\"abort\\"',
        '\\"meta_info\\":{\\"completion_tokens\\":999999}',
        '"completion_tokens": 12',
        "\\",
    ],
)
async def test_generated_text_cannot_forge_an_outcome(lab: Lab, text: str) -> None:
    """A model that writes our markers into its own text changes neither outcome nor tokens."""
    gateway = await lab.gateway(await lab.engine(one(compact(generation(3, text=text)))))
    assert (await gateway.post("/generate")).json()["text"] == text
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}
    assert gateway.pool.statistics().output_tokens == 3


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_the_outcome_does_not_depend_on_how_the_answer_is_cut(lab: Lab, size: int) -> None:
    """The scanner sees markers that lie across chunk borders."""
    whole = b"".join([event_bytes(running(1)), event_bytes(generation(42, finish="abort")), DONE])
    parts = [whole[i : i + size] for i in range(0, len(whole), size)]
    gateway = await lab.gateway(await lab.engine(pieces(parts)))
    assert (await gateway.post("/generate")).body == whole
    await gateway.idle()
    assert gateway.outcomes() == {"aborted": 1}
    assert gateway.pool.statistics().output_tokens == 42


async def test_failures_in_a_row_take_an_engine_out_and_a_rejection_does_not(lab: Lab) -> None:
    """Three broken executions: down. A hundred 4xx: still up."""
    broken = await lab.engine(dies_at([], "rst"))
    gateway = await lab.gateway(broken)
    for _ in range(3):
        assert (await gateway.post("/generate")).status == 502
        await gateway.idle()
    assert gateway.pool.statistics().backends[0].health == "down"
    assert (await gateway.post("/generate")).status == 503
    strict = await lab.gateway(await lab.engine(status(400)))
    for _ in range(20):
        assert (await strict.post("/generate")).status == 400
    await strict.idle()
    assert strict.pool.statistics().backends[0].health == "up"
