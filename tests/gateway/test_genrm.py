"""The GenRM adapter: messages on ``/generate``, one text back; and what its callers are told when there is none."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.scripts import generation, hold, one
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.engine import ScriptedEngine
    from tests.support.lab import Lab

MESSAGES = [{"role": "user", "content": "Judge: 1 + 1 = 2"}]
Judge = tuple[Gateway, httpx.AsyncClient]


def completion(content: str | None = " Judgement: 1 \n", finish: str = "stop") -> bytes:
    """A chat completion as SGLang writes it."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


@pytest.fixture
async def judge() -> AsyncIterator[Callable[..., Awaitable[Judge]]]:
    """Starts a gateway for the role ``genrm`` with one model in front of engines."""
    async with AsyncExitStack() as stack:

        async def start(*engines: ScriptedEngine, **knobs: Any) -> Judge:
            model = ModelConfig("judge", tuple(EngineConfig(engine.authority) for engine in engines), **knobs)
            config = GatewayConfig((RoleConfig("genrm", (model,)),), port=0, probe_interval_s=0.05)
            gateway = await stack.enter_async_context(Gateway(config))
            client = httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30)
            if engines:
                await wait_until(lambda: gateway.statistics().snapshot.ready, "the engine")
            return gateway, await stack.enter_async_context(client)

        yield start


async def test_messages_become_one_text(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """The engine sees a chat completion with defaults, request and template arguments; the caller one stripped text."""
    engine = await lab.engine(one(completion()))
    gateway, client = await judge(
        engine,
        adapter="genrm",
        sampling_defaults={"temperature": 0.2, "top_k": -1, "max_response_len": 1024},
        chat_template_kwargs={"enable_thinking": False},
    )
    body = {"messages": MESSAGES, "sampling_params": {"temperature": 0.5, "max_new_tokens": 64}}
    answer = await client.post("/genrm/generate", json=body, headers={"x-trimtab-session": "s"})
    assert (answer.status_code, answer.json()) == (200, {"response": "Judgement: 1"})
    (request,) = engine.requests
    assert request.head.target == "/v1/chat/completions"
    sent = request.json()
    assert len(sent.pop("rid")) == 32
    assert sent == {
        "messages": MESSAGES,
        "stream": False,
        "separate_reasoning": False,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.5,
        "top_k": -1,
        "max_tokens": 64,
    }
    assert answer.headers["x-trimtab-backend"] == engine.authority
    assert answer.headers["x-trimtab-session"] == "s"
    assert answer.headers["x-trimtab-lease"]
    statistics = gateway.pool("genrm", "judge").statistics()
    assert (statistics.outcomes["completed"], statistics.output_tokens, statistics.sessions) == (1, 3, 1)


async def test_a_chat_completion_says_that_it_is_json(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """The body is the adapter's, and so is what is said of it, whatever the client's ``Connection`` names."""
    engine = await lab.engine(one(completion()))
    _, client = await judge(engine, adapter="genrm")
    headers = {"connection": "content-type", "content-type": "text/plain"}
    answer = await client.post("/generate", content=json.dumps({"messages": MESSAGES}), headers=headers)
    assert answer.json() == {"response": "Judgement: 1"}
    assert engine.requests[0].head.get("content-type") == "application/json"


async def test_a_raw_body_passes_untouched(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """``text`` and ``input_ids`` are SGLang's own, and so is the answer."""
    engine = await lab.engine(one())
    _, client = await judge(engine, adapter="genrm", sampling_defaults={"temperature": 0.2})
    for raw in ({"text": "a"}, {"input_ids": [1, 2]}):
        answer = await client.post("/generate", json={**raw, "rid": "mine"})
        assert answer.json() == generation(rid="mine")
        assert engine.requests[-1].json() == {**raw, "rid": "mine"}
        assert engine.requests[-1].head.target == "/generate"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES, "text": "a"},
        {"messages": MESSAGES, "input_ids": [1]},
        {"sampling_params": {}},
        {"messages": []},
        {"messages": "a"},
        {"messages": MESSAGES, "stream": True},
        {"messages": MESSAGES, "sampling_params": {"json_schema": "{}"}},
        {"messages": MESSAGES, "sampling_params": [1]},
    ],
)
async def test_what_cannot_be_judged_is_400(judge: Callable[..., Awaitable[Judge]], lab: Lab, body: object) -> None:
    """Both inputs, none, or what would be dropped silently; no byte goes to an engine (B63: and no retry helps)."""
    engine = await lab.engine(one(completion()))
    _, client = await judge(engine, adapter="genrm")
    answer = await client.post("/generate", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert engine.requests == []


async def test_without_an_adapter_the_engine_decides(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """Messages on a model that is no judge go to the engine as they are: 400, in its words."""
    engine = await lab.engine(one(b'{"error":{"message":"no input"}}', status=400))
    _, client = await judge(engine)
    answer = await client.post("/generate", json={"messages": MESSAGES})
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "no input"}})
    assert engine.requests[0].head.target == "/generate"


