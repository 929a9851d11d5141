"""``/generate`` without a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.shapes import GENERATED, META_INFO, check

if TYPE_CHECKING:
    from tests.contract.target import Target

TOP = 2


async def test_shape_of_an_answer(engine: Target) -> None:
    """All the keys of a finished answer, with their types, and nothing else."""
    answer = await engine.generate(4, rid="a-request")
    assert answer.status == 200
    assert answer.content_type == "application/json"
    check(answer.json, GENERATED)
    meta = answer.json["meta_info"]
    check(meta, META_INFO)
    assert meta["id"] == "a-request"
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert len(answer.json["output_ids"]) == meta["completion_tokens"] == 4
    assert meta["prompt_tokens"] == 3
    assert meta["weight_versions"] == [{"version": meta["weight_version"], "start": 0, "end": 4}]


async def test_put_is_post(engine: Target) -> None:
    """``/generate`` takes PUT, too."""
    body = {"text": "a", "sampling_params": {"max_new_tokens": 1}}
    assert (await engine.call("PUT", "/generate", body)).status == 200


async def test_greedy_output_is_repeatable(engine: Target) -> None:
    """At temperature 0 the output is a function of the prompt: by text, by ids, alone or in a batch."""
    first = (await engine.generate(8, text="Hello")).json
    again = (await engine.generate(8, text=["Hello", "Hallo"])).json
    assert first["output_ids"] == again[0]["output_ids"]
    assert first["text"] == again[0]["text"]
    assert first["output_ids"] != again[1]["output_ids"]


async def test_input_ids_win_over_text(engine: Target) -> None:
    """With both, the ids are what is computed, and nobody says so."""
    ids = (await engine.generate(4, input_ids=[1, 2, 3])).json
    both = (await engine.generate(4, input_ids=[1, 2, 3], text="Hello, world")).json
    assert both["output_ids"] == ids["output_ids"]
    assert both["meta_info"]["prompt_tokens"] == 3


async def test_a_repeated_prompt_is_cached_except_for_its_last_token(engine: Target) -> None:
    """The first output token comes from the last prompt token, so that one is always computed."""
    assert (await engine.post("/flush_cache")).status == 200
    first = (await engine.generate(2, text="a prompt to remember")).json["meta_info"]
    again = (await engine.generate(2, text="a prompt to remember")).json["meta_info"]
    assert (first["cached_tokens"], first["cached_tokens_details"]) == (0, None)
    cached = first["prompt_tokens"] - 1
    assert (again["cached_tokens"], again["cached_tokens_details"]) == (cached, {"device": cached, "host": 0})


async def test_the_output_is_cached_as_well(engine: Target) -> None:
    """A next turn that begins with the last one's prompt and output computes only what is new (and one token more)."""
    ids = [7, 8, 9, 10]
    turn = (await engine.generate(6, input_ids=ids)).json
    context = [*ids, *turn["output_ids"], 11, 12]
    meta = (await engine.generate(2, input_ids=context)).json["meta_info"]
    assert meta["cached_tokens"] == len(ids) + 5


@pytest.mark.parametrize(
    ("rid", "expected"), [("rs", ["rs_0", "rs_1"]), (["x", "y"], ["x", "y"])], ids=["prefix", "list"]
)
async def test_ids_of_a_batch(engine: Target, rid: Any, expected: list[str]) -> None:
    """A string is a prefix, a list is taken as it is; answers keep the order of the prompts."""
    answers = (await engine.generate(2, text=["a", "b"], rid=rid)).json
    assert [answer["meta_info"]["id"] for answer in answers] == expected


async def test_a_batch_of_one_is_a_list(engine: Target) -> None:
    """One prompt in a list gives one answer in a list."""
    (answer,) = (await engine.generate(2, input_ids=[[1, 2]], rid="one")).json
    assert answer["meta_info"]["id"] == "one_0"
    assert (await engine.post("/generate", {"text": []})).json == []


async def test_samples_lose_the_clients_id(engine: Target) -> None:
    """With ``n`` the ids are fresh ones, so such a request cannot be aborted by its id."""
    answers = (await engine.generate(2, rid="mine", params={"n": 2})).json
    ids = {answer["meta_info"]["id"] for answer in answers}
    assert len(ids) == len(answers) == 2
    assert not any(rid.startswith("mine") for rid in ids)


