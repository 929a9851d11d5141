"""B48: an engine that dies in the middle of an answer never looks like a normal end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import openai
import pytest

from tests.support.expect import error_event
from tests.support.http1 import DONE, Broken, event_bytes, request_bytes
from tests.support.scripts import Gate, dies_at, events, hold, in_turn, one, pieces
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Lab

STREAM = b'{"rid":"r","stream":true}'


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_b48_a_stream_that_breaks_between_events_ends_in_an_error_event(lab: Lab, end: str, path: str) -> None:
    """Three whole events, then FIN or RST: the events, one error event, no [DONE], no terminating chunk."""
    gate = Gate()
    engine = await lab.engine(dies_at(events(3), end, gate=gate))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes(path, STREAM))
    await client.head()
    assert await client.chunked(len(b"".join(events(3)))) == b"".join(events(3))
    gate.open()
    data = await client.until_broken()
    assert data.startswith(b"data: ")
    assert data.count(b"\n\n") == 1
    assert b"[DONE]" not in data
    assert error_event(data)["code"] == "upstream_broken"
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}
    await wait_until(lambda: engine.aborted == ["r"], "the abort arrives")


@pytest.mark.parametrize("missing", [1, 100, 100_000])
async def test_b48_a_stream_of_announced_length_is_not_filled_up_with_an_error_event(lab: Lab, missing: int) -> None:
    """The error event would end where the answer should: it is left out, and the client sees an end too early."""
    first = event_bytes({"text": "a"})
    gate = Gate()

    async def short(exchange: Exchange) -> None:
        await exchange.read_body()
        length = str(len(first) + missing)
        await exchange.send_head(200, (("Content-Type", "text/event-stream"), ("Content-Length", length)))
        await exchange.send(first)
        await gate.passed()
        exchange.close()

    engine = await lab.engine(short)
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", STREAM))
    gate.open()
    with pytest.raises(Broken) as broken:
        await client.response()
    assert b"error" not in broken.value.partial
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


@pytest.mark.parametrize("cut", [1, 6, 20, -2, -1])
async def test_b48_half_an_event_is_closed_before_the_error_event(lab: Lab, cut: int) -> None:
    """The engine stopped inside an event: the error stands in an event of its own, whatever the cut."""
    gate = Gate()
    half = events(1)[0][:cut]
    engine = await lab.engine(dies_at([events(1)[0], half], "fin", gate=gate))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", STREAM))
    await client.head()
    sent = events(1)[0] + half
    assert await client.chunked(len(sent)) == sent
    gate.open()
    rest = await client.until_broken()
    assert rest.startswith(b"\n\ndata: "), rest
    assert error_event(sent + rest)["code"] == "upstream_broken"
    await gateway.idle()


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_b48_half_json_without_a_stream_cannot_be_taken_for_an_answer(lab: Lab, end: str) -> None:
    """A JSON answer that stops in the middle is a 502, or a body that visibly breaks; never a short 200."""
    engine = await lab.engine(dies_at([b'{"text":"abc","out'], end, content_type="application/json"))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"rid":"r"}'))
    head = await client.head()
    if head.status == 200:
        with pytest.raises(Broken):
            await client.body(head)
    else:
        assert head.status == 502
        await client.body(head)
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_b48_a_close_delimited_event_stream_without_done_is_broken(lab: Lab, end: str) -> None:
    """Without framing the end of the connection is no proof; [DONE] is."""
    gate = Gate()
    engine = await lab.engine(dies_at(events(3), end, gate=gate, framing="close"))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", STREAM))
    await client.head()
    assert await client.chunked(len(b"".join(events(3)))) == b"".join(events(3))
    gate.open()
    assert error_event(await client.until_broken())["code"] == "upstream_broken"
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_b48_a_close_delimited_event_stream_with_done_is_whole(lab: Lab) -> None:
    """The counterpart: an HTTP/1.0 style engine that finished is not called broken."""
    engine = await lab.engine(pieces([*events(2), DONE], framing="close"))
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate", STREAM)).body == b"".join(events(2)) + DONE
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


async def test_b48_an_engine_killed_under_twenty_streams(lab: Lab) -> None:
    """The whole process dies: each client can tell, each count returns, the next requests move."""
    gate = Gate()
    doomed = await lab.engine(dies_at(events(1), "rst", gate=gate))
    other = await lab.engine(one())
    gateway = await lab.gateway(doomed, other, capacities=[1000, 1])
    clients = [await lab.client(gateway) for _ in range(20)]
    for client in clients:
        await client.send(request_bytes("/generate", STREAM))
    for client in clients:
        await client.head()
        await client.event()
    assert gateway.outstanding == 20
    await doomed.kill()
    for client in clients:
        assert error_event(await client.until_broken())["code"] == "upstream_broken"
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 20}
    answer = await gateway.post("/generate")
    assert (answer.status, answer.head.get("x-trimtab-backend")) == (200, other.authority)


async def test_b48_aiohttp_can_tell(lab: Lab) -> None:
    """A real client library raises instead of returning a short text."""
    gateway = await lab.gateway(await lab.engine(dies_at(events(3), "fin")))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientPayloadError):
            async with session.post(f"{gateway.url}/generate", data=STREAM) as answer:
                await answer.read()
    await gateway.idle()


async def test_b48_the_openai_client_can_tell(lab: Lab) -> None:
    """The SDK reads the events, then raises what the error event says instead of ending the loop."""
    engine = await lab.engine(dies_at([event_bytes({"id": "c", "choices": []})] * 2, "fin"))
    gateway = await lab.gateway(engine)
    client = openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="k", http_client=openai.DefaultAsyncHttpxClient(trust_env=False)
    )
    async with client:
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        seen: list[Any] = []

        async def read_all() -> None:
            async for event in stream:
                seen.append(event)  # noqa: PERF401 - a comprehension would lose them when it raises

        with pytest.raises(openai.APIError, match="may have been executed"):
            await read_all()
        await stream.close()
    await gateway.idle()
    assert len(seen) == 2
    assert len(engine.requests) == 1
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_the_connection_after_a_broken_stream_is_not_reused(lab: Lab) -> None:
    """What is left on a broken engine connection never becomes the beginning of the next answer."""
    engine = await lab.engine(in_turn(dies_at(events(1), "fin"), one(b'{"ok":1}'), hold()))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", STREAM))
    await client.head()
    await client.until_broken()
    assert (await gateway.post("/generate")).body == b'{"ok":1}'
    assert engine.requests[0].connection is not engine.requests[1].connection


async def test_an_error_event_is_one_line_of_json(lab: Lab) -> None:
    """The error event has the shape of the JSON errors, so that one parser reads both."""
    gateway = await lab.gateway(await lab.engine(dies_at([event_bytes({"a": 1})], "fin")))
    client = await lab.client(gateway)
    await client.send(request_bytes("/v1/chat/completions", STREAM))
    await client.head()
    found = error_event(await client.until_broken())
    assert found["code"] == "upstream_broken"
    assert found["retryable"] is False
    assert isinstance(found["message"], str)
    assert {"type", "param"} <= set(found), "the OpenAI paths keep the OpenAI shape"
    await gateway.idle()
