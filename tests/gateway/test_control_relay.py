"""What the data plane does not serve goes to the control app over its Unix socket, streamed and untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.client import RawClient
from tests.support.expect import error
from tests.support.http1 import DONE, request_bytes
from tests.support.scripts import Gate, echo, events, gated, hold, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.engine import Script, ScriptedEngine
    from tests.support.lab import Gateway, Lab


async def relay(lab: Lab, tmp_path: Path, script: Script) -> tuple[ScriptedEngine, ScriptedEngine, Gateway]:
    """A control app with a script, an engine, and the gateway between them."""
    control = await lab.engine(script, unix=tmp_path / "control.sock")
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, control_socket=str(control.unix))
    return control, engine, gateway


@pytest.mark.parametrize(
    "target",
    ["/rollout/health", "/metrics", "/rollout/engines?wait_seq=3", "/", "/nope/generate", "/a%20b//c/../d", "/?x"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
async def test_any_other_request_reaches_the_control_app_untouched(
    lab: Lab, tmp_path: Path, method: str, target: str
) -> None:
    """Method, target and body are the client's; the answer is the app's."""
    control, engine, gateway = await relay(lab, tmp_path, one(b"made by the app", status=418))
    client = await lab.client(gateway)
    await client.send(request_bytes(target, b"any bytes", [("X-Mine", "1")], method=method))
    answer = await client.response()
    assert (answer.status, answer.body) == (418, b"made by the app")
    (record,) = control.requests
    assert (record.head.method, record.head.target, record.body) == (method, target, b"any bytes")
    assert record.head.get("x-mine") == "1"
    assert engine.requests == []
    assert gateway.outcomes() == {}


async def test_generation_routes_do_not_pass_the_control_app(lab: Lab, tmp_path: Path) -> None:
    """Python is not in the way of a token."""
    control, engine, gateway = await relay(lab, tmp_path, hold())
    assert (await gateway.post("/rollout/generate")).status == 200
    assert (await gateway.get("/live")).status == 200
    assert len(engine.requests) == 1
    assert control.requests == []


async def test_the_relay_streams(lab: Lab, tmp_path: Path) -> None:
    """A live view arrives event by event."""
    gate = Gate()
    _, _, gateway = await relay(lab, tmp_path, gated(gate, events(3)))
    client = await lab.client(gateway)
    await client.send(request_bytes("/ui/events", None, method="GET"))
    await client.head()
    for event in events(3):
        gate.open()
        assert await client.event() == event
    gate.open()
    assert await client.event() == DONE


async def test_a_large_upload_passes(lab: Lab, tmp_path: Path) -> None:
    """Bodies are relayed, not judged: no JSON is asked for."""
    _, _, gateway = await relay(lab, tmp_path, echo())
    body = bytes(range(256)) * 20_000
    assert (await gateway.post("/rollout/upload", body)).body == body


async def test_a_client_that_leaves_closes_its_control_request(lab: Lab, tmp_path: Path) -> None:
    """A long poll whose client is gone does not stay with the app."""
    control, _, gateway = await relay(lab, tmp_path, hold())
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/rollout/engines?wait_seq=9", None, method="GET"))
        await wait_until(lambda: len(control.requests) == 1, "the app has the request")
    await wait_until(control.requests[0].peer_closed.is_set, "the app sees the end")


async def test_a_control_app_that_is_not_there_is_503(lab: Lab, tmp_path: Path) -> None:
    """The data plane serves on: generation does not need the app."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine, control_socket=str(tmp_path / "nobody.sock"))
    error(await gateway.get("/rollout/health"), 503, "control_unavailable")
    assert (await gateway.post("/generate")).status == 200


async def test_a_control_app_that_comes_back_is_used_again(lab: Lab, tmp_path: Path) -> None:
    """Restarting the Python side needs no restart of the data plane."""
    control, _, gateway = await relay(lab, tmp_path, one(b"app"))
    assert (await gateway.get("/metrics")).body == b"app"
    await control.kill()
    control_path = tmp_path / "control.sock"
    control_path.unlink(missing_ok=True)
    error(await gateway.get("/metrics"), 503, "control_unavailable")
    await control.__aenter__()
    assert (await gateway.get("/metrics")).body == b"app"
