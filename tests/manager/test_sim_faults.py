"""Fault injection, seen from the other end of the connection."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.waiting import wait_until
from trimtab_manager.sim import Fault, SimConfig, running_engine

if TYPE_CHECKING:
    from trimtab_manager.sim import SimServer

BODY = b'{"text":"abc","stream":%b,"sampling_params":{"max_new_tokens":8,"temperature":0,"ignore_eos":true}}'


async def exchange(sim: SimServer, *, stream: bool = False, path: str = "/generate") -> tuple[bytes, bytes, bool]:
    """Head and body of the answer, and whether the connection ended with a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    body = BODY % (b"true" if stream else b"false")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    received, reset = b"", False
    try:
        while data := await asyncio.wait_for(reader.read(65_536), 20):
            received += data
    except ConnectionResetError:
        reset = True
    finally:
        writer.close()
    head_bytes, _, rest = received.partition(b"\r\n\r\n")
    return head_bytes, rest, reset


def dechunk(raw: bytes) -> tuple[bytes, bool]:
    """The data of a chunked body, and whether it is complete."""
    data = b""
    while raw:
        size, found, rest = raw.partition(b"\r\n")
        if not found:
            return data, False
        length = int(size, 16)
        if length == 0:
            return data, True
        data += rest[:length]
        raw = rest[length + 2 :]
    return data, False


def last_text(data: bytes) -> object:
    """Text of the last event before ``[DONE]``."""
    return json.loads(data.split(b"\n\n")[-3].removeprefix(b"data: "))["text"]