async def test_unready_is_503_at_once(judge: Callable[..., Awaitable[Judge]]) -> None:
    """With a time to come back, which the old client's three attempts understand."""
    _, client = await judge(adapter="genrm")
    answer = await client.post("/generate", json={"messages": MESSAGES})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_eligible_backend")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("status", [400, 422, 500, 503])
async def test_b63_the_engines_error_is_the_answer(
    judge: Callable[..., Awaitable[Judge]], lab: Lab, status: int
) -> None:
    """Status and text of the engine, after exactly one attempt."""
    engine = await lab.engine(one(b'{"message":"too long"}', status=status))
    _, client = await judge(engine, adapter="genrm")
    answer = await client.post("/generate", json={"messages": MESSAGES})
    assert (answer.status_code, answer.json()) == (status, {"message": "too long"})
    assert len(engine.requests) == 1


@pytest.mark.parametrize("content", [completion(finish="abort"), completion(None), b"{}", b"<html>"])
async def test_half_a_judgement_is_none(judge: Callable[..., Awaitable[Judge]], lab: Lab, content: bytes) -> None:
    """What an aborted or broken judge said would become a reward: 502, and not worth repeating blindly."""
    engine = await lab.engine(one(content))
    gateway, client = await judge(engine, adapter="genrm")
    answer = await client.post("/generate", json={"messages": MESSAGES})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")
    assert engine.authority in answer.json()["error"]["message"]
    assert gateway.pool("genrm", "judge").statistics().outstanding == 0


async def test_a_caller_that_leaves_ends_the_judgement(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """As with every request: the engine is told by the id."""
    engine = await lab.engine(hold())
    gateway, client = await judge(engine, adapter="genrm")
    asking = asyncio.create_task(client.post("/generate", json={"messages": MESSAGES, "rid": "mine"}))
    await wait_until(lambda: engine.requests, "the request at the engine")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await wait_until(lambda: engine.aborted == ["mine"], "the abort")
    pool = gateway.pool("genrm", "judge")
    await wait_until(lambda: pool.statistics().outcomes["cancelled"] == 1, "the end of the lease")


async def test_chat_stays_chat(judge: Callable[..., Awaitable[Judge]], lab: Lab) -> None:
    """The adapter is ``/generate`` only: the chat routes of a judge are an engine's own."""
    engine = await lab.engine(one(completion()))
    _, client = await judge(engine, adapter="genrm", sampling_defaults={"temperature": 0.2})
    body = {"messages": MESSAGES, "rid": "r"}
    for path in ("/v1/chat/completions", "/chat/completions"):
        assert (await client.post(path, json=body)).content == completion()
        assert engine.requests[-1].json() == body


async def test_a_route_key_chooses_the_judge(lab: Lab) -> None:
    """And an unknown one is 400, where it was 500."""
    math, code = await lab.engine(one(completion("math"))), await lab.engine(one(completion("code")))
    models = tuple(
        ModelConfig(name, (EngineConfig(engine.authority),), adapter="genrm")
        for name, engine in (("math", math), ("code", code))
    )
    role = RoleConfig("genrm", models, default_model="math", route_keys={"openai/gsm8k": "math", "code": "code"})
    async with (
        Gateway(GatewayConfig((role,), port=0, probe_interval_s=0.05)) as gateway,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client,
    ):
        await wait_until(lambda: gateway.statistics().snapshot.ready, "the engines")

        async def ask(**more: str) -> httpx.Response:
            return await client.post("/genrm/generate", json={"messages": MESSAGES, **more})

        assert (await ask(route_key="code")).json() == {"response": "code"}
        assert (await ask(route_key="openai/gsm8k")).json() == {"response": "math"}
        assert (await ask()).json() == {"response": "math"}
        assert (await ask(model="code")).json() == {"response": "code"}
        refused = await ask(route_key="nobody")
        assert refused.status_code == 400
        assert len(math.requests) + len(code.requests) == 4
