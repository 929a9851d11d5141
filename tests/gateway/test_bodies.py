"""Bodies of every size and framing pass both ways."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import chunk_bytes, head_bytes, request_bytes
from tests.support.scripts import early, echo, interim, one, pieces
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Lab

CHUNKED = head_bytes("POST /generate HTTP/1.1", [("Host", "g"), ("Transfer-Encoding", "chunked")])


async def test_20_megabytes_pass_both_ways(lab: Lab) -> None:
    """A large prompt and a large answer (log-probs) arrive byte for byte."""
    body = b'{"rid":"big","text":"' + bytes(range(35, 91)) * 374_500 + b'"}'
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", body)
    assert len(body) > 20 * 2**20
    assert engine.requests[0].body == body
    assert answer.body == body


async def test_20_megabytes_chunked_pass_both_ways(lab: Lab) -> None:
    """The same in pieces, without a length on either side."""
    piece = bytes(range(35, 91)) * 1170
    parts = [b'{"rid":"big","text":"', *[piece] * 325, b'"}']
    engine = await lab.engine(pieces(parts, content_type="application/json"))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(CHUNKED)
    for part in parts:
        await client.send(chunk_bytes(part))
    await client.send(chunk_bytes(b""))
    answer = await client.response()
    assert len(answer.body) > 20 * 2**20
    assert answer.body == b"".join(parts)
    assert engine.requests[0].body == b"".join(parts)


async def test_a_chunked_request_arrives_whole_whatever_its_chunks(lab: Lab) -> None:
    """One byte per chunk, an extension and a trailer: the engine sees one body."""
    body = b'{"rid":"r","text":"\xc3\xa9"}'
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(CHUNKED + b"".join(chunk_bytes(body[i : i + 1]) for i in range(len(body) - 1)))
    await client.send(b"1;name=value\r\n}\r\n0\r\nX-Trailer: x\r\n\r\n")
    assert (await client.response()).body == body
    record = engine.requests[0]
    assert record.body == body
    assert (record.head.get("content-length") is None) != (record.head.get("transfer-encoding") is None)


async def test_expect_100_continue_is_answered_before_the_body_is_sent(lab: Lab) -> None:
    """A client that waits for permission (curl with a large body) gets it from the gateway."""
    body = b'{"rid":"r"}'
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    raw = request_bytes("/generate", body, [("Expect", "100-continue")])
    await client.send(raw[: -len(body)])
    assert (await client.head()).status == 100
    await client.send(body)
    assert (await client.response()).body == body


async def test_an_interim_answer_of_the_engine_does_not_end_the_request(lab: Lab) -> None:
    """``100 Continue`` from the engine is not the answer."""
    engine = await lab.engine(interim(echo()))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b'{"rid":"r"}')
    assert (answer.status, answer.body) == (200, b'{"rid":"r"}')


async def test_content_encoding_is_passed_through(lab: Lab) -> None:
    """A compressed answer stays compressed, and the client's accept-encoding reaches the engine."""
    packed = gzip.compress(b'{"text":"abc"}')
    headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    engine = await lab.engine(one(packed, headers=headers))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b"{}", [("Accept-Encoding", "gzip")])
    assert answer.body == packed
    assert (answer.head.get("content-encoding"), answer.head.get("vary")) == ("gzip", "Accept-Encoding")
    assert engine.requests[0].head.get("accept-encoding") == "gzip"


async def test_nothing_is_compressed_on_the_way(lab: Lab) -> None:
    """The gateway does not compress for a client that would accept it."""
    engine = await lab.engine(one(b" " * 100_000))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b"{}", [("Accept-Encoding", "gzip, br")])
    assert answer.head.get("content-encoding") is None
    assert answer.body == b" " * 100_000


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_an_answer_arrives_in_every_framing(lab: Lab, framing: str) -> None:
    """Chunked, with a length, or ended by the connection: the same bytes, and the client knows that they are all."""
    engine = await lab.engine(pieces([b'{"a":', b"1}"], framing=framing, content_type="application/json"))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate"))
    answer = await client.response()
    assert answer.body == b'{"a":1}'
    assert answer.head.get("content-length") == ("7" if framing == "length" else None)
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(lab: Lab, status: int) -> None:
    """Status codes that have no body end at their head."""

    async def bare(exchange: Exchange) -> None:
        await exchange.read_body()
        exchange.record.finished = True
        await exchange.send_head(status)

    engine = await lab.engine(bare)
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate")
    assert (answer.status, answer.body) == (status, b"")
    await gateway.idle()


async def test_an_early_answer_of_the_engine_arrives(lab: Lab) -> None:
    """An engine that refuses before it has read a large body is heard."""
    body = b'{"rid":"r","text":"' + b"x" * 4_000_000 + b'"}'
    engine = await lab.engine(early(400, b'{"error":"too long"}'))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", body)
    assert (answer.status, answer.body) == (400, b'{"error":"too long"}')
    await gateway.idle()
    assert gateway.outcomes() == {"rejected": 1}


async def test_a_body_at_the_limit_passes_and_one_byte_more_does_not(lab: Lab) -> None:
    """The limit is exact, and the engine never hears of the rest."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine, max_body_bytes=1000)
    fits = b'{"rid":"r","text":"' + b"x" * (1000 - 21) + b'"}'
    assert len(fits) == 1000
    assert (await gateway.post("/generate", fits)).status == 200
    refused = await gateway.post("/generate", fits + b" ")
    assert "1000" in error(refused, 413, "body_too_large")["message"]
    assert len(engine.requests) == 1


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(lab: Lab) -> None:
    """The announced length is enough: no body byte is waited for, and the connection is over."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine, max_body_bytes=1000)
    client = await lab.client(gateway)
    await client.send(b"POST /generate HTTP/1.1\r\nHost: g\r\nContent-Length: 99999999999\r\n\r\n")
    refused = await client.response()
    assert "1000" in error(refused, 413, "body_too_large")["message"]
    assert await client.rest() == b""
    assert engine.requests == []


async def test_a_chunked_body_over_the_limit_is_refused_while_it_arrives(lab: Lab) -> None:
    """Without a length the gateway counts."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine, max_body_bytes=1000)
    client = await lab.client(gateway)
    await client.send(CHUNKED + chunk_bytes(b'{"text":"' + b"x" * 600) + chunk_bytes(b"x" * 600))
    refused = await client.response()
    assert "1000" in error(refused, 413, "body_too_large")["message"]
    assert engine.requests == []
    await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 0, "the request is over")
