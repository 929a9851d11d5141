"""Headers: end-to-end ones pass, hop-by-hop ones stop here, ours are added."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.http1 import request_bytes
from tests.support.scripts import drip, one

if TYPE_CHECKING:
    from tests.support.lab import Lab

HOP_BY_HOP = [
    ("Connection", "keep-alive, X-Named, x-other"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Connection", "keep-alive"),
    ("Proxy-Authenticate", "Basic"),
    ("TE", "trailers"),
    ("Upgrade", "h2c"),
    ("X-Named", "1"),
    ("X-Other", "1"),
]


async def test_hop_by_hop_request_headers_stop_here(lab: Lab) -> None:
    """Those of the list, and those that Connection names."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate", b"{}", [*HOP_BY_HOP, ("Proxy-Authorization", "Basic x"), ("X-Stays", "1")])
    names = set(engine.requests[0].head.names)
    assert names & {name.lower() for name, _ in HOP_BY_HOP} <= {"connection"}
    assert "proxy-authorization" not in names
    assert (engine.requests[0].head.get("connection") or "keep-alive").lower() == "keep-alive"
    assert engine.requests[0].head.get("x-stays") == "1"


async def test_hop_by_hop_response_headers_stop_here(lab: Lab) -> None:
    """The same on the way back."""
    headers = [("Content-Type", "application/json"), *HOP_BY_HOP, ("X-Stays", "1"), ("Trailer", "x-t")]
    gateway = await lab.gateway(await lab.engine(one(b"{}", headers=headers)))
    answer = await gateway.post("/generate")
    names = set(answer.head.names)
    assert names & {name.lower() for name, _ in HOP_BY_HOP} <= {"connection"}
    assert answer.head.get("x-stays") == "1"
    assert "x-named" not in (answer.head.get("connection") or "").lower()


@pytest.mark.parametrize("own", [[], [("Authorization", "Bearer own")]])
async def test_a_client_cannot_name_away_what_an_engine_needs(lab: Lab, own: list[tuple[str, str]]) -> None:
    """What ``Connection`` names is the client's; the engines' key, address and length are added after it left."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, engine_key="k1")
    named = ("Connection", "authorization, Host, content-length, x-trimtab-session, close")
    answer = await gateway.post("/generate", b"{}", [named, *own, ("x-trimtab-session", "s")])
    assert (answer.status, answer.head.get("x-trimtab-session")) == (200, "s")
    (record,) = engine.requests
    assert record.head.get("authorization") == "Bearer k1"
    assert record.head.get("host") == engine.authority
    assert int(record.head.get("content-length") or 0) == len(record.body or b"")


async def test_an_engine_cannot_name_away_what_an_answer_says(lab: Lab) -> None:
    """The same on the way back."""
    named = ("Connection", "x-trimtab-backend, x-trimtab-lease, x-trimtab-session, content-length")
    engine = await lab.engine(one(b"{}", headers=[("Content-Type", "application/json"), named]))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b"{}", [("x-trimtab-session", "s")])
    assert answer.head.get("x-trimtab-backend") == engine.authority
    assert answer.head.get("x-trimtab-session") == "s"
    assert answer.head.get("x-trimtab-lease")
    assert answer.body == b"{}"


async def test_credentials_and_tracing_pass_and_the_host_is_the_engine(lab: Lab) -> None:
    """Authorization, cookies, user agent and traceparent are the client's; Host names the engine."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    sent = [
        ("Authorization", "Bearer sk-1"),
        ("Cookie", "a=1"),
        ("User-Agent", "test/1"),
        ("Accept", "text/event-stream"),
        ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("Content-Type", "application/json; charset=utf-8"),
    ]
    await gateway.post("/generate", b"{}", sent)
    head = engine.requests[0].head
    assert {name: head.get(name) for name, _ in sent} == dict(sent)
    assert head.get("host") == engine.authority


