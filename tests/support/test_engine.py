"""The kit itself: the engine controls every byte, the client stops at any, and both record the truth."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.support.client import RawClient, ask
from tests.support.engine import ScriptedEngine
from tests.support.http1 import DONE, Broken, request_bytes
from tests.support.scripts import (
    Gate,
    dies_at,
    drip,
    early,
    echo,
    events,
    fin_at,
    gated,
    hold,
    in_turn,
    interim,
    one,
    pieces,
    rst_at,
    status,
)
from tests.support.sockets import open_tcp_sockets
from tests.support.waiting import DEADLINE_S, wait_until

HOST = "127.0.0.1"


async def test_one_answers_with_a_generation_and_records_the_request() -> None:
    """Headers are recorded in order with their case, the body byte for byte."""
    async with ScriptedEngine(one()) as engine:
        answer = await ask(
            HOST, engine.port, "/generate?x=1", b'{"rid":"r1"}', [("X-B", "2"), ("x-a", "1"), ("X-B", "3")]
        )
    assert (answer.status, answer.json()["meta_info"]["id"]) == (200, "r1")
    (record,) = engine.requests
    assert record.head.target == "/generate?x=1"
    assert record.head.headers[1:4] == (("X-B", "2"), ("x-a", "1"), ("X-B", "3"))
    assert record.body == b'{"rid":"r1"}'
    assert record.wire == request_bytes("/generate?x=1", b'{"rid":"r1"}', [("X-B", "2"), ("x-a", "1"), ("X-B", "3")])
    assert record.finished
    assert not record.peer_closed.is_set()


async def test_chunked_requests_keep_their_raw_bytes() -> None:
    """``body`` is decoded, ``wire`` keeps the chunk borders."""
    raw = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;ext\r\nd\r\n0\r\n\r\n"
    async with ScriptedEngine(echo()) as engine, RawClient(HOST, engine.port) as client:
        await client.send(raw)
        assert (await client.response()).body == b"abcd"
    assert engine.requests[0].wire == raw


async def test_control_routes_are_kept_apart() -> None:
    """Probes and aborts do not count as generation requests."""
    async with ScriptedEngine(hold()) as engine:
        assert (await ask(HOST, engine.port, "/model_info", None, method="GET")).status == 200
        assert (await ask(HOST, engine.port, "/abort_request", b'{"rid":"r9"}')).status == 200
    assert engine.aborted == ["r9"]
    assert len(engine.probes) == 1
    assert engine.requests == []


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_hold_sees_how_the_peer_left(how: str) -> None:
    """A holding engine notices a FIN and a reset although it reads nothing."""
    async with ScriptedEngine(hold()) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        await wait_until(lambda: engine.requests and engine.requests[0].body is not None, "the engine has the request")
        client.reset() if how == "rst" else await client.close()
        await asyncio.wait_for(engine.requests[0].peer_closed.wait(), 5)
        await asyncio.wait_for(engine.connections[0].closed.wait(), 5)
    assert engine.connections[0].by_peer == how
    assert engine.disconnects == 1


async def test_drip_streams_events_and_ends_cleanly() -> None:
    """``drip`` is a chunked event stream that ends with [DONE]."""
    async with ScriptedEngine(drip(3, 0.001)) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        assert (await client.response()).body == b"".join(events(3)) + DONE
    assert engine.disconnects == 0


async def test_gated_sends_nothing_without_permission() -> None:
    """The head goes out at once, each piece only when the test says so."""
    gate = Gate()
    async with ScriptedEngine(gated(gate, events(2))) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        head = await client.head()
        assert head.get("content-type") == "text/event-stream"
        for event in events(2):
            gate.open()
            assert await client.event() == event
        gate.open()
        assert [await client.event(), await client.event()] == [DONE, b""]


@pytest.mark.parametrize("count", [0, 1, 63])
@pytest.mark.parametrize("make", [rst_at, fin_at])
async def test_rst_at_and_fin_at_cut_the_body_where_they_say(make: type, count: int) -> None:
    """The client gets ``count`` bytes of a longer body and then the end it asked for."""
    gate = Gate()
    async with ScriptedEngine(make(count, gate=gate)) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        if count:
            head = await client.head()
            assert int(head.get("content-length") or 0) > count
            assert await client.wire.exactly(count) == b"x" * count
        gate.open()
        if make is rst_at:
            with pytest.raises(Broken, match="ConnectionResetError"):
                await client.wire.some()
        else:
            assert await client.wire.some() == b""


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_pieces_in_every_framing(framing: str) -> None:
    """The same body in three framings."""
    async with ScriptedEngine(pieces([b"ab", b"c"], framing=framing)) as engine:
        answer = await ask(HOST, engine.port, "/generate")
    assert answer.body == b"abc"
    assert engine.requests[0].finished


async def test_early_answers_come_before_the_body() -> None:
    """``early`` answers although no body byte was sent."""
    async with ScriptedEngine(early(413, b"no")) as engine, RawClient(HOST, engine.port) as client:
        await client.send(b"POST /generate HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        assert (await client.response()).status == 413
        await client.send(b"12345")
        await wait_until(lambda: engine.requests[0].body == b"12345", "the rest is read")


async def test_interim_and_in_turn() -> None:
    """100 Continue is its own head; scripts follow each other on one kept-alive connection."""
    script = in_turn(interim(status(503, b"{}")), echo())
    async with ScriptedEngine(script) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate", b"{}"))
        assert (await client.head()).status == 100
        assert (await client.response()).status == 503
        await client.send(request_bytes("/generate", b'{"a":1}'))
        assert (await client.response()).body == b'{"a":1}'
    assert len(engine.connections) == 1


async def test_keep_alive_that_closes_when_idle() -> None:
    """An engine with a keep-alive ends an idle connection itself."""
    async with ScriptedEngine(echo(), keep_alive_s=0.01) as engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        await client.response()
        assert await client.rest() == b""


async def test_a_dead_engine_resets_and_refuses_and_can_come_back() -> None:
    """``kill`` is a dead process; entering again is a restart on the same port."""
    engine = ScriptedEngine(hold())
    async with engine, RawClient(HOST, engine.port) as client:
        await client.send(request_bytes("/generate"))
        await wait_until(lambda: len(engine.requests) == 1, "the engine has the request")
        await engine.kill()
        with pytest.raises(Broken):
            await client.response()
        with pytest.raises(ConnectionRefusedError):
            await ask(HOST, engine.port, "/generate")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, engine.port))
        engine.script = one()
        async with engine:
            assert (await ask(HOST, engine.port, "/generate", b"{}")).status == 200


async def test_a_killed_engine_keeps_no_connection_that_it_was_about_to_serve() -> None:
    """At any step between the kernel and the script: asyncio takes some to hand a connection over."""
    for steps in range(6):
        async with ScriptedEngine(hold()) as engine, contextlib.AsyncExitStack() as stack:
            client = stack.enter_context(socket.create_connection((HOST, engine.port)))
            for _ in range(steps):
                await asyncio.sleep(0)
            await engine.kill()
            await wait_until(lambda: len(open_tcp_sockets({engine.port})) <= 1, f"only the client's, after {steps}")
            client.settimeout(DEADLINE_S)
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(client.recv, 1)


async def test_a_script_that_fails_fails_the_test() -> None:
    """An exception in a script is not swallowed by the server around it."""

    async def wrong(_: object) -> None:
        raise RuntimeError("typo in a script")

    engine = await ScriptedEngine(wrong).__aenter__()
    with pytest.raises(Broken):
        await ask(HOST, engine.port, "/generate")
    with pytest.raises(AssertionError, match="typo"):
        await engine.__aexit__(None, None, None)


async def test_dies_at_without_parts_sends_no_head() -> None:
    """A reset instead of an answer."""
    async with ScriptedEngine(dies_at([], "rst")) as engine:
        with pytest.raises(Broken):
            await ask(HOST, engine.port, "/generate")


async def test_wait_until_tells_what_did_not_happen() -> None:
    """The deadline names the condition and its last value; exceptions of the condition pass through."""
    with pytest.raises(AssertionError, match=r"the moon is blue \(last value: 0\)"):
        await wait_until(lambda: 0, "the moon is blue", deadline_s=0.01)
    with pytest.raises(ZeroDivisionError):
        await wait_until(lambda: 1 / 0, "never")
