"""Bad input and refusals: a typed error that says what to do, no byte to an engine, no lease left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.client import ask
from tests.support.expect import error
from tests.support.http1 import request_bytes
from tests.support.lab import make_pool
from tests.support.scripts import Gate, echo, gated, hold, one

if TYPE_CHECKING:
    from tests.support.lab import Lab

PATHS = ["/generate", "/rollout/v1/chat/completions", "/chat/completions", "/v1/completions"]


def is_openai(path: str) -> bool:
    """Whether errors on this path have the OpenAI shape."""
    return not path.endswith("/generate")


MALFORMED = {
    b"{": 1,
    b'{"a":1,}': 7,
    b"{'a':1}": 1,
    b'{"a":1} x': 8,
    b'{"a" 1}': 5,
    b'{"a":}': 5,
    b'{"a":"x': 5,
    b"{\xff}": 1,
}


@pytest.mark.parametrize("body", MALFORMED)
@pytest.mark.parametrize("path", PATHS)
async def test_malformed_json_is_400_with_the_offset(lab: Lab, path: str, body: bytes) -> None:
    """The message says where the body stops being JSON (give or take the token)."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    message = error(await gateway.post(path, body), 400, "invalid_json", openai=is_openai(path))["message"]
    assert any(str(offset) in message for offset in range(MALFORMED[body] - 1, len(body) + 1)), message
    assert engine.requests == []
    assert gateway.outcomes() == {}


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b" [1,2] ", b"hello", b"\xff\xfe{\0}\0", b"   "])
async def test_a_body_that_is_not_an_object_is_400(lab: Lab, body: bytes) -> None:
    """Only an object can be a request."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    error(await gateway.post("/generate", body), 400, "invalid_json")
    assert engine.requests == []


@pytest.mark.parametrize("body", [b'{"a":tru,"rid":"r"}', b'{"rid":"r","a":[1,]}', b'\xef\xbb\xbf{"rid":"r"}'])
async def test_what_an_engine_may_understand_is_relayed(lab: Lab, body: bytes) -> None:
    """The inside of a value and a byte order mark are the engine's to judge, as without a gateway."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", body)
    assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize("body", [None, b""])
@pytest.mark.parametrize("path", PATHS)
async def test_a_missing_body_is_400(lab: Lab, path: str, body: bytes | None) -> None:
    """Neither a body nor an empty one."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    error(await gateway.post(path, body), 400, "missing_body", openai=is_openai(path))
    assert engine.requests == []


async def test_deep_nesting_is_refused_or_relayed_but_never_fatal(lab: Lab) -> None:
    """100,000 open brackets must not overflow a stack."""
    gateway = await lab.gateway(await lab.engine(echo()))
    for body in (b'{"a":' * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        assert (await gateway.post("/generate", body)).status in {200, 400}
    assert (await gateway.get("/live")).status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_model_is_400_and_names_the_known_ones(lab: Lab, path: str) -> None:
    """No fall-through to a default."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    refused = error(await gateway.post(path, b'{"model":"nope"}'), 400, "unknown_model", openai=is_openai(path))
    assert "nope" in refused["message"]
    assert "tiny" in refused["message"]
    assert engine.requests == []


