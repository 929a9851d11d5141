"""``trimtab serve`` at the limits of its machine, as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.processes import serving
from tests.support.client import RawClient
from tests.support.http1 import DONE, request_bytes
from tests.support.scripts import Gate, gated, hold, one
from tests.support.serve import eventually
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Lab

CLIENTS = 400


def command_line(pid: int) -> str:
    """What every user of the machine can read of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text()


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
async def test_400_clients_with_256_descriptors(lab: Lab) -> None:
    """A warning at the start; whoever is let in gets the whole stream, the others 503; no engine is blamed."""
    gate = Gate()
    engine = await lab.engine(gated(gate, []))
    async with serving("--engine", engine.authority, descriptors=256) as served:
        warning = await served.logged("few descriptors")
        assert warning["limit"] == 256
        enough = warning["enough_for_clients"]
        assert 64 <= enough < 128
        await served.logged("model is ready")
        port = int(served.url.rpartition(":")[2])

        async def ask() -> tuple[int, bytes]:
            async with RawClient("127.0.0.1", port) as client:
                await client.send(request_bytes("/generate"))
                head = await client.head()
                return head.status, await client.body(head)

        asking = [asyncio.create_task(ask()) for _ in range(CLIENTS)]
        await wait_until(lambda: sum(task.done() for task in asking) >= CLIENTS - enough, "the others are told")
        await wait_until(lambda: len(engine.requests) >= enough - 8, "whoever is in runs")
        gate.open(CLIENTS)
        answers = await asyncio.gather(*asking)
        done = [body for status, body in answers if status == 200]
        assert len(done) >= enough - 8
        assert set(done) == {DONE}
        assert {status for status, _ in answers} == {200, 503}
        async with httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
            for _ in range(200):  # until those who were served have left
                answer = await client.get("/status")
                if answer.status_code == 200:
                    break
                await asyncio.sleep(0.05)
            status = answer.json()
        (backend,) = status["roles"]["rollout"]["models"]["default"]["engines"]
        assert (backend["health"], backend["failures"]) == ("up", 0)
        served.signal(signal.SIGTERM)
        assert (await served.ended()).code == 0


async def test_idle_clients_do_not_starve_the_others(lab: Lab) -> None:
    """Fewer descriptors than connections that are kept open: new requests are served all the same."""
    engine = await lab.engine(one())
    async with serving("--engine", engine.authority, descriptors=160) as served:
        enough = (await served.logged("few descriptors"))["enough_for_clients"]
        await served.logged("model is ready")
        port = int(served.url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(enough)]
        for connection in idle:
            connection.sendall(request_bytes("/generate"))
            await asyncio.to_thread(connection.recv, 65536)

        async def status() -> int:
            async with httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
                return (await client.post("/generate", json={"text": "a"})).status_code

        try:
            # Room is made once a second: a call that came while all of them were still new has freed nobody.
            await eventually(status, 200, "a place is given up")
        finally:
            for connection in idle:
                connection.close()


async def test_sighup_stops_it(lab: Lab, tmp_path: Path) -> None:
    """A terminal that goes away ends it as SIGTERM does, and its socket is removed."""
    engine = await lab.engine(hold())
    async with serving("--engine", engine.authority, env={"TMPDIR": str(tmp_path)}) as served:
        assert [name[:8] for name in names(tmp_path)] == ["trimtab-"]
        served.signal(signal.SIGHUP)
        assert (await served.ended()).code == 0
    assert names(tmp_path) == []


async def test_secrets_are_shown_nowhere(lab: Lab, tmp_path: Path) -> None:
    """Three keys, wrong and right ones, errors of every kind: no answer, log line, metric or command line has one."""
    engine = await lab.engine(one())
    (tmp_path / "client").write_text("client-s3cr3t\n")
    (tmp_path / "trimtab.toml").write_text(
        f'[gateway]\nclient_key_file = "{tmp_path / "client"}"\n'
        f'[roles.rollout.models.tiny]\nengines = ["{engine.authority}", "127.0.0.1:9"]\n'
    )
    keys = {"TRIMTAB_ADMIN_KEY": "admin-s3cr3t", "TRIMTAB_ENGINE_KEY": "engine-s3cr3t"}
    texts: list[str] = []
    async with (
        serving("--config", str(tmp_path / "trimtab.toml"), env=keys) as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False) as client,
    ):
        await served.logged("model is ready")
        for key in (None, "client-s3cr3t", "admin-s3cr3t", "engine-s3cr3t", "client-s3cr3tx"):
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            for path in ("/", "/status", "/metrics", "/engines", "/v1/models", "/ready", "/v1/router/pools", "/no"):
                answer = await client.get(path, headers=headers)
                texts.append(answer.text + repr(answer.headers))
            for body in (b"{}", b"{", b'{"model":"other"}'):
                answer = await client.post("/generate", content=body, headers=headers)
                texts.append(answer.text + repr(answer.headers))
        texts.append(command_line(served.ready["pid"]))
        texts.append(json.dumps(served.ready))
        served.signal(signal.SIGTERM)
        ended = await served.ended()
        texts += [ended.err, ended.out]
    assert len(engine.requests) == 2
    assert {record.head.get("authorization") for record in engine.requests} == {"Bearer engine-s3cr3t"}
    assert [text for text in texts if "s3cr3t" in text] == []
