"""We gave up waiting: 504 in every phase before the answer, an error event inside it; the engine is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.expect import error, error_event
from tests.support.http1 import DONE, request_bytes
from tests.support.scripts import Gate, dies_at, drip, events, gated, hold, one, pieces
from tests.support.sockets import silent_address
from tests.support.waiting import settled, wait_until
from trimtab_gateway import GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.engine import Exchange
    from tests.support.lab import Lab


async def test_a_connect_that_never_finishes_is_504(lab: Lab) -> None:
    """Nothing was written: the request may be sent again, and the lease says so."""
    gateway = await lab.gateway(lab.enter(silent_address()), connect_timeout_s=0.05)
    refused = error(await gateway.post("/generate"), 504, "connect_timeout")
    assert refused["retryable"] is True
    assert gateway.outcomes() == {"not_sent": 1}


async def test_a_connect_that_never_finishes_moves_to_the_next_engine(lab: Lab) -> None:
    """A silent engine costs its connect timeout, not the request."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(lab.enter(silent_address()), engine, capacities=[100, 1], connect_timeout_s=0.05)
    assert (await gateway.post("/generate")).head.get("x-trimtab-backend") == engine.authority
    await gateway.idle()
    assert gateway.outcomes() == {"not_sent": 1, "completed": 1}


@pytest.mark.parametrize("option", ["first_byte_timeout_s", "total_timeout_s"])
@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
async def test_no_answer_in_time_is_504_and_the_engine_is_told(lab: Lab, option: str, path: str) -> None:
    """The execution may still run: connection closed, id aborted, not replayed on the other engine."""
    engine = await lab.engine(hold())
    other = await lab.engine(one())
    limits: dict[str, Any] = {option: 0.1}
    gateway = await lab.gateway(engine, other, capacities=[100, 1], **limits)
    refused = error(await gateway.post(path, b'{"rid":"late"}'), 504, option[:-2], openai=path != "/generate")
    assert refused["retryable"] is False
    assert engine.authority in refused["message"]
    await wait_until(lambda: engine.aborted == ["late"], "the abort arrives")
    await wait_until(lambda: engine.disconnects == 1, "the connection is closed")
    await gateway.idle()
    assert other.requests == []
    assert set(gateway.outcomes()) <= {"ambiguous", "cancelled"}


async def test_a_total_timeout_does_not_blame_the_engine(lab: Lab) -> None:
    """The limit is the operator's: executions that are longer take no healthy engine out."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine, total_timeout_s=0.1)
    for _ in range(4):
        error(await gateway.post("/generate"), 504, "total_timeout")
    (backend,) = gateway.pool.statistics().backends
    assert (backend.health, backend.failures, backend.outcomes["ambiguous"]) == ("up", 0, 4)


@pytest.mark.parametrize("option", ["idle_timeout_s", "total_timeout_s"])
async def test_silence_inside_a_stream_is_an_error_event_and_an_unclean_end(lab: Lab, option: str) -> None:
    """The status is gone by then; the stream says it and breaks."""
    engine = await lab.engine(gated(Gate(), events(1)))
    limits: dict[str, Any] = {option: 0.2}
    gateway = await lab.gateway(engine, **limits)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"rid":"silent","stream":true}'))
    assert (await client.head()).status == 200
    assert error_event(await client.until_broken())["code"] == option[:-2]
    await wait_until(lambda: engine.aborted == ["silent"], "the abort arrives")
    await gateway.idle()
    assert set(gateway.outcomes()) <= {"ambiguous", "cancelled"}


async def test_silence_inside_a_json_answer_breaks_it(lab: Lab) -> None:
    """A JSON answer that stalls ends early and visibly, or as a 504; never as a short 200."""
    engine = await lab.engine(dies_at([b'{"te'], "fin", gate=Gate(), framing="length", content_type="application/json"))
    gateway = await lab.gateway(engine, idle_timeout_s=0.1)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"rid":"r"}'))
    head = await client.head()
    if head.status == 200:
        assert await client.rest() == b'{"te'
    else:
        assert head.status == 504
    await gateway.idle()


async def test_an_idle_timeout_counts_from_the_last_byte(lab: Lab) -> None:
    """A stream that goes on longer than the idle timeout, event by event, is not cut."""
    gateway = await lab.gateway(await lab.engine(drip(20, 0.05)), idle_timeout_s=0.6, first_byte_timeout_s=0.6)
    answer = await gateway.post("/generate", b'{"stream":true}')
    assert answer.body.endswith(b"data: [DONE]\n\n")
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


async def test_a_slow_client_is_not_a_silent_engine(lab: Lab) -> None:
    """The idle timeout is about the engine: a client that does not read for a while loses nothing."""
    gate = Gate()
    engine = await lab.engine(gated(gate, [b"x" * 2**20] * 16))
    gateway = await lab.gateway(engine, idle_timeout_s=0.3)
    client = await lab.client(gateway, receive_buffer=65536, read_limit=65536)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    head = await client.head()
    gate.open(17)
    await settled(lambda: engine.connections[0].sent, quiet_s=0.8)
    assert len(await client.body(head)) == 16 * 2**20 + len(b"data: [DONE]\n\n")
    await gateway.idle()
    assert gateway.outcomes() == {"completed": 1}


async def test_a_client_that_reads_nothing_has_its_time_too(lab: Lab) -> None:
    """The total time ends an answer that nobody takes: the client is cut off, the engine is told."""
    engine = await lab.engine(pieces([b"x" * 2**20] * 64, framing="length"))
    gateway = await lab.gateway(engine, total_timeout_s=0.3)
    client = await lab.client(gateway, receive_buffer=4096, read_limit=1024)
    await client.send(request_bytes("/generate", b'{"rid":"stalled"}'))
    await gateway.busy(1)
    await gateway.idle()
    await wait_until(lambda: engine.aborted == ["stalled"], "the abort arrives")
    await wait_until(lambda: gateway.plane.statistics()["connections"] == 0, "the client is cut off")
    assert set(gateway.outcomes()) <= {"ambiguous", "cancelled"}


@pytest.mark.parametrize("path", ["/generate", "/abort_request"])
async def test_a_client_that_sends_too_slowly_has_its_time_too(lab: Lab, path: str) -> None:
    """408 while the body is still to come; nothing was sent, so the request may be sent again."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, total_timeout_s=0.2)
    client = await lab.client(gateway)
    head = b"POST %b HTTP/1.1\r\nhost: g\r\ncontent-length: 100\r\n\r\n" % path.encode()
    await client.send(head + b'{"text":')
    refused = error(await client.response(), 408, "request_timeout")
    assert refused["retryable"] is True
    assert engine.requests == []
    assert gateway.outcomes() == {}