@pytest.mark.parametrize("kind", ["reset", "fin"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_is_cut_after_exactly_so_many_bytes(sim: SimServer, kind: str, stream: bool) -> None:
    """The head is complete, 100 bytes of the body come, then the connection ends; the next request is well."""
    sim.engine.arm(Fault(kind=kind, at_bytes=100, times=1))
    head, body, reset = await exchange(sim, stream=stream)
    assert head.startswith(b"HTTP/1.1 200 OK")
    data, complete = dechunk(body) if stream else (body, False)
    assert (len(data), complete, reset) == (100, False, kind == "reset")
    await wait_until(lambda: sim.engine.statistics().running == 0, "nothing runs")
    assert sim.engine.statistics().disconnects == 0
    head, body, reset = await exchange(sim, stream=stream)
    assert not reset
    assert dechunk(body)[1] if stream else body.endswith(b"}")


@pytest.mark.parametrize("kind", ["reset", "fin"])
async def test_at_byte_zero_there_is_no_head(sim: SimServer, kind: str) -> None:
    """The connection ends instead of an answer."""
    sim.engine.arm(Fault(kind=kind))
    assert await exchange(sim) == (b"", b"", kind == "reset")


@pytest.mark.parametrize("kind", ["reset", "fin"])
async def test_a_short_body_is_cut_at_its_end(sim: SimServer, kind: str) -> None:
    """A stream then lacks its terminating chunk only."""
    sim.engine.arm(Fault(kind=kind, at_bytes=10**6))
    _, body, reset = await exchange(sim, stream=True)
    data, complete = dechunk(body)
    assert data.endswith(b"data: [DONE]\n\n")
    assert (complete, reset) == (False, kind == "reset")


async def test_drip(sim: SimServer) -> None:
    """Every piece is a chunk of its own; together they are the answer."""
    _, plain, _ = await exchange(sim, stream=True)
    sim.engine.arm(Fault(kind="drip", chunk_bytes=7, times=1))
    _, dripped, _ = await exchange(sim, stream=True)
    assert dripped.startswith(b"7\r\n")
    data, complete = dechunk(dripped)
    assert complete
    # Events merge while the writer is slow, but the last one has everything.
    assert last_text(data) == last_text(dechunk(plain)[0])


async def test_hold(sim: SimServer, web: aiohttp.ClientSession) -> None:
    """Nothing comes until the faults are cleared; other paths are well."""
    sim.engine.arm(Fault(kind="hold"))
    task = asyncio.create_task(exchange(sim))
    async with web.get(f"{sim.url}/model_info") as answer:
        assert answer.status == 200
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done
    async with web.delete(f"{sim.url}/sim/faults") as answer:
        assert await answer.json() == {"faults": []}
    assert (await task)[0].startswith(b"HTTP/1.1 200 OK")


async def test_a_held_client_that_leaves_is_a_disconnect(sim: SimServer) -> None:
    """It never reached the engine."""
    sim.engine.arm(Fault(kind="hold"))
    task = asyncio.create_task(exchange(sim))
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await wait_until(lambda: sim.engine.statistics().disconnects == 1, "the disconnect is seen")
    assert sim.engine.statistics().requests_received == 0


async def test_status(sim: SimServer, web: aiohttp.ClientSession) -> None:
    """Answered without the engine, ``times`` often."""
    fault = {"kind": "status", "status": 500, "path": "*", "times": 2}
    async with web.post(f"{sim.url}/sim/faults", json=fault) as answer:
        armed = await answer.json()
    assert armed["faults"][0] | fault == armed["faults"][0]
    for expected in (500, 500, 200):
        async with web.get(f"{sim.url}/model_info") as answer:
            assert answer.status == expected


async def test_a_bad_fault_is_a_400_with_the_rule(sim: SimServer, web: aiohttp.ClientSession) -> None:
    """Nothing is armed."""
    for bad in ({"kind": "explode"}, {"kind": "hold", "when": 1}, {"kind": "hold", "path": 5}, [5], "hold"):
        async with web.post(f"{sim.url}/sim/faults", json=bad) as answer:
            assert answer.status == 400
    assert sim.engine.faults.armed() == []


async def test_delay_of_health(sim: SimServer, web: aiohttp.ClientSession) -> None:
    """A slow health check is a ``delay`` on its path; a wedged one is a ``hold`` there."""
    sim.engine.arm(Fault(kind="delay", path="/health", delay_s=0.01, times=1))
    sim.engine.arm(Fault(kind="hold", path="/health"))
    async with web.get(f"{sim.url}/health") as answer:
        assert answer.status == 200
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(_get(web, f"{sim.url}/health"), 0.1)
    assert await _get(web, f"{sim.url}/ready") == 200


async def test_wedge(sim: SimServer, web: aiohttp.ClientSession) -> None:
    """A hung scheduler: health fails after its time-out, what needs the scheduler hangs, the rest answers."""
    sim.engine.arm(Fault(kind="wedge"))
    task = asyncio.create_task(exchange(sim))
    assert await _get(web, f"{sim.url}/health") == 503
    assert await _get(web, f"{sim.url}/ready") == 503
    assert await _get(web, f"{sim.url}/model_info") == 200
    assert await _get(web, f"{sim.url}/v1/loads") == 200
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(_get(web, f"{sim.url}/server_info"), 0.1)
    assert not task.done()
    sim.engine.disarm()
    assert (await task)[0].startswith(b"HTTP/1.1 200 OK")
    assert await _get(web, f"{sim.url}/health") == 200


@pytest.mark.parametrize("at", [0, 50])
async def test_crash(at: int) -> None:
    """On arrival or within the body; the engine is dead."""
    config = SimConfig(time_scale=0, faults=(Fault(kind="crash", at_bytes=at, path="/generate"),))
    async with running_engine(config) as sim:
        head, body, _ = await exchange(sim)
        assert len(body) == at
        assert bool(head) == bool(at)
        assert (await sim.crashed).startswith(f"injected fault: crash at byte {at} of /generate")


@pytest.mark.parametrize("again", [False, True])
async def test_fin_idle(sim: SimServer, again: bool) -> None:
    """The connection closes after the answer, unless another request begins on it first."""
    sim.engine.arm(Fault(kind="fin_idle", path="/ready", delay_s=0.2, times=1))
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    request = b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n"
    writer.write(request)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
    if again:
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(), 0.4)
    else:
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def _get(web: aiohttp.ClientSession, url: str, **options: Any) -> int:
    async with web.get(url, **options) as answer:
        return answer.status
