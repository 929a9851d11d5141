"""The server around the engine: life cycle, connections, crashes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.waiting import wait_until
from trimtab_manager.sim import SimConfig, SimEngine, SimServer, running_engine

if TYPE_CHECKING:
    from trimtab_manager.sim import SimServer as Server

LONG = {"text": "a", "sampling_params": {"max_new_tokens": 1_000, "ignore_eos": True}}


async def refuses(server: Server) -> bool:
    """Whether a connection is refused."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_several_engines_in_one_process(web: aiohttp.ClientSession) -> None:
    """Each on a port of its own, with weights of its own; gone at the end of the block."""
    config = SimConfig(time_scale=0)
    async with running_engine(config) as one, running_engine(SimConfig(time_scale=0, model_path="sim://b")) as two:
        assert one.port != two.port
        texts = []
        for server in (one, two):
            async with web.post(
                f"{server.url}/generate", json={**LONG, "sampling_params": {"temperature": 0}}
            ) as answer:
                texts.append((await answer.json())["text"])
        assert texts[0] != texts[1]
        assert not await refuses(one)
    assert await refuses(one)
    assert await refuses(two)


async def test_a_taken_port_is_an_os_error() -> None:
    """And nothing of the second server is left."""
    async with running_engine() as server:
        second = SimServer(SimEngine(SimConfig()), port=server.port)
        with pytest.raises(OSError, match=str(server.port)):
            await second.start()


async def test_ipv6() -> None:
    """The URL has brackets."""
    async with running_engine(SimConfig(time_scale=0), host="::1") as server, aiohttp.ClientSession() as web:
        assert server.authority == f"[::1]:{server.port}"
        async with web.get(f"{server.url}/ready") as answer:
            assert answer.status == 200


async def test_stopping_cuts_what_runs(web: aiohttp.ClientSession) -> None:
    """A request in flight does not keep the block open."""
    async with running_engine() as server:
        task = asyncio.create_task(_status(web, f"{server.url}/generate", LONG))
        await wait_until(lambda: server.engine.statistics().running == 1, "it runs")
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_a_crash_drops_everything_at_once(web: aiohttp.ClientSession) -> None:
    """Idle and busy connections; the port refuses; ``crashed`` says why."""
    async with running_engine() as server:
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", server.port)
        busy = asyncio.create_task(_status(web, f"{server.url}/generate", LONG))
        await wait_until(lambda: server.engine.statistics().running == 1, "it runs")
        with pytest.raises(aiohttp.ClientError):
            await _status(web, f"{server.url}/generate", {"input_ids": [320]})
        assert await asyncio.wait_for(server.crashed, 10) == "IndexError: index out of range in self"
        with pytest.raises(aiohttp.ClientError):
            await busy
        assert await idle.read() == b""
        idle_writer.close()
        assert await refuses(server)
        assert server.engine.statistics().crashed == "IndexError: index out of range in self"
        assert server.engine.statistics().disconnects == 0


@pytest.mark.parametrize("body", [{"text": ""}, {"input_ids": [-1]}, {"input_ids": [2**40]}])
async def test_other_prompts_that_kill(web: aiohttp.ClientSession, body: dict[str, object]) -> None:
    """An empty text; ids below and far above the vocabulary."""
    async with running_engine(SimConfig(time_scale=0)) as server:
        with pytest.raises(aiohttp.ClientError):
            await _status(web, f"{server.url}/generate", body)
        assert await asyncio.wait_for(server.crashed, 10)


async def test_disconnects_are_counted_and_free_the_engine(web: aiohttp.ClientSession) -> None:
    """The client's end is seen at once, with and without a stream; complete answers are no disconnects."""
    async with running_engine() as server:
        for stream in (False, True):
            task = asyncio.create_task(_status(web, f"{server.url}/generate", {**LONG, "stream": stream}))
            await wait_until(lambda: server.engine.statistics().running == 1, "it runs")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await wait_until(lambda: server.engine.statistics().running == 0, "it is aborted")
        assert await _status(web, f"{server.url}/model_info", None) == 200
        await wait_until(lambda: server.engine.statistics().disconnects == 2, "both are counted")


async def test_a_pause_happens_although_its_client_left(sim: Server, web: aiohttp.ClientSession) -> None:
    """Control calls run to their end, as in SGLang."""
    sim.engine.scheduler.wedge(wedged=True)
    task = asyncio.create_task(_status(web, f"{sim.url}/pause_generation", {"mode": "in_place"}))
    await wait_until(lambda: sim.engine.admission.paused, "the call is being handled")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    sim.engine.scheduler.wedge(wedged=False)
    await wait_until(lambda: sim.engine.statistics().paused == "in_place", "the engine is paused")


async def test_idle_connections_are_closed_after_the_keep_alive_time(web: aiohttp.ClientSession) -> None:
    """As uvicorn does, which is why a proxy must not keep them longer."""
    async with running_engine(SimConfig(keep_alive_s=0.05)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_a_health_check_fails_after_its_time_out(web: aiohttp.ClientSession) -> None:
    """503 while paused, and ``/ready`` follows until a check succeeds."""
    config = SimConfig(time_scale=0.001, health_interval_s=1, health_timeout_s=20)
    async with running_engine(config) as server:
        await server.engine.pause("in_place")
        assert await _status(web, f"{server.url}/health", None) == 503
        await server.engine.resume_generation()
        assert await _status(web, f"{server.url}/ready", None) == 503
        assert await _status(web, f"{server.url}/health", None) == 200
        assert await _status(web, f"{server.url}/ready", None) == 200


async def test_statistics_over_http(sim: Server, web: aiohttp.ClientSession) -> None:
    """The same frozen object as JSON, with the sessions of the header."""
    async with web.post(f"{sim.url}/generate", json={"text": "a"}, headers={"x-session-id": "s"}) as answer:
        assert answer.status == 200
    async with web.get(f"{sim.url}/sim/statistics") as answer:
        statistics = await answer.json()
    assert statistics["sessions"] == {"s": 1}
    assert statistics["requests_received"] == 1


async def _status(web: aiohttp.ClientSession, url: str, body: object) -> int:
    async with web.request("GET" if body is None else "POST", url, json=body) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/v1/completions"])
async def test_no_choices_at_all_is_a_bad_request(web: aiohttp.ClientSession, path: str) -> None:
    """``n`` below 1 is refused with its value, on every endpoint."""
    body: dict[str, Any] = {"n": 0, "model": "sim", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    if path == "/generate":
        body = {"text": "a", "sampling_params": {"n": 0}}
    async with running_engine(SimConfig(time_scale=0)) as server, web.post(f"{server.url}{path}", json=body) as answer:
        assert answer.status == 400
        assert "n must be at least 1, got 0" in await answer.text()