HALF = b"POST %b HTTP/1.1\r\nhost: g\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.parametrize("path", ["/workers", "/v1/router/pools/rollout/tiny/leases"])
async def test_half_a_body_is_408_where_no_engine_is_asked(lab: Lab, tmp_path: Path, path: str) -> None:
    """The control app and the lease API wait for a body as long as engines do; then its client is told, and cut off."""
    control = await lab.engine(one(), unix=tmp_path / "control.sock")
    gateway = await lab.gateway(control_socket=str(control.unix), total_timeout_s=0.2)
    client = await lab.client(gateway)
    await client.send(HALF % path.encode())
    answer = await client.response()
    refused = error(answer, 408, "request_timeout")
    assert refused["retryable"] is True
    assert "total_timeout_s" in refused["message"]
    assert answer.head.get("connection") == "close"
    assert await client.rest() == b""
    await wait_until(lambda: control.disconnects == len(control.requests), "the app is not left waiting")
    await wait_until(lambda: gateway.plane.statistics()["connections"] == 0, "the client is cut off")


async def test_the_control_app_has_all_the_time_it_wants(lab: Lab, tmp_path: Path) -> None:
    """The limit is that of the body: an update of weights whose request was read takes longer than a generation."""
    gate = Gate()

    async def slow(exchange: Exchange) -> None:
        await exchange.read_body()
        await gate.passed()
        await exchange.answer(b"{}")

    control = await lab.engine(slow, unix=tmp_path / "control.sock")
    gateway = await lab.gateway(control_socket=str(control.unix), total_timeout_s=0.2)
    patient, late = await lab.client(gateway), await lab.client(gateway)
    await patient.send(HALF % b"/rollout/pause" + b" " * 99)
    await wait_until(lambda: control.requests and control.requests[0].body is not None, "the app has the body")
    await late.send(HALF % b"/rollout/pause")
    error(await late.response(), 408, "request_timeout")
    gate.open()
    assert (await patient.response()).status == 200


async def test_a_fast_answer_leaves_no_deadline_behind(lab: Lab) -> None:
    """On a kept-alive connection each request has its own time."""
    gateway = await lab.gateway(await lab.engine(drip(3, 0.1)), total_timeout_s=0.6)
    client = await lab.client(gateway)
    for _ in range(4):
        await client.send(request_bytes("/generate", b'{"stream":true}'))
        assert (await client.response()).body.endswith(DONE)


def test_b15_there_is_no_limit_by_default() -> None:
    """A first byte after half an hour is a long prefill: only connecting has a limit unless the operator sets one."""
    config = GatewayConfig((RoleConfig("rollout", (ModelConfig("tiny"),)),))
    assert (config.first_byte_timeout_s, config.idle_timeout_s, config.total_timeout_s) == (None, None, None)
    assert config.connect_timeout_s == 5.0