@pytest.mark.parametrize("model", ['""', "1", "null", "[]", "{}", "true"])
async def test_a_model_that_is_no_name_is_400(lab: Lab, model: str) -> None:
    """Empty or not a string: refused, not guessed."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    answer = await gateway.post("/generate", b'{"model":%s}' % model.encode())
    assert answer.status == 400
    error(answer, 400, answer.code)
    assert engine.requests == []


async def test_models_have_pools_of_their_own(lab: Lab) -> None:
    """The model in the body decides, wherever it stands; the last of two equal keys counts, as in SGLang."""
    first, second = await lab.engines(2, echo())
    pools = {("genrm", "a"): make_pool([first], name="genrm/a"), ("genrm", "b"): make_pool([second], name="genrm/b")}
    gateway = await lab.gateway(pools=pools)
    for body, (received, engine) in {
        b'{"model":"a","rid":"1"}': (b'{"rid":"1"}', first),
        b'{"rid":"2","x":{"model":"a"},"model":"b"}': (b'{"rid":"2","x":{"model":"a"}}', second),
        b'{"rid":"3","model":"a","model":"b"}': (b'{"rid":"3"}', second),
        rb'{"rid":"4","mod\u0065l":"\u0061"}': (b'{"rid":"4"}', first),
    }.items():
        answer = await gateway.post("/genrm/generate", body)
        assert (answer.status, answer.body) == (200, received)
        assert answer.head.get("x-trimtab-backend") == engine.authority
    refused = error(await gateway.post("/genrm/generate", b"{}"), 400, "model_required")
    assert "a" in refused["message"]
    assert "b" in refused["message"]


async def test_a_default_model_serves_requests_that_name_none(lab: Lab) -> None:
    """An explicit default among several models."""
    first, second = await lab.engines(2, one())
    pools = {("r", "a"): make_pool([first], name="r/a"), ("r", "b"): make_pool([second], name="r/b")}
    gateway = await lab.gateway(pools=pools, role_options={"default_model": "b"})
    assert (await gateway.post("/r/generate")).head.get("x-trimtab-backend") == second.authority
    assert (await gateway.post("/r/generate", b'{"model":"a"}')).head.get("x-trimtab-backend") == first.authority


async def test_a_lenient_role_takes_any_model_name(lab: Lab) -> None:
    """The legacy chat: one model, whatever the client calls it; the name is not touched."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine, role_options={"lenient_model": True})
    body = b'{"rid":"r","model":"gpt-4"}'
    assert (await gateway.post("/v1/chat/completions", body)).body == body


async def test_roles_are_separate_and_need_their_prefix(lab: Lab) -> None:
    """With two roles the unprefixed form is not served; each prefix reaches its own engines."""
    first, second = await lab.engines(2, one())
    pools = {("rollout", "m"): make_pool([first]), ("teacher", "m"): make_pool([second])}
    gateway = await lab.gateway(pools=pools)
    assert (await gateway.post("/rollout/generate")).head.get("x-trimtab-backend") == first.authority
    assert (await gateway.post("/teacher/generate")).head.get("x-trimtab-backend") == second.authority
    assert (await gateway.post("/generate")).status == 404
    assert [len(first.requests), len(second.requests)] == [1, 1]


@pytest.mark.parametrize(
    "path", ["/nope/generate", "/nope/v1/chat/completions", "/rollout/", "/rollout", "/x", "//generate"]
)
async def test_an_unknown_path_or_role_is_a_json_404(lab: Lab, path: str) -> None:
    """Without a control app the data plane says 404 itself; nothing reaches an engine."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    answer = await gateway.post(path)
    error(answer, 404, answer.code)
    assert engine.requests == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_wrong_method_is_405_with_allow(lab: Lab, path: str, method: str) -> None:
    """Generation routes take POST only."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes(path, None, method=method))
    head = await client.head()
    assert (head.status, head.get("allow")) == (405, "POST")
    if method != "HEAD":
        assert b'"code"' in await client.body(head)
    assert engine.requests == []


@pytest.mark.parametrize("path", ["/live", "/ready"])
async def test_a_post_to_a_probe_is_405(lab: Lab, path: str) -> None:
    """Probes are read."""
    gateway = await lab.gateway(await lab.engine(one()))
    answer = await gateway.post(path)
    assert answer.status == 405
    assert "GET" in (answer.head.get("allow") or "")


async def test_nobody_eligible_is_503_with_guidance(lab: Lab) -> None:
    """Nobody there ("none exist") is 503, says why, and costs no engine a byte."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.drain_backend(engine.authority)
    for path in PATHS:
        answer = await gateway.post(path)
        refused = error(answer, 503, "no_eligible_backend", openai=is_openai(path))
        assert refused["retryable"] is True
        assert "draining" in refused["message"]
    assert engine.requests == []


async def test_all_busy_is_429_with_guidance(lab: Lab) -> None:
    """Everybody busy is 429, not 503; a finished execution makes room."""
    gate = Gate()
    engine = await lab.engine(gated(gate, []))
    gateway = await lab.gateway(engine, pool_options={"max_concurrent": 2})
    running = asyncio.gather(*(gateway.post("/generate") for _ in range(2)))
    await gateway.busy(2)
    refused = error(await gateway.post("/v1/completions"), 429, "at_capacity", openai=True)
    assert refused["retryable"] is True
    assert "2" in refused["message"]
    gate.open(3)
    assert {answer.status for answer in await running} == {200}
    await gateway.idle()
    assert (await gateway.post("/generate")).status == 200
    assert len(engine.requests) == 3


async def test_live_and_ready(lab: Lab) -> None:
    """``/live`` is about the process, ``/ready`` about engines; the reason is in the body."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    live = await gateway.get("/live")
    assert (live.status, live.json()) == (200, {"status": "live"})
    ready = await gateway.get("/ready")
    counts = {"state": "ready", "min_ready": 1, "eligible": 1, "unproven": 0, "down": 0, "draining": 0, "registered": 1}
    assert (ready.status, ready.json()) == (200, {"ready": True, "pools": {"rollout/tiny": counts}})
    gateway.pool.drain_backend(engine.authority)
    unready = await gateway.get("/ready")
    assert unready.status == 503
    assert unready.json()["ready"] is False
    assert "rollout/tiny" in unready.json()["reason"]
    assert (await gateway.get("/live")).status == 200


