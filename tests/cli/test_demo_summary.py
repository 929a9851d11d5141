"""The demo's books: what an answer means, how answers are counted, and when the counts pass."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from trimtab.cli.demo.answer import TurnError, TurnResult, read_answer
from trimtab.cli.demo.reconcile import Counts, find_disagreements, find_moves
from trimtab.cli.demo.report import report
from trimtab.cli.demo.summary import Summary, coefficient_of_variation
from trimtab.cli.demo.tally import Tally

GOOD = Summary(
    engines=("a", "b"),
    capacities=(8.0, 2.0),
    tokens_per_engine=(8_000, 2_000),
    sessions=50,
    turns=200,
    requests=200,
    cached_share=0.8,
    moves=3,
    spilled=3,
    leases_open=0,
    elapsed_s=20.0,
    failures=(),
    disagreements=(),
)


def answer(tokens: int, **changes: Any) -> dict[str, Any]:
    """A raw answer of ``tokens`` tokens."""
    meta = {"prompt_tokens": 9, "cached_tokens": 4, "completion_tokens": tokens, "finish_reason": {"type": "length"}}
    return {"text": "", "output_ids": list(range(tokens)), "meta_info": meta | changes}


def test_coefficient_of_variation_is_the_population_one() -> None:
    """Worked by hand: mean 3, squared deviations 1 and 1."""
    assert coefficient_of_variation([2.0, 4.0]) == pytest.approx(1 / 3)
    assert coefficient_of_variation([5.0]) == 0
    assert coefficient_of_variation([0.0, 0.0]) == 0


def test_evenness_is_measured_per_capacity() -> None:
    """Tokens in proportion to capacity are perfectly even; equal tokens on unequal engines are not."""
    assert GOOD.cv_output_tokens == 0
    assert replace(GOOD, tokens_per_engine=(5_000, 5_000)).cv_output_tokens == pytest.approx(0.6)


@pytest.mark.parametrize(
    "fault",
    [
        {"failures": (("HTTP 503", 2),)},
        {"moves": 4},
        {"spilled": 4},
        {"leases_open": 1},
        {"disagreements": ("a: differ",)},
    ],
)
def test_any_fault_fails_the_run(fault: dict[str, Any]) -> None:
    """Errors, moves without a reason, open leases and disagreeing counts each fail; the report says so."""
    failed = replace(GOOD, **fault)
    assert GOOD.passed
    assert not failed.passed
    assert "FAILED" in shown(failed)
    assert "passed" in shown(GOOD)


def test_an_uneven_short_run_is_a_note_and_not_a_failure() -> None:
    """Evenness depends on how many sessions ran, so it is reported and does not decide."""
    uneven = replace(GOOD, tokens_per_engine=(5_000, 5_000))
    assert uneven.passed
    assert "Load is uneven" in shown(uneven)


def shown(summary: Summary) -> str:
    """The report as plain text."""
    console = Console(width=100)
    with console.capture() as capture:
        console.print(report(summary))
    return capture.get()


def test_json_has_exactly_the_documented_keys() -> None:
    """Scripts read these names; lists are in the order of the engines."""
    got = json.loads(json.dumps(GOOD.as_json()))
    assert got == {
        "engines": 2,
        "capacities": [8.0, 2.0],
        "sessions": 50,
        "turns": 200,
        "requests": 200,
        "errors": 0,
        "output_tokens": 10_000,
        "tokens_per_engine": [8_000, 2_000],
        "cv_output_tokens": 0.0,
        "sticky_violations": 0,
        "spilled": 3,
        "leases_open": 0,
        "requests_per_s": 10.0,
    }


def test_a_session_moves_when_its_next_answer_comes_from_elsewhere() -> None:
    """The answer before makes an engine the session's home; a session that stays where it went has moved once."""
    tally = Tally.over(["a", "b"])
    for session, backend in [("s", "a"), ("s", "b"), ("s", "b"), ("s", "a"), ("t", "b"), ("t", "b")]:
        tally.record(session, TurnResult(backend, [1, 2], prompt_tokens=10, cached_tokens=5))
    assert (tally.moves, tally.moved) == (2, {"s"})
    assert tally.turns == 6
    assert tally.output_tokens == 12
    assert tally.cached_share == 0.5
    with pytest.raises(TurnError, match="unknown engine 'c'"):
        tally.record("s", TurnResult("c", [1], prompt_tokens=1, cached_tokens=0))


def test_books_that_differ_are_named_with_their_counts() -> None:
    """Agreement is exact, per engine; a party that knows nothing of an engine disagrees too."""
    same = {"a": Counts(3, 30), "b": Counts(1, 10)}
    assert find_disagreements({"clients": same, "gateway": dict(same), "engines": dict(same)}) == []
    lines = find_disagreements(
        {"clients": same, "gateway": same | {"b": Counts(1, 9)}, "engines": {"b": Counts(1, 10)}}
    )
    assert [line.split(":")[0] for line in lines] == ["a", "b"]
    assert "engines: nothing" in lines[0]
    assert "gateway: 1 requests, 9 tokens" in lines[1]


def test_a_session_that_two_engines_have_seen_and_no_client_is_named() -> None:
    """The engines' own records are enough to tell that a session moved."""
    assert find_moves({"a": {"s", "t"}, "b": {"u"}}, set()) == []
    assert find_moves({"a": ["s", "t"], "b": ["t"]}, {"t"}) == []
    (line,) = find_moves({"a": ["s", "t"], "b": ["t"]}, {"s"})
    assert line.startswith("session t ran on a and b")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_read_whole_or_from_its_last_event(stream: bool) -> None:
    """SGLang's events are cumulative: the one before ``[DONE]`` holds the whole answer."""
    whole = json.dumps(answer(3)).encode()
    first = json.dumps(answer(1)).encode()
    payload = b"data: " + first + b"\n\ndata: " + whole + b"\n\ndata: [DONE]\n\n" if stream else whole
    result = read_answer(200, "a", payload, stream=stream, asked=3)
    assert result == TurnResult("a", [0, 1, 2], prompt_tokens=9, cached_tokens=4)


@pytest.mark.parametrize(
    ("status", "backend", "payload", "stream", "message"),
    [
        (503, None, b'{"error":{"code":"no_eligible_backend"}}', False, "HTTP 503.*no_eligible_backend"),
        (200, None, json.dumps(answer(3)).encode(), False, "no x-trimtab-backend"),
        (200, "a", json.dumps(answer(2)).encode(), False, "2 tokens.*3 were asked"),
        (200, "a", json.dumps(answer(3, completion_tokens=2)).encode(), False, "counted 2"),
        (200, "a", b'data: {"error":{"message":"cut"}}\n\n', True, "broke off"),
        (200, "a", b"data: [DONE]\n\n", True, "no event"),
        (200, "a", b'data: {"error":{"message":"too long"}}\n\ndata: [DONE]\n\n', True, "too long"),
    ],
)
def test_an_answer_that_is_not_as_asked_is_an_error(
    status: int, backend: str | None, payload: bytes, stream: bool, message: str
) -> None:
    """Nothing but the full answer from a named engine counts."""
    with pytest.raises(TurnError, match=message):
        read_answer(status, backend, payload, stream=stream, asked=3)
