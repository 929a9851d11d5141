"""B1, B8: the client goes away, at any point; the engine is told at once and the count returns to zero."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.client import RawClient
from tests.support.http1 import Broken, chunk_bytes, request_bytes
from tests.support.scripts import Gate, events, gated, hold, one
from tests.support.sockets import silent_address
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange, Script, ScriptedEngine
    from tests.support.lab import Gateway, Lab

POINTS = [
    "in the head",
    "before the body",
    "in the body",
    "after the body",
    "waiting",
    "after the head",
    "after event 1",
]
POINTS += ["in an event", "in the last byte", "in a big answer"]
ANSWER = b"x" * 1000


async def answer_up_to_the_point(exchange: Exchange) -> None:
    """Answer as far as the client's point of departure needs it, then wait for the departure."""
    await exchange.read_body()
    point = exchange.record.json()["point"]
    if point in {"after the head", "after event 1", "in an event"}:
        await exchange.start_stream()
        if point == "after event 1":
            await exchange.send_chunk(events(1)[0])
        elif point == "in an event":
            await exchange.send_chunk(events(1)[0][:10])
    elif point == "in the last byte":
        await exchange.send_head(200, (("Content-Length", str(len(ANSWER))),))
        await exchange.send(ANSWER[:-1])
    elif point == "in a big answer":
        await exchange.start_stream()
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.send_chunk(b"x" * 65536)
    await exchange.record.peer_closed.wait()
    exchange.ended = True


async def leave_at(client: RawClient, engine: ScriptedEngine, point: str, number: int) -> None:
    """Send request ``number`` and go as far as ``point``."""
    name = f"client-{number:04}"
    body = b'{"rid":"%s","point":"%s"}' % (name.encode(), point.encode())
    raw = request_bytes("/generate", body)
    cut = {"in the head": 20, "before the body": len(raw) - len(body), "in the body": len(raw) - 5}.get(point, len(raw))
    await client.send(raw[:cut])
    if point == "waiting":
        await wait_until(lambda: any(r.body and r.rid == name for r in engine.requests), "the engine has the request")
    elif point in {"after the head", "in the last byte", "in a big answer"}:
        await client.head()
        if point == "in the last byte":
            await client.wire.exactly(len(ANSWER) - 1)
    elif point == "after event 1":
        await client.head()
        await client.event()
    elif point == "in an event":
        await client.head()
        await client.chunk()


async def everything_is_over(gateway: Gateway, engine: ScriptedEngine) -> None:
    """Outstanding is 0, and the engine saw the end of every exchange that it had not finished."""
    await gateway.idle()
    await wait_until(
        lambda: all(record.finished or record.peer_closed.is_set() for record in engine.requests),
        "the engine saw every disconnect",
    )


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_b1_fifty_clients_leave_at_ten_points(lab: Lab, how: str) -> None:
    """Whatever the point, outstanding returns to 0, the engine connection closes and the id is aborted."""
    engine = await lab.engine(answer_up_to_the_point)
    gateway = await lab.gateway(engine)

    async def visit(number: int) -> None:
        async with RawClient(gateway.host, gateway.port) as client:
            await leave_at(client, engine, POINTS[number % len(POINTS)], number)
            if how == "rst":
                client.reset()

    await asyncio.gather(*(visit(number) for number in range(50)))
    await everything_is_over(gateway, engine)
    assert not any(record.finished for record in engine.requests)
    assert engine.disconnects == len(engine.requests) >= 30
    assert sorted(engine.aborted) == sorted(record.rid for record in engine.requests if record.body)
    assert set(gateway.outcomes()) == {"cancelled"}
    await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 0, "no request is open")