async def test_a_gateway_without_any_engine_starts(lab: Lab) -> None:
    """Zero engines: it is live, not ready, and answers 503."""
    gateway = await lab.gateway()
    assert (await gateway.get("/live")).status == 200
    assert (await gateway.get("/ready")).status == 503
    error(await gateway.post("/generate"), 503, "no_eligible_backend")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /generate HTTP/9.9\r\nHost: g\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: -1\r\nHost: g\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\nHost: g\r\n\r\nhello",
        b"POST /generate HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /generate HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: g\r\n" + b"x: " + b"y" * 2_000_000,
        b"\r\n" * 1000,
    ],
)
async def test_garbage_on_the_listener_hurts_only_its_own_connection(lab: Lab, raw: bytes) -> None:
    """Not HTTP, or HTTP that two servers could read differently: only that connection ends."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    client.writer.write(raw)
    client.half_close()
    answer = await client.rest()
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 5")), answer[:100]
    assert (await gateway.get("/live")).status == 200
    assert engine.requests == []


async def test_a_length_and_chunked_together_cannot_smuggle_a_request(lab: Lab) -> None:
    """Both framings at once: refused, or read as chunked with the length dropped (RFC 9112, 6.3); never both ways."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    smuggled = b"POST /generate HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{}"
    chunked = b"d\r\n" + b'{"rid":"out"}' + b"\r\n0\r\n\r\n"
    head = b"POST /generate HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.writer.write(head % len(chunked + smuggled) + chunked)
    client.half_close()
    await client.rest()
    for record in engine.requests:
        assert record.body == b'{"rid":"out"}'
        assert len(record.head.all("content-length") + record.head.all("transfer-encoding")) == 1


async def test_an_error_leaves_the_client_connection_usable(lab: Lab) -> None:
    """After a 400 that was read whole, the same connection serves the next request."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    for body, status in [(b"{", 400), (b"{}", 200), (b"[]", 400), (b"{}", 200)]:
        await client.send(request_bytes("/generate", body))
        assert (await client.response()).status == status


@pytest.mark.parametrize("head", ["PUT /generate", "PATCH /live", "POST /generate\r\nx-trimtab-wait: soon"])
async def test_an_answer_ahead_of_the_body_says_that_the_connection_ends(lab: Lab, head: str) -> None:
    """Who is refused by the head alone must not send the next request on a connection that is about to close."""
    gateway = await lab.gateway(await lab.engine(one()))
    client = await lab.client(gateway)
    line, _, more = head.partition("\r\n")
    fields = f"{more}\r\n" if more else ""
    await client.send(f"{line} HTTP/1.1\r\nhost: g\r\n{fields}content-length: 5\r\n\r\n".encode())
    answer = await client.head()
    assert answer.status in {400, 405}
    assert answer.get("connection") == "close"


async def test_no_error_is_counted_as_an_execution(lab: Lab) -> None:
    """After every kind of refusal the pool has granted nothing."""
    gateway = await lab.gateway(await lab.engine(hold()), max_body_bytes=100)
    for body in [b"{", b"[]", b"", b'{"model":"x"}', b'{"model":1}', b"x" * 101]:
        assert (await gateway.post("/generate", body)).status in {400, 413}
    assert (await ask(gateway.host, gateway.port, "/generate", None, method="GET")).status == 405
    assert sum(gateway.pool.statistics().picks.values()) == 0
