"""The gateway object: what it starts it stops, whatever happens in between."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.gateway.control.conftest import NOBODY, one_role, two_roles
from tests.support.scripts import hold, one
from tests.support.waiting import wait_until
from trimtab import StartError
from trimtab_gateway import EngineConfig, Gateway

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Start
    from tests.support.lab import Lab


def entries(directory: Path) -> list[Path]:
    """What is in a directory."""
    return list(directory.iterdir())


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files that belongs to this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


async def test_the_control_socket_is_private_and_ends_with_the_gateway(private: Path) -> None:
    """0600 in a 0700 directory: another user of the machine cannot go around the public port."""
    async with Gateway(one_role()):
        (directory,) = entries(private)
        (path,) = entries(directory)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert entries(private) == []


async def test_a_long_temporary_directory_does_not_break_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has 107 bytes at most; batch systems have longer TMPDIRs."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    async with Gateway(one_role()) as gateway, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{gateway.url}/engines")).status_code == 200
        assert entries(deep) == []


async def test_a_taken_port_is_a_start_error_and_nothing_stays(private: Path) -> None:
    """The message names the address and the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = dataclasses.replace(one_role(), port=port)
        with pytest.raises(StartError) as caught:
            async with Gateway(config):
                pytest.fail("two listeners on one port")
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert entries(private) == []


async def test_an_engine_that_appears_later_is_taken_in(serve: Start, lab: Lab) -> None:
    """No engine reachable: the gateway starts, ``/ready`` is 503 with the reason, and 200 once one answers."""
    engine = await lab.engine(one())
    await engine.kill()
    served = await serve(one_role(EngineConfig(engine.authority), probe_interval_s=0.05))
    answer = await served.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["ready"] is False
    assert answer.json()["reason"]
    assert answer.json()["pools"]["rollout/tiny"]["eligible"] == 0
    refused = await served.client.post("/generate", json={"text": "a"})
    assert (refused.status_code, refused.headers["x-trimtab-error"]) == (503, "no_eligible_backend")
    await engine.__aenter__()  # the same port again
    await served.eligible(1)
    assert (await served.get("/ready")).status_code == 200
    assert (await served.client.post("/generate", json={"text": "a"})).status_code == 200


async def test_knobs_of_the_configuration_reach_the_data_plane(serve: Start, lab: Lab) -> None:
    """Body limit, concurrency limit, default model, lenient model: each seen from outside."""
    engine = await lab.engine(hold())
    served = await serve(one_role(EngineConfig(engine.authority), max_body_bytes=1000))
    await served.eligible(1)
    answer = await served.client.post("/generate", content=b'{"text":"' + b"a" * 1000 + b'"}')
    assert (answer.status_code, answer.headers["x-trimtab-error"]) == (413, "body_too_large")
    assert "1000" in answer.json()["error"]["message"]
    answer = await served.client.post("/v1/completions", json={"model": "other"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_model")
    served = await serve(two_roles())
    answer = await served.client.post("/rollout/v1/completions", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_eligible_backend")


async def test_a_shutdown_waits_for_a_running_request(lab: Lab) -> None:
    """The block ends when the request has its answer, not before."""
    release = asyncio.Event()

    async def script(exchange: object) -> None:
        await exchange.read_body()  # type: ignore[attr-defined]
        await release.wait()
        await exchange.answer(b'{"text":"late"}')  # type: ignore[attr-defined]

    engine = await lab.engine(script)
    async with httpx.AsyncClient(trust_env=False) as client:
        async with Gateway(one_role(EngineConfig(engine.authority))) as gateway:
            await wait_until(lambda: gateway.statistics().snapshot.ready, "the engine")
            request = asyncio.create_task(client.post(f"{gateway.url}/generate", json={"text": "a"}))
            await wait_until(lambda: engine.requests, "the request at the engine")
            asyncio.get_running_loop().call_later(0.2, release.set)
        assert (await request).json() == {"text": "late"}


async def test_a_cut_ends_the_grace_and_aborts_at_the_engine(lab: Lab) -> None:
    """A request that would hold the shutdown is ended, and its engine is told."""
    engine = await lab.engine(hold())
    async with httpx.AsyncClient(trust_env=False) as client:
        async with Gateway(one_role(EngineConfig(engine.authority))) as gateway:
            await wait_until(lambda: gateway.statistics().snapshot.ready, "the engine")
            request = asyncio.create_task(client.post(f"{gateway.url}/generate", json={"text": "a"}))
            await wait_until(lambda: engine.requests, "the request at the engine")
            await gateway.cut()
            assert gateway.pool("rollout", "tiny").statistics().outstanding == 0
            assert engine.aborted
        with pytest.raises(httpx.HTTPError):
            await request


def test_a_gateway_that_is_not_entered_has_no_url() -> None:
    """A clear error instead of a guess."""
    with pytest.raises(RuntimeError, match="async with"):
        _ = Gateway(one_role()).url


def test_a_pool_that_is_not_served_is_a_key_error() -> None:
    """Role and model alike: ``StopIteration`` would end a caller's generator without a word."""
    gateway = Gateway(one_role())
    assert gateway.pool("rollout", "tiny").name == "rollout/tiny"
    for role, model in (("nobody", "tiny"), ("rollout", "nobody")):
        with pytest.raises(KeyError, match="nobody"):
            gateway.pool(role, model)


async def test_the_url_of_a_wildcard_address_is_loopback(serve: Start) -> None:
    """``0.0.0.0`` is no address a client can use everywhere."""
    served = await serve(one_role(EngineConfig(NOBODY), host="0.0.0.0", admin_key="k"))
    assert served.gateway.url.startswith("http://127.0.0.1:")
    assert (await served.get("/live")).status_code == 200
