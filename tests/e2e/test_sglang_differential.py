"""What a client gets through the gateway is what it gets from SGLang directly: status, headers and body bytes.

The same request goes to one server directly and to the same server through a gateway, from each client that people use.
Generations are greedy, and a first request fills the cache, so that every answer repeats but for these, which are
blanked or left out of the comparison, here and nowhere else:

* request ids: SGLang makes one up where the client gave none, and the gateway splices its own, which SGLang quotes
  where it quotes a body that it refuses;
* times and what is computed from them (``tests/support/sglang_traffic.py`` lists the fields);
* ``date``; and ``content-length``, as the digits of a time vary: it has to be the length of the body that came;
* what the gateway adds: ``x-trimtab-*``, and ``x-accel-buffering`` on event streams.

SGLang compresses no answer; ``tests/gateway/test_transparency.py`` has compressed ones.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.http_clients import CLIENTS, Answer, Call, lowered
from tests.support.serve import GatewayProcess, stopped_at_the_end
from tests.support.sglang_traffic import LETTERS, chat, greedy, stable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.support.sglang_server import SglangServer

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

PROMPT = [72, 101, 108, 108, 111]
RANDOM_ID = re.compile(rb'"id":"(cmpl-|chatcmpl-)?[0-9a-f]{32}(_\d+)?"')
QUOTED_ID = re.compile(rb"'rid': '[0-9a-f]{32}', ")
LOG_PROBS = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}
COMPLETION = {"model": "tiny", "prompt": "once", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
NUMBERS = b'{"x":1e-7,"y":1.0000000000000000000001,"z":18446744073709551616,"w":-1.7976931348623157E+308}'


def generate(body: object) -> Call:
    """A call of the native path, with the bytes given or with a value as JSON."""
    return Call("/generate", body if isinstance(body, bytes) else json.dumps(body).encode())


def openai_call(path: str, body: object) -> Call:
    """A call of an OpenAI path."""
    return Call(f"/v1/{path}", json.dumps(body).encode())


def letters(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a stream: a tiny model writes bytes that are no UTF-8, whose pieces SGLang merges as they come."""
    body["sampling_params"]["logit_bias"] = LETTERS
    return {**body, "stream": True}


ANSWERED = {
    "token-ids": generate(greedy(PROMPT, 8)),
    "text-unicode": generate(
        {"text": "Grüße, 世界 \u2028😀", "sampling_params": {"max_new_tokens": 6, "temperature": 0}}
    ),
    "text-raw-utf8": generate(
        '{"text":"Grüße, 世界 😀","sampling_params":{"max_new_tokens":6,"temperature":0}}'.encode()
    ),
    "batch": generate({**greedy([], 3), "input_ids": [[10, 11], [20, 21, 22], [30]]}),
    "log-probs": generate(greedy(PROMPT, 6, **LOG_PROBS)),
    "spaces-and-a-key-twice": generate(
        b' \r\n{ "input_ids" : [1,2],\t"input_ids":[ 3 , 4 ],"sampling_params":{"max_new_tokens":3,"temperature":0}}\n'
    ),
    "numbers-in-unknown-fields": generate(
        b'{"nobody_knows":'
        + NUMBERS
        + b',"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":3,"temperature":0.0}}'
    ),
    # Above a megabyte curl waits for "100 Continue".
    "two-megabytes": generate(greedy(PROMPT, 2, padding="x" * 2 * 2**20)),
    "stream": generate(letters(greedy(PROMPT, 10))),
    "stream-log-probs": generate(letters(greedy(PROMPT, 5, **LOG_PROBS))),
    "chat": openai_call("chat/completions", chat("Grüße", 8)),
    "chat-log-probs": openai_call("chat/completions", chat("x", 5, logprobs=True, top_logprobs=2)),
    "chat-two": openai_call("chat/completions", chat("x", 5, n=2)),
    "chat-stream": openai_call(
        "chat/completions", chat("x", 8, stream=True, stream_options={"include_usage": True}, logit_bias=LETTERS)
    ),
    "completion": openai_call("completions", COMPLETION),
    "completions-of-a-list": openai_call("completions", {**COMPLETION, "prompt": ["a", "b"]}),
    "completion-stream": openai_call("completions", {**COMPLETION, "stream": True, "logit_bias": LETTERS}),
    # A stream that fails before its first token is a 200 on the native path.
    "stream-too-long": generate(letters(greedy([1] * 3000, 2))),
}

EVENTS = {"stream": 11, "stream-log-probs": 6, "chat-stream": 12, "completion-stream": 7, "stream-too-long": 2}
"""How many events a stream has when each token has its own."""

REFUSED = {
    "no-prompt": generate({"sampling_params": {}}),
    "hidden-states": generate(greedy(PROMPT, 2, return_hidden_states=True)),
    "temperature": generate({"input_ids": PROMPT, "sampling_params": {"temperature": -1}}),
    "unknown-parameter": generate({"input_ids": PROMPT, "sampling_params": {"nobody_knows": 1}}),
    "too-long": generate(greedy([1] * 3000, 2)),
    "wrong-type": generate({"input_ids": PROMPT, "sampling_params": 5}),
    "chat-empty": openai_call("chat/completions", {"model": "tiny", "messages": []}),
    "chat-wrong-type": openai_call("chat/completions", {"model": "tiny", "messages": 5}),
    "chat-stream-too-long": openai_call("chat/completions", chat("x" * 3000, 2, stream=True)),
    "completion-no-prompt": openai_call("completions", {"model": "tiny"}),
    "chat-as-a-form": Call(
        "/v1/chat/completions", b'{"model":"tiny"}', headers={"content-type": "application/x-www-form-urlencoded"}
    ),
}


