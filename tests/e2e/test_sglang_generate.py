"""Raw ``/generate`` through the gateway on real SGLang: the engine's own answer, to the byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.serve import eventually
from tests.support.sglang_traffic import DONE, LETTERS, events, fresh_id, greedy, post, stable

if TYPE_CHECKING:
    import aiohttp

    from tests.support.serve import GatewayProcess, Observer
    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

PROMPT = [72, 101, 108, 108, 111]
LOG_PROBS = {
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 2,
    "return_text_in_logprobs": True,
}


@pytest.mark.parametrize(
    "body",
    [
        greedy(PROMPT, 12),
        greedy(PROMPT, 12, **LOG_PROBS),
        {"text": "Grüße, 世界", "sampling_params": {"max_new_tokens": 8, "temperature": 0}},
        greedy(PROMPT, 4, a_field_nobody_knows={"n": 18446744073709551615, "x": 1e-7}),
    ],
    ids=["plain", "log-probs", "text", "unknown-field"],
)
async def test_b16_answer_is_the_engines_own_bytes(
    body: dict[str, Any], sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """B16: at temperature 0 the body through the gateway equals the direct one, except for the times in it.

    The first requests fill the caches of both engines, so that ``cached_tokens`` are the same in all later ones.
    """
    for server in sglang_pair:
        await post(http, f"{server.url}/generate", body)
    first, second = fresh_id(), fresh_id()
    direct, expected = await post(http, f"{sglang_pair[0].url}/generate", {**body, "rid": first})
    through, got = await post(http, f"{sglang_gateway.role_url}/generate", {**body, "rid": second})
    assert through.status == direct.status == 200
    assert stable(got, second) == stable(expected, first)
    assert through.content_type == direct.content_type


async def test_b16_log_probs_are_intact(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """B16: every log-prob field has one entry per token, and the same numbers as a direct request, streamed or not."""
    body = greedy(PROMPT, 6, **LOG_PROBS)
    expected = sglang_pair[0].generate(body)["meta_info"]
    _, whole = await post(http, f"{sglang_gateway.role_url}/generate", body)
    _, stream = await post(http, f"{sglang_gateway.role_url}/generate", {**body, "stream": True})
    for meta in (json.loads(whole)["meta_info"], json.loads(events(stream)[-2])["meta_info"]):
        assert meta.keys() == expected.keys()
        assert len(meta["output_token_logprobs"]) == len(meta["output_top_logprobs"]) == 6
        assert len(meta["input_token_logprobs"]) == len(PROMPT)
        for name in (name for name in expected if "logprobs" in name):
            assert meta[name] == expected[name], name


async def test_stream_ends_with_the_whole_answer_and_done(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """SGLang's events are cumulative: the last one before ``[DONE]`` equals the whole answer; no event is lost."""
    body = greedy(PROMPT, 40)
    body["sampling_params"]["logit_bias"] = LETTERS
    expected = sglang_pair[0].generate(body)
    answer, stream = await post(http, f"{sglang_gateway.role_url}/generate", {**body, "stream": True})
    assert answer.content_type == "text/event-stream"
    *parts, done = events(stream)
    assert done == DONE
    assert json.loads(parts[-1])["text"] == expected["text"]
    counts = [json.loads(part)["meta_info"]["completion_tokens"] for part in parts]
    assert counts == sorted(counts)
    assert counts[-1] == 40


async def test_request_id_is_spliced_in_only_when_absent(
    sglang_gateway: GatewayProcess, http: aiohttp.ClientSession
) -> None:
    """A request without an id gets one of 32 hex digits, by which it can be aborted; the client's own id is kept."""
    own = fresh_id()
    _, given = await post(http, f"{sglang_gateway.role_url}/generate", greedy(PROMPT, 1, rid=own))
    _, spliced = await post(http, f"{sglang_gateway.role_url}/generate", greedy(PROMPT, 1))
    assert json.loads(given)["meta_info"]["id"] == own
    identity = json.loads(spliced)["meta_info"]["id"]
    assert len(identity) == 32
    assert int(identity, 16) >= 0
    assert identity != own


async def test_batch_keeps_its_order(sglang_gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
    """A batch is one execution: a list of answers in the order of the prompts, with or without ids."""
    body = {**greedy([], 3), "input_ids": [[10, 11], [20, 21, 22], [30]]}
    answer, payload = await post(http, f"{sglang_gateway.role_url}/generate", body)
    assert answer.status == 200
    assert [item["meta_info"]["prompt_tokens"] for item in json.loads(payload)] == [2, 3, 1]


@pytest.mark.parametrize(
    "broken",
    [
        {"sampling_params": {}},
        greedy(PROMPT, 2) | {"sampling_params": {"temperature": -1}},
        greedy([1] * 3000, 2),
    ],
    ids=["no-prompt", "bad-temperature", "too-long"],
)
async def test_engine_errors_pass_through(
    broken: dict[str, Any],
    sglang_gateway: GatewayProcess,
    sglang_pair: Pair,
    observer: Observer,
    http: aiohttp.ClientSession,
) -> None:
    """The engine's own 400 arrives with its body untouched, is not retried, and counts as rejected."""
    direct, expected = await post(http, f"{sglang_pair[0].url}/generate", broken)
    through, got = await post(http, f"{sglang_gateway.role_url}/generate", broken)
    assert (through.status, got) == (direct.status, expected)
    assert through.status == 400
    # The client has the last byte a moment before the lease is settled.
    await eventually(lambda: observer.leases("rejected"), 1, "the lease is settled as rejected")
    assert await observer.metric("trimtab_leases_total") == 1


async def test_unprefixed_path_and_answer_headers(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """With one role the prefix may be dropped; the answer names the engine, the lease and the session."""
    answer, _ = await post(http, f"{sglang_gateway.url}/generate", greedy(PROMPT, 1), session="s-1")
    assert answer.status == 200
    assert answer.headers["x-trimtab-backend"] in {server.authority for server in sglang_pair}
    assert answer.headers["x-trimtab-session"] == "s-1"
    assert len(answer.headers["x-trimtab-lease"]) == 16
    assert "x-trimtab-weight-version" not in answer.headers
