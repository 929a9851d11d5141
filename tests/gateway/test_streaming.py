"""Streams: each event arrives when it was sent, as it was sent, and a slow reader slows the engine."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.http1 import DONE, event_bytes, request_bytes
from tests.support.scripts import Gate, drip, events, gated, pieces
from tests.support.waiting import settled, wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Lab

PATHS = ["/generate", "/rollout/v1/chat/completions", "/v1/completions"]


@pytest.mark.parametrize("path", PATHS)
async def test_event_k_arrives_before_the_engine_may_send_event_k_plus_1(lab: Lab, path: str) -> None:
    """Nothing is held back for more: the engine goes on only after the test has seen the event."""
    gate = Gate()
    sent = events(20)
    gateway = await lab.gateway(await lab.engine(gated(gate, sent)))
    client = await lab.client(gateway)
    await client.send(request_bytes(path, b'{"stream":true}'))
    await client.head()
    for event in sent:
        gate.open()
        assert await client.event() == event
    gate.open()
    assert [await client.event(), await client.event()] == [DONE, b""]
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


async def test_headers_arrive_before_the_first_event(lab: Lab) -> None:
    """The engine sends its head and waits; the client has it, marked so that proxies in front do not buffer."""
    gate = Gate()
    gateway = await lab.gateway(await lab.engine(gated(gate, events(1))))
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    head = await client.head()
    assert (head.status, head.get("content-type")) == (200, "text/event-stream")
    assert head.get("x-accel-buffering") == "no"
    assert head.get("content-length") is None
    assert gateway.plane.statistics()["open_streams"] == 1
    gate.open(2)
    assert await client.body(head) == events(1)[0] + DONE
    await wait_until(lambda: gateway.plane.statistics()["open_streams"] == 0, "the stream is over")


async def test_half_an_event_is_passed_on_too(lab: Lab) -> None:
    """The gateway relays bytes, not events: a part of an event does not wait for the rest."""
    gate = Gate()
    whole = event_bytes({"text": "abc"})
    gateway = await lab.gateway(await lab.engine(gated(gate, [whole[:9], whole[9:]])))
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    await client.head()
    gate.open()
    assert await client.chunk() == whole[:9]
    gate.open(2)
    assert await client.event() == whole[9:]
    assert await client.event() == DONE


async def test_utf_8_split_at_every_byte_offset_is_identical(lab: Lab) -> None:
    """A character of 1, 2, 3 and 4 bytes, cut anywhere, arrives as the same bytes."""
    whole = event_bytes({"text": "aé日😀"})
    gate = Gate()
    engine = await lab.engine(gated(gate, []))
    client = await lab.client(await lab.gateway(engine))
    for offset in range(1, len(whole)):
        engine.script = gated(gate, [whole[:offset], whole[offset:]])
        await client.send(request_bytes("/generate", b'{"stream":true}'))
        head = await client.head()
        gate.open()
        assert await client.chunked(offset) == whole[:offset]
        gate.open(2)
        assert whole[:offset] + await client.body(head) == whole + DONE


async def test_big_events_arrive_identical(lab: Lab) -> None:
    """Cumulative log-probs make events of megabytes."""
    parts = [event_bytes({"i": i, "x": "y" * size}) for i, size in enumerate([1, 2**16 - 1, 2**16, 2**20, 3 * 2**20])]
    gateway = await lab.gateway(await lab.engine(pieces([*parts, DONE])))
    assert (await gateway.post("/generate", b'{"stream":true}')).body == b"".join(parts) + DONE


@pytest.mark.slow
async def test_events_of_40_bytes_every_50_ms_arrive_within_20_ms(lab: Lab) -> None:
    """The latency promise: median and 90th percentile over many events, on the sender's own time stamps."""
    count = 60

    def stamp(_: int) -> bytes:
        event = b'data: {"t":%d,"p":"xxxx"}\n\n' % time.monotonic_ns()
        return event[:-7] + b"x" * (40 - len(event)) + event[-7:]

    gateway = await lab.gateway(await lab.engine(drip(count, 0.05, stamp=stamp)))
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    await client.head()
    delays_ms = []
    while (event := await client.event()) != DONE:
        assert len(event) == 40
        delays_ms.append((time.monotonic_ns() - json.loads(event[6:])["t"]) / 1e6)
    assert len(delays_ms) == count
    deciles = statistics.quantiles(delays_ms, n=10)
    assert statistics.median(delays_ms) <= 20, delays_ms
    assert deciles[8] <= 20, delays_ms


async def test_a_slow_reader_stops_the_engine(lab: Lab) -> None:
    """Back-pressure: with a client that reads nothing, the engine cannot push more than the socket buffers hold."""
    chunk, total = b"x" * 65536, 96 * 2**20

    async def flood(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.start_stream()
        for _ in range(total // len(chunk)):
            await exchange.send_chunk(chunk)
        await exchange.end_stream()

    engine = await lab.engine(flood)
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway, receive_buffer=65536, read_limit=65536)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    head = await client.head()
    stalled = await settled(lambda: engine.connections[0].sent)
    assert stalled < total / 3, f"{stalled} bytes went somewhere although nobody reads"
    assert await client.body(head) == chunk * (total // len(chunk))
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


async def test_hundreds_of_streams_at_once(lab: Lab) -> None:
    """300 concurrent streams over 3 engines each get their own events, in order."""
    gate = Gate()
    sent = events(5)
    engines = await lab.engines(3, gated(gate, sent))
    gateway = await lab.gateway(*engines)
    clients = [await lab.client(gateway) for _ in range(300)]
    for client in clients:
        await client.send(request_bytes("/generate", b'{"stream":true}'))
    heads = [await client.head() for client in clients]
    assert gateway.outstanding == 300
    assert gateway.plane.statistics()["open_streams"] == 300
    assert {len(engine.requests) for engine in engines} == {100}
    gate.open(300 * (len(sent) + 1))
    for client, head in zip(clients, heads, strict=True):
        assert await client.body(head) == b"".join(sent) + DONE
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 300}