@pytest.fixture
async def gateway(sglang_pair: tuple[SglangServer, SglangServer], tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway over the first server alone, so that both ways end in the same cache."""
    with stopped_at_the_end(GatewayProcess([sglang_pair[0].url], tmp_path / "gateway.log")) as process:
        await process.start()
        yield process


def comparable(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """What has to be equal: the exceptions at the head of this file, applied."""
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("x-trimtab-")}
    headers.pop("date", None)
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        headers.pop("x-accel-buffering", None)
    if (length := headers.pop("content-length", None)) is not None:
        assert int(length) == len(answer.body)
    body = RANDOM_ID.sub(b'"id":"-"', stable(answer.body, "none"))
    return answer.status, headers, QUOTED_ID.sub(b"", body)


async def whole(ask: Callable[[str], Awaitable[Answer]], url: str, name: str) -> Answer:
    """The answer; that of a stream is asked for until no two of its tokens share an event.

    SGLang puts the tokens that are ready at the same moment into one event, which a stall of this machine can cause.
    """
    seen = []
    for _ in range(20):
        answer = await ask(url)
        seen.append(answer.body.count(b"\n\n"))
        if name not in EVENTS or seen[-1] == EVENTS[name]:
            return answer
    raise AssertionError(f"never {EVENTS[name]} events from {url}, but {seen}")


@pytest.mark.parametrize("name", [*ANSWERED, *REFUSED])
async def test_b16_every_client_gets_the_same_answer(
    name: str, gateway: GatewayProcess, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """B16: directly and through the gateway, from aiohttp, httpx, requests and curl: one answer."""
    call = {**ANSWERED, **REFUSED}[name]
    server = sglang_pair[0]
    server.slow_down(0.05 if b'"stream": true' in (call.body or b"") else None)
    await CLIENTS["aiohttp"](call, server.url)
    for client, ask in CLIENTS.items():
        request = functools.partial(ask, call)
        direct, through = await whole(request, server.url, name), await whole(request, gateway.role_url, name)
        assert comparable(through) == comparable(direct), client
        assert direct.status == 200 if name in ANSWERED else 400 <= direct.status < 500
        assert through.headers["x-trimtab-backend"] == server.authority


@pytest.mark.parametrize("name", [name for name, call in {**ANSWERED, **REFUSED}.items() if call.path[:4] == "/v1/"])
async def test_b16_the_openai_client_gets_the_same_answer(
    name: str, gateway: GatewayProcess, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """B16: the SDK, with the headers that it adds and the errors that it raises."""
    call = {**ANSWERED, **REFUSED}[name]
    body = json.loads(call.body or b"{}")
    server = sglang_pair[0]
    server.slow_down(0.05 if body.get("stream") else None)
    errors = []

    async def ask(url: str) -> Answer:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
            kind = client.chat.completions if "chat" in call.path else client.completions
            try:
                answer = (await kind.with_raw_response.create(**arguments(body, call.path))).http_response
                await answer.aread()
            except openai.APIStatusError as error:
                errors.append((type(error), error.code, error.param, error.type))
                answer = error.response
            return Answer(answer.status_code, lowered(answer.headers), answer.content)

    await ask(server.url)
    errors.clear()
    direct, through = await whole(ask, server.url, name), await whole(ask, gateway.role_url, name)
    assert comparable(through) == comparable(direct)
    assert errors == errors[:1] * 2 if name in REFUSED else not errors


def arguments(body: dict[str, Any], path: str) -> dict[str, Any]:
    """The arguments of the SDK for a body; what it demands and the body lacks is left out."""
    extra = {name: body[name] for name in ("ignore_eos",) if name in body}
    given = {name: value for name, value in body.items() if name not in extra}
    missing = {"messages": openai.NOT_GIVEN} if "chat" in path else {"prompt": openai.NOT_GIVEN}
    return {**missing, **given, "extra_body": extra}


@pytest.mark.parametrize(
    ("call", "same"),
    [
        (generate(b'"text"'), {400}),
        (Call("/v1/chat/completions", b'{"model":'), {400}),
        (Call("/nope", None, "GET"), {404}),
        (Call("/v1/nope", b"{}"), {404}),
        (Call("/generate", None, "HEAD"), {405}),
        (Call("/generate", None, "DELETE"), {405}),
        (Call("/v1/chat/completions", None, "GET"), {405}),
    ],
    ids=["no-object", "half-an-object", "get", "post", "head", "delete", "get-chat"],
)
async def test_b16_what_no_engine_can_answer_has_the_same_status(
    call: Call, same: set[int], gateway: GatewayProcess, sglang_pair: tuple[SglangServer, SglangServer]
) -> None:
    """B16: what no engine can serve has SGLang's status, and a body of the gateway's own: no engine is asked."""
    for client, ask in CLIENTS.items():
        direct, through = await ask(call, sglang_pair[0].url), await ask(call, gateway.role_url)
        assert {direct.status, through.status} == same, client
        assert "x-trimtab-backend" not in through.headers