@pytest.mark.parametrize("point", POINTS)
async def test_b1_each_point_alone(lab: Lab, point: str) -> None:
    """The same one by one: a leak that a busy gateway would hide is seen."""
    engine = await lab.engine(answer_up_to_the_point)
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await leave_at(client, engine, point, 1)
        client.reset()
    await everything_is_over(gateway, engine)
    await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 0, "no request is open")
    statistics = gateway.plane.statistics()
    assert statistics["upstream_connections"] == statistics["upstream_idle"], "no engine connection is in use"


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("stream", ["true", "false"])
async def test_b8_a_client_that_leaves_during_a_long_prefill_is_noticed_within_a_second(
    lab: Lab, stream: str, how: str
) -> None:
    """The engine says nothing yet; its connection closes and the id is aborted within 1 s all the same."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"prefill","stream":%s}' % stream.encode()))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
        if how == "rst":
            client.reset()
    left = time.monotonic()
    await asyncio.wait_for(engine.requests[0].peer_closed.wait(), 1.0)
    await wait_until(lambda: engine.aborted == ["prefill"], "the abort arrives")
    assert time.monotonic() - left < 1.0
    await gateway.idle()
    assert gateway.outcomes() == {"cancelled": 1}


async def test_b8_the_spliced_id_is_the_aborted_one(lab: Lab) -> None:
    """A client that named nothing is aborted by the id the gateway gave it."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"text":"a"}'))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: len(engine.aborted) == 1, "the abort arrives")
    assert engine.aborted == [engine.requests[0].rid]


async def test_an_engine_that_does_not_confirm_the_abort_leaves_it_ambiguous(lab: Lab) -> None:
    """Without a confirmation nobody knows whether the execution is over; it is counted until the grace ends."""
    engine = await lab.engine(hold())
    engine.abort_status = 500
    gateway = await lab.gateway(engine, abort_grace_s=0.05)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"r"}'))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await gateway.idle()
    assert engine.aborted
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_an_execution_stays_counted_until_the_engine_confirms_its_abort(lab: Lab) -> None:
    """The engine works on for a client that is gone: its load is real until it says that it stopped."""
    engine = await lab.engine(hold())
    engine.abort_status = None
    gateway = await lab.gateway(engine, abort_grace_s=60)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"r"}'))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: engine.aborted == ["r"], "the abort arrives")
    await wait_until(lambda: engine.disconnects == 1, "the connection is closed")
    assert gateway.outstanding == 1
    await engine.kill()
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_the_abort_is_made_with_the_credentials_of_the_client(lab: Lab) -> None:
    """An engine with an API key refuses an anonymous abort."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"r"}', [("Authorization", "Bearer sk-1")]))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: len(engine.aborts) == 1, "the abort arrives")
    head = engine.aborts[0].head
    assert (head.method, head.get("authorization")) == ("POST", "Bearer sk-1")
    assert head.get("host") == engine.authority
    assert head.get("content-type") == "application/json"


@pytest.mark.parametrize(
    ("body", "aborted"),
    [
        (b'{"text":["x","y"],"rid":["one","two"]}', {"one", "two"}),
        (b'{"text":["x","y"],"rid":"both"}', {"both"}),
        (b'{"rid":"first","rid":"last"}', {"last"}),
        (rb'{"rid":"a\u00e9\"\\"}', {'aé"\\'}),
    ],
)
async def test_every_id_of_a_request_is_aborted(lab: Lab, body: bytes, aborted: set[str]) -> None:
    """A batch has several; of two equal keys the last one counts; escapes are the client's business."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", body))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: set(engine.aborted) == aborted, "every abort arrives")
    await gateway.idle()
    assert gateway.outcomes() == {"cancelled": 1}


@pytest.mark.parametrize("rid", ["", "a1", "0123abc"])
async def test_an_id_that_could_begin_another_one_is_not_aborted(lab: Lab, rid: str) -> None:
    """SGLang aborts by prefix: a short hex id would end other people's generations. The connection is closed."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"%s"}' % rid.encode()))
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: engine.disconnects == 1, "the connection is closed")
    await gateway.idle()
    assert gateway.plane.statistics()["aborts_sent_total"] == 0


async def test_a_client_that_leaves_while_the_engine_is_being_connected(lab: Lab) -> None:
    """No byte went out: the lease is cancelled at once and nothing is aborted."""
    gateway = await lab.gateway(lab.enter(silent_address()), connect_timeout_s=60, probe_timeout_s=0.05)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate"))
        await gateway.busy(1)
    await gateway.idle()
    assert gateway.outcomes() == {"cancelled": 1}
    assert gateway.plane.statistics()["aborts_sent_total"] == 0


async def test_a_client_that_leaves_with_a_second_request_in_the_pipe_is_noticed(lab: Lab) -> None:
    """Bytes of a next request in the buffer must not hide the end behind them."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", b'{"rid":"first"}') * 2)
        await wait_until(lambda: engine.requests and engine.requests[0].body, "the engine has the request")
    await wait_until(lambda: engine.aborted == ["first"], "the abort arrives")
    await gateway.idle()
    assert len(engine.requests) == 1


