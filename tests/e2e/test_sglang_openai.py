"""The OpenAI client, unchanged but for its base URL, against real SGLang behind the gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.serve import eventually
from tests.support.sglang_traffic import DONE, LETTERS, chat, events, fresh_id, greedy, in_background, post, stable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from tests.support.serve import GatewayProcess, Observer
    from tests.support.sglang_server import SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

QUESTION: Any = [{"role": "user", "content": "What is a trim tab?"}]
EXACT = {"ignore_eos": True, "logit_bias": LETTERS}


@pytest.fixture
async def client(sglang_gateway: GatewayProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client of the gateway's role that never retries."""
    url = f"{sglang_gateway.role_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


async def test_chat_with_log_probs_equals_the_stream(client: openai.AsyncOpenAI) -> None:
    """The chat answer and the sum of the streamed parts are the same text with the same log-probs."""
    whole = await client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=20, temperature=0, logprobs=True, top_logprobs=2, extra_body=EXACT
    )
    choice = whole.choices[0]
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 20
    assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 20

    text, logprobs, usage, reasons = "", [], None, []
    stream = await client.chat.completions.create(
        model="tiny",
        messages=QUESTION,
        max_tokens=20,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXACT,
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for part in chunk.choices:
            text += part.delta.content or ""
            logprobs += (part.logprobs.content if part.logprobs else None) or []
            reasons += [part.finish_reason] if part.finish_reason else []
    assert text == choice.message.content
    assert logprobs == choice.logprobs.content
    assert reasons == ["length"]
    assert usage is not None
    assert usage.completion_tokens == 20


async def test_completions_equal_the_stream(client: openai.AsyncOpenAI) -> None:
    """The same for the older completions route, which is counted and routed like the others."""
    whole = await client.completions.create(
        model="tiny", prompt="once upon", max_tokens=20, temperature=0, extra_body=EXACT
    )
    stream = await client.completions.create(
        model="tiny", prompt="once upon", max_tokens=20, temperature=0, stream=True, extra_body=EXACT
    )
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].text
    assert text == whole.choices[0].text
    assert whole.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat("hello", 9, logprobs=True, top_logprobs=2)),
        ("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 9, "temperature": 0}),
        ("/v1/chat/completions", {"model": "tiny", "messages": []}),
    ],
    ids=["chat", "completions", "engine-error"],
)
async def test_b16_openai_answers_are_the_engines_own_bytes(
    path: str, body: Any, sglang_gateway: GatewayProcess, sglang_pair: Pair, http: aiohttp.ClientSession
) -> None:
    """B16: apart from the second in ``created``, the bytes equal those of a direct request."""
    for engine in sglang_pair:
        # A prompt that is computed whole and one from the cache differ in the last digit of a log-prob.
        await post(http, f"{engine.url}{path}", body)
    first, second = fresh_id(), fresh_id()
    direct, expected = await post(http, f"{sglang_pair[0].url}{path}", {**body, "rid": first})
    through, got = await post(http, f"{sglang_gateway.role_url}{path}", {**body, "rid": second})
    assert through.status == direct.status
    assert stable(got, second) == stable(expected, first)


async def test_chat_alias_is_the_v1_route(sglang_gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
    """``/chat/completions`` without ``/v1`` gives the same bytes, streamed too."""
    body, first, second = chat("hello", 9), fresh_id(), fresh_id()
    _, expected = await post(http, f"{sglang_gateway.role_url}/v1/chat/completions", {**body, "rid": first})
    _, got = await post(http, f"{sglang_gateway.role_url}/chat/completions", {**body, "rid": second})
    assert stable(got, second) == stable(expected, first)
    _, stream = await post(http, f"{sglang_gateway.role_url}/chat/completions", {**body, "stream": True})
    assert events(stream)[-1] == DONE


async def test_client_understands_the_gateways_errors(client: openai.AsyncOpenAI) -> None:
    """An unknown model is a ``BadRequestError`` whose body names the known ones; no engine is asked."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="huge", messages=QUESTION)
    assert caught.value.code == "unknown_model"
    assert "tiny" in caught.value.message


async def test_b31_every_route_counts(
    sglang_gateway: GatewayProcess, sglang_pair: Pair, observer: Observer, http: aiohttp.ClientSession
) -> None:
    """B31: one request in flight on each route is four outstanding, and none when they have ended."""
    for server in sglang_pair:
        server.slow_down(0.05)
    bodies = {
        "/generate": greedy([1, 2, 3], 60),
        "/v1/chat/completions": chat("a", 60),
        "/chat/completions": chat("b", 60),
        "/v1/completions": {"model": "tiny", "prompt": "c", "max_tokens": 60, "ignore_eos": True},
    }
    urls = {f"{sglang_gateway.role_url}{path}": body for path, body in bodies.items()}
    async with in_background(*(post(http, url, body) for url, body in urls.items())) as tasks:
        await eventually(observer.outstanding, 4, "four executions are counted")
        for server in sglang_pair:
            assert await observer.metric("trimtab_outstanding", backend=server.authority) == 2
            server.slow_down(None)
        answers = await asyncio.gather(*tasks)
    assert [answer.status for answer, _ in answers] == [200] * 4
    await eventually(lambda: observer.leases("completed"), 4, "four leases are settled as completed")