async def test_nothing_is_invented_for_the_engine(lab: Lab) -> None:
    """A bare request arrives bare: host, framing, the gateway's name, nothing else."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate")
    assert set(engine.requests[0].head.names) <= {"host", "content-length", "connection", "accept", "via"}


async def test_our_request_headers_do_not_leave(lab: Lab) -> None:
    """``x-trimtab-*`` is between the client and the gateway."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate", b"{}", [("x-trimtab-session", "s"), ("X-Trimtab-Anything", "1")])
    assert not [name for name in engine.requests[0].head.names if name.startswith("x-trimtab")]


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_say_where_they_come_from(lab: Lab, stream: bool) -> None:
    """Backend, lease (unique, 16 hex digits) and session, also on streams; no version is guessed."""
    engine = await lab.engine(drip(1) if stream else one())
    gateway = await lab.gateway(engine)
    answers = [await gateway.post("/generate", b"{}", [("x-trimtab-session", "s")]) for _ in range(3)]
    for answer in answers:
        assert answer.head.get("x-trimtab-backend") == engine.authority
        assert re.fullmatch("[0-9a-f]{16}", answer.head.get("x-trimtab-lease") or "")
        assert answer.head.get("x-trimtab-session") == "s"
        assert answer.head.get("x-trimtab-weight-version") is None
    assert len({answer.head.get("x-trimtab-lease") for answer in answers}) == 3


async def test_a_backend_is_named_by_its_id(lab: Lab) -> None:
    """The operator's id, not the address."""
    engine = await lab.engine(one())
    gateway = await lab.gateway()
    gateway.pool.add_backend(engine.url, id="replica/0")
    assert (await gateway.post("/generate")).head.get("x-trimtab-backend") == "replica/0"


async def test_an_engine_cannot_forge_our_headers(lab: Lab) -> None:
    """``x-trimtab-*`` of an engine does not reach the client as ours."""
    forged = [("x-trimtab-backend", "evil"), ("x-trimtab-lease", "0"), ("x-trimtab-error", "none")]
    engine = await lab.engine(one(b"{}", headers=forged))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate")
    assert answer.head.all("x-trimtab-backend") == [engine.authority]
    assert answer.head.get("x-trimtab-error") is None


async def test_repeated_response_headers_are_kept(lab: Lab) -> None:
    """Two cookies are two headers."""
    gateway = await lab.gateway(await lab.engine(one(b"{}", headers=[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])))
    assert (await gateway.post("/generate")).head.all("set-cookie") == ["a=1", "b=2"]


async def test_redirects_are_passed_on_not_followed(lab: Lab) -> None:
    """A 307 of the engine is the client's to judge."""
    other = await lab.engine(one())
    engine = await lab.engine(one(b"", status=307, headers=[("Location", f"{other.url}/generate")]))
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate")
    assert (answer.status, answer.head.get("location")) == (307, f"{other.url}/generate")
    assert other.requests == []


async def test_an_http_1_0_client_is_served(lab: Lab) -> None:
    """No chunked framing for a client that does not know it; the connection ends the body."""
    gateway = await lab.gateway(await lab.engine(drip(3)))
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate").replace(b"HTTP/1.1", b"HTTP/1.0"))
    head = await client.head()
    assert head.get("transfer-encoding") is None
    assert (await client.rest()).endswith(b"data: [DONE]\n\n")


async def test_pipelined_requests_are_answered_in_order(lab: Lab) -> None:
    """Three requests in one write: three answers in their order, none lost."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    await client.send(b"".join(request_bytes("/generate", b'{"rid":"r%d"}' % i) for i in range(3)))
    answers = [await client.response() for _ in range(3)]
    assert [answer.json()["meta_info"]["id"] for answer in answers] == ["r0", "r1", "r2"]
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 3}


async def test_connection_close_is_obeyed(lab: Lab) -> None:
    """A client that asks for the end of the connection gets it after the answer."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b"{}", [("Connection", "close")]))
    assert (await client.response()).status == 200
    assert await client.rest() == b""
