"""Engines that answer early, strangely or too much: the client gets a clear answer, and the next request a good one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import Broken, chunk_bytes, head_bytes, request_bytes
from tests.support.scripts import in_turn, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange, Script
    from tests.support.lab import Lab

OK = b"HTTP/1.1 200 OK\r\n"


def raw(answer: bytes, *, close: bool = False) -> Script:
    """Send these bytes as the whole answer."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        exchange.record.finished = True
        await exchange.send(answer)
        if close:
            exchange.close()

    return script


STRANGE = {
    "no reason phrase": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "http 1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "chunk extension": OK + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n",
    "trailers": OK + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n",
    "upper-case framing": OK + b"TRANSFER-ENCODING: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks and a larger length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks and a smaller length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "same length twice": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "many headers": OK
    + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 500) for i in range(60))
    + b"Content-Length: 2\r\n\r\nok",
    "latin-1 header": OK + b"X-Name: caf\xe9\r\nContent-Length: 2\r\n\r\nok",
    "interim answers": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 20 + OK + b"Content-Length: 2\r\n\r\nok",
}
WRONG = {
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "length no number": OK + b"Content-Length: two\r\n\r\nok",
    "negative length": OK + b"Content-Length: -2\r\n\r\nok",
    "space in a name": OK + b"X Name: 1\r\n\r\nok",
    "endless head": OK + b"X-Endless: " + b"x" * 2_000_000,
    "status 42": b"HTTP/1.1 42 What\r\nContent-Length: 2\r\n\r\nok",
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("kind", STRANGE)
async def test_a_strange_but_legal_answer_arrives(lab: Lab, kind: str) -> None:
    """Everything RFC 9112 allows, and a tidy connection after it."""
    engine = await lab.engine(in_turn(raw(STRANGE[kind]), one(b"next")))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate")
    assert (answer.status, answer.body) == (200, b"ok")
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}
    assert (await gateway.post("/generate")).body == b"next"


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_answer_is_a_broken_upstream(lab: Lab, kind: str) -> None:
    """Nothing is guessed: 502, the id aborted, the connection not used again."""
    engine = await lab.engine(in_turn(raw(WRONG[kind], close=True), one(b"next")))
    gateway = await lab.gateway(engine)
    error(await gateway.post("/generate", b'{"rid":"r"}'), 502, "upstream_broken")
    await wait_until(lambda: engine.aborted == ["r"], "the abort arrives")
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}
    assert (await gateway.post("/generate")).body == b"next"
    assert engine.requests[0].connection is not engine.requests[1].connection


@pytest.mark.parametrize("bad", [b"zz\r\nok\r\n", b"2\r\nokXX", b"ffffffffffffffffff\r\nok", b"-1\r\n"])
async def test_a_chunk_that_is_none_breaks_the_answer(lab: Lab, bad: bytes) -> None:
    """The head is out by then: the body breaks, visibly."""
    engine = await lab.engine(raw(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk_bytes(b"one") + bad))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"rid":"r"}'))
    try:
        head = await client.head()
        assert head.status == 502 or await client.until_broken()
    except Broken:
        pass
    await gateway.idle()
    assert gateway.outcomes() == {"ambiguous": 1}


async def test_an_engine_that_refuses_a_large_body_and_closes(lab: Lab) -> None:
    """It answers without reading and closes, which resets the connection: its answer, or a 502; never a hang."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(b'{"error":"too large"}', 413)
        exchange.close()

    engine = await lab.engine(refuse)
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b'{"rid":"r","x":"' + b"x" * 20_000_000 + b'"}')
    assert answer.status in {413, 502}
    await gateway.idle()
    assert gateway.outcomes() in ({"rejected": 1}, {"ambiguous": 1})
    assert len(engine.requests) == 1


async def test_an_engine_that_talks_before_it_is_asked(lab: Lab) -> None:
    """Bytes on an idle connection are no answer to the next request."""

    async def chatty(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.answer(b"first")
        await exchange.send(head_bytes("HTTP/1.1 408 Request Timeout", [("Content-Length", "0")]))

    engine = await lab.engine(in_turn(chatty, one(b"second")))
    gateway = await lab.gateway(engine)
    assert (await gateway.post("/generate")).body == b"first"
    await wait_until(lambda: engine.connections[0].sent > 150, "the stray answer is out")
    assert (await gateway.post("/generate")).body == b"second"


async def test_an_answer_of_100_000_tiny_chunks(lab: Lab) -> None:
    """Byte by byte is slow, not wrong."""
    body = b"0123456789" * 10_000
    answer = (
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    )
    gateway = await lab.gateway(await lab.engine(raw(answer)))
    assert (await gateway.post("/generate")).body == body


async def test_an_engine_behind_a_host_name(lab: Lab) -> None:
    """Names are resolved; the Host header is the name."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(f"localhost:{engine.port}", pool_options={"proven": False})
    await wait_until(lambda: gateway.pool.statistics().census["eligible"] == 1, "the engine is proven")
    assert (await gateway.post("/generate")).status == 200
    assert engine.requests[0].head.get("host") == f"localhost:{engine.port}"
