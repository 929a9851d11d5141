"""B7: an execution that may have started is never started again; one that cannot have started moves on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.expect import error
from tests.support.http1 import Broken
from tests.support.scripts import dies_at, in_turn, one, status
from tests.support.sockets import refusing_address
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Gateway, Lab

CHAT: Any = {
    "id": "chat-1",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "logprobs": None, "finish_reason": "length"}
    ],
    "usage": {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4},
}


def sdk(gateway: Gateway) -> openai.AsyncOpenAI:
    """The real OpenAI client with its default of two retries."""
    client = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-test", http_client=client)


async def chat(client: openai.AsyncOpenAI) -> Any:
    """One chat completion."""
    return await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}])


async def test_b7_a_refused_connection_moves_to_the_next_engine(lab: Lab) -> None:
    """E1 refuses: E2 serves, the client notices nothing, one generation exists."""
    refusing = lab.enter(refusing_address())
    engine = await lab.engine(one())
    gateway = await lab.gateway(refusing, engine, capacities=[100, 1])
    answer = await gateway.post("/generate", b'{"rid":"r"}', [("x-trimtab-session", "s")])
    assert (answer.status, answer.head.get("x-trimtab-backend")) == (200, engine.authority)
    assert len(engine.requests) == 1
    await gateway.idle()
    assert gateway.outcomes() == {"not_sent": 1, "completed": 1}
    assert gateway.plane.statistics()["retries_total"] == 1


async def test_b7_when_every_engine_refuses_the_answer_is_503(lab: Lab) -> None:
    """Nobody could be reached and nothing was executed: a retry later is safe, and the answer says so."""
    gateway = await lab.gateway(*[lab.enter(refusing_address()) for _ in range(5)])
    refused = error(await gateway.post("/generate"), 503, "backend_unreachable")
    assert refused["retryable"] is True
    assert gateway.outcomes() == {"not_sent": 3}, "three attempts are the limit"


@pytest.mark.parametrize("end", ["fin", "rst"])
@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
async def test_b7_an_engine_that_dies_after_the_request_is_not_replayed(lab: Lab, end: str, path: str) -> None:
    """E1 read it all and died: 502 that says "maybe executed", E2 hears nothing, E1 is asked to abort that id."""
    first = await lab.engine(dies_at([], end))
    second = await lab.engine(one())
    gateway = await lab.gateway(first, second, capacities=[100, 1])
    answer = await gateway.post(path, b'{"rid":"maybe"}')
    refused = error(answer, 502, "upstream_broken", openai=path.startswith("/v1"))
    assert refused["retryable"] is False
    assert refused["detail"]["maybe_executed"] is True
    assert answer.head.get("x-trimtab-backend") == first.authority
    assert first.authority in refused["message"]
    await wait_until(lambda: first.aborted == ["maybe"], "the abort arrives")
    await gateway.idle()
    assert len(first.requests) == 1
    assert second.requests == []
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_b7_an_engine_that_dies_in_the_middle_of_the_request_is_not_replayed(lab: Lab) -> None:
    """A part of the body went out: that is enough to stay."""

    async def die_while_reading(exchange: Exchange) -> None:
        await exchange.wire.some()
        exchange.reset()

    first = await lab.engine(die_while_reading)
    second = await lab.engine(one())
    gateway = await lab.gateway(first, second, capacities=[100, 1])
    error(await gateway.post("/generate", b'{"rid":"r","x":"' + b"x" * 8_000_000 + b'"}'), 502, "upstream_broken")
    await gateway.idle()
    assert second.requests == []
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_b7_a_kept_alive_connection_is_no_excuse_for_a_replay(lab: Lab) -> None:
    """The second request on a pooled connection is read and then reset: 502, not a silent second attempt."""
    engine = await lab.engine(in_turn(one(), dies_at([], "rst"), one()))
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate", b'{"rid":"a"}')).status == 200
    error(await gateway.post("/generate", b'{"rid":"b"}'), 502, "upstream_broken")
    await gateway.idle()
    assert [record.rid for record in engine.requests] == ["a", "b"]
    assert len({record.connection for record in engine.requests}) == 1, "the case needs a reused connection"


@pytest.mark.parametrize("body", [b"not http at all\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 200])
async def test_b7_an_answer_that_is_not_http_is_a_broken_upstream(lab: Lab, body: bytes) -> None:
    """Something else listens on that port: the request went out, so it may have been executed."""

    async def babble(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(body)
        exchange.close()

    engine = await lab.engine(babble)
    gateway = await lab.gateway(engine)
    error(await gateway.post("/generate"), 502, "upstream_broken")
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_b7_the_openai_client_does_not_replay_a_maybe_executed_request(lab: Lab) -> None:
    """The SDK retries 5xx twice on its own; ``x-should-retry: false`` keeps it from generating three times."""
    engine = await lab.engine(dies_at([], "rst"))
    gateway = await lab.gateway(engine)
    async with sdk(gateway) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await chat(client)
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_broken"
    assert len(engine.requests) == 1


async def test_b7_the_openai_client_is_moved_by_the_gateway_not_by_its_retries(lab: Lab) -> None:
    """E1 refuses: one call of the SDK, one generation."""
    refusing = lab.enter(refusing_address())
    engine = await lab.engine(one(json.dumps(CHAT).encode()))
    gateway = await lab.gateway(refusing, engine, capacities=[100, 1])
    async with sdk(gateway) as client:
        answer = await chat(client)
    assert answer.choices[0].message.content == "hi"
    assert len(engine.requests) == 1
    assert gateway.plane.statistics()["retries_total"] == 1


@pytest.mark.parametrize("code", [400, 404, 429, 500, 503])
async def test_an_error_of_the_engine_is_final_and_untouched(lab: Lab, code: int) -> None:
    """Status, body and headers of the engine's own errors pass through; no other engine is asked."""
    body = b'{"object":"error","message":"1 validation error","type":"Bad Request","param":null,"code":400}'
    first = await lab.engine(status(code, body, headers=[("Content-Type", "application/json"), ("X-Engine", "1")]))
    second = await lab.engine(one())
    gateway = await lab.gateway(first, second, capacities=[100, 1])
    answer = await gateway.post("/v1/completions", b'{"rid":"r"}')
    assert (answer.status, answer.body, answer.head.get("x-engine")) == (code, body, "1")
    assert answer.head.get("x-trimtab-error") is None
    await gateway.idle()
    assert second.requests == []
    assert first.aborted == []
    assert gateway.outcomes() == {"rejected" if code < 500 else "failed": 1}


async def test_a_client_can_tell_a_broken_answer_of_known_length(lab: Lab) -> None:
    """The engine announced more than it sent; so does the gateway's answer, or it is a 502."""
    engine = await lab.engine(dies_at([b'{"text":"ab'], "fin", framing="length", content_type="application/json"))
    gateway = await lab.gateway(engine)
    try:
        answer = await gateway.post("/generate", b'{"rid":"r"}')
    except Broken:
        pass
    else:
        error(answer, 502, "upstream_broken")
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}
    await wait_until(lambda: engine.aborted == ["r"], "the abort arrives")