async def test_logprobs(engine: Target) -> None:
    """``[logprob, id, text]`` per token; the first prompt token has no probability."""
    answer = await engine.generate(
        3, return_logprob=True, logprob_start_len=0, top_logprobs_num=TOP, return_text_in_logprobs=True
    )
    meta = answer.json["meta_info"]
    logprobs = ["input_token_logprobs", "output_token_logprobs", "input_top_logprobs", "output_top_logprobs"]
    check(meta, META_INFO | dict.fromkeys(logprobs, list) | {"output_token_logprobs_length": int})
    assert meta["output_token_logprobs_length"] == 3
    assert [row[0] is None for row in meta["input_token_logprobs"]] == [True, False, False]
    assert [row[1] for row in meta["input_token_logprobs"]] == [1, 2, 3]
    for row, token, top in zip(
        meta["output_token_logprobs"], answer.json["output_ids"], meta["output_top_logprobs"], strict=True
    ):
        check(row[0], float)
        assert row[1] == token
        check(row[2], str)
        assert len(top) == TOP
        assert top[0] == row
        assert top[0][0] >= top[1][0]
    assert meta["input_top_logprobs"][0] is None


async def test_logprobs_without_text_are_of_the_output_only(engine: Target) -> None:
    """By default the prompt has no rows, and the text is null."""
    meta = (await engine.generate(2, return_logprob=True, token_ids_logprob=[5, 6])).json["meta_info"]
    assert meta["input_token_logprobs"] == meta["input_token_ids_logprobs"] == []
    assert [row[2] for row in meta["output_token_logprobs"]] == [None, None]
    assert [[row[1] for row in rows] for rows in meta["output_token_ids_logprobs"]] == [[5, 6], [5, 6]]
    assert "output_top_logprobs" not in meta


async def test_no_new_tokens(engine: Target) -> None:
    """``max_new_tokens: 0`` is an answer without output."""
    answer = (await engine.post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 0}})).json
    assert (answer["text"], answer["output_ids"]) == ("", [])
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert answer["meta_info"]["weight_versions"] == [{"version": "default", "start": 0, "end": 0}]


async def test_a_stop_token_ends_the_text_before_it(engine: Target) -> None:
    """The token is in ``output_ids`` but not in the text, unless ``no_stop_trim``; ``ignore_eos`` ignores it."""
    free = (await engine.generate(6, text="q")).json
    stop = free["output_ids"][3]
    first = free["output_ids"].index(stop)
    params = {"stop_token_ids": [stop], "ignore_eos": False}
    stopped = (await engine.generate(6, text="q", params=params)).json
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stopped["output_ids"] == free["output_ids"][: first + 1]
    kept = (await engine.generate(6, text="q", params=params | {"no_stop_trim": True})).json
    assert kept["output_ids"] == stopped["output_ids"]
    assert kept["text"].startswith(stopped["text"].rstrip("\ufffd"))
    ignored = (await engine.generate(6, text="q", params={"stop_token_ids": [stop]})).json
    assert ignored["output_ids"] == free["output_ids"]


async def test_a_stop_string_cuts_the_text(engine: Target) -> None:
    """The text ends before the string, or after it with ``no_stop_trim``; the matched string is named."""
    free = (await engine.generate(24, text="stop here")).json
    stop = next(char for char in free["text"][2:] if char not in free["text"][:2] and char != "\ufffd")
    at = free["text"].index(stop)
    stopped = (await engine.generate(24, text="stop here", params={"stop": [stop, "never~"]})).json
    assert stopped["text"] == free["text"][:at]
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    kept = (await engine.generate(24, text="stop here", params={"stop": stop, "no_stop_trim": True})).json
    assert kept["text"] == free["text"][: at + 1]


async def test_unknown_top_level_fields_are_ignored(engine: Target) -> None:
    """Only ``sampling_params`` has a closed set of names."""
    assert (await engine.generate(1, a_field_nobody_knows={"x": 1})).status == 200