async def test_a_client_that_leaves_while_its_body_arrives_never_reaches_an_engine(lab: Lab) -> None:
    """The body is read before the lease is taken: nothing to abort, nothing to count."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(
            b"POST /generate HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk_bytes(b"{")
        )
        await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 1, "the request has begun")
        client.reset()
    await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 0, "the request is over")
    assert gateway.outcomes() == {}
    assert engine.requests == []


async def test_leaving_after_the_last_byte_is_a_normal_end(lab: Lab) -> None:
    """A client that closes as soon as it has the whole answer cancels nothing."""
    gate = Gate()
    engine = await lab.engine(gated(gate, events(2)))
    gateway = await lab.gateway(engine)
    gate.open(300)
    for _ in range(100):
        await gateway.post("/generate", b'{"stream":true}')
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 100}
    assert engine.aborted == []


def wander(dice: random.Random) -> Script:
    """An engine of random pace: up to 20 ms to the head, up to 10 ms between ten events."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        closed = asyncio.ensure_future(exchange.record.peer_closed.wait())
        try:
            await asyncio.wait([closed], timeout=dice.random() * 0.02)
            await exchange.start_stream()
            for event in events(10):
                await exchange.send_chunk(event)
                await asyncio.wait([closed], timeout=dice.random() * 0.01)
                if closed.done():
                    break
            else:
                await exchange.end_stream()
        finally:
            closed.cancel()

    return script


async def by_aiohttp(session: aiohttp.ClientSession, gateway: Gateway, rid: str) -> None:
    """One streamed request by a client library."""
    async with session.post(f"{gateway.url}/generate", json={"rid": rid, "stream": True}) as answer:
        await answer.read()


async def by_socket(gateway: Gateway, rid: str) -> None:
    """One request by a raw socket that is reset when the task is cancelled."""
    async with RawClient(gateway.host, gateway.port) as client:
        try:
            body = b'{"rid":"%s"}' % rid.encode()
            await client.send(request_bytes("/generate", body, [("x-trimtab-session", rid[-1])]))
            await client.response()
        except asyncio.CancelledError:
            client.reset()
            raise


@pytest.mark.slow
async def test_500_requests_cancelled_at_random_points(lab: Lab) -> None:
    """By aiohttp and raw sockets, at seeded random times: no count and no disconnect is lost."""
    dice = random.Random(20)
    engines = await lab.engines(2, wander(dice))
    gateway = await lab.gateway(*engines)
    turns = asyncio.Semaphore(50)

    async def visit(session: aiohttp.ClientSession, number: int) -> None:
        async with turns:
            rid = f"client-{number:04}"
            work = by_aiohttp(session, gateway, rid) if number % 2 else by_socket(gateway, rid)
            task = asyncio.ensure_future(work)
            await asyncio.wait([task], timeout=dice.random() * 0.08)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Broken, aiohttp.ClientError):
                await task

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(visit(session, number) for number in range(500)))
    for engine in engines:
        await everything_is_over(gateway, engine)
    cut = [record for engine in engines for record in engine.requests if not record.finished]
    aborted = {rid for engine in engines for rid in engine.aborted}
    assert len(cut) > 100, "too few requests were cut for the test to mean anything"
    assert {record.rid for record in cut if record.body} <= aborted
    statistics = gateway.pool.statistics()
    assert sum(statistics.outcomes.values()) == sum(statistics.picks.values())
    assert set(gateway.outcomes()) <= {"completed", "cancelled"}
