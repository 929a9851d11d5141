"""``trimtab up`` as a user runs it: engines as processes, one address, and nothing left when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import Serving, run, up
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MARK = "TRIMTAB_TEST_MARK"


def config(tmp_path: Path, *, replicas: int = 2, model: str = "", manager: str = "", gateway: str = "") -> Path:
    """A file with one model on simulated engines; every process of it carries the mark of this test."""
    path = tmp_path / "trimtab.toml"
    path.write_text(
        f"[gateway]\n{gateway}\n"
        f'[manager]\nlog_dir = "{tmp_path}/logs"\nhealth_interval_s = 0.2\nrestart_backoff_s = 0.1\n'
        f"stop_grace_s = 5\n{manager}\n"
        f'[roles.rollout.models.policy]\nmodel_path = "sim://weights/0"\nweight_source = "trainer"\n{model}\n'
        f'env_vars = {{ {MARK} = "{tmp_path}" }}\n'
        f'engine_groups = [{{ name = "main", replicas = {replicas}, engine = "sim", server_args = '
        "{ time-scale = 0.05 } }]\n"
    )
    return path


def engine_processes(tmp_path: Path) -> list[int]:
    """Every living process that carries the mark, wherever in the process tree it is."""
    mark = f"{MARK}={tmp_path}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


async def gone(tmp_path: Path) -> None:
    """Wait until no engine process is left."""
    await wait_until(lambda: not engine_processes(tmp_path), "no engine process is left", deadline_s=15)


async def generate(client: httpx.AsyncClient, session: str) -> dict[str, Any]:
    """One generation; the gateway's facts about it."""
    answer = await client.post(
        "/generate",
        json={"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}},
        headers={"x-trimtab-session": session},
    )
    assert answer.status_code == 200, answer.text
    return {"engine": answer.headers["x-trimtab-backend"], "version": answer.headers.get("x-trimtab-weight-version")}


async def discovered(
    client: httpx.AsyncClient, is_it: Callable[[list[dict[str, Any]]], bool], deadline_s: float = 30
) -> dict[str, Any]:
    """The discovery document, once its engines are as wanted."""
    ends = asyncio.get_running_loop().time() + deadline_s
    while True:
        document: dict[str, Any] = (await client.get("/engines")).json()
        if is_it(document["models"]["policy"]["engines"]):
            return document
        assert asyncio.get_running_loop().time() < ends, document
        await client.get("/engines", params={"wait_seq": document["snapshot_seq"], "wait_ms": 1000})


def client_of(served: Serving) -> httpx.AsyncClient:
    """A client of its gateway."""
    return httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60)


async def test_it_starts_engines_serves_them_and_leaves_nothing_on_sigint(tmp_path: Path) -> None:
    """It listens before the engines are up, says how many came, and Ctrl-C ends all of it with exit code 0."""
    async with up(config(tmp_path)) as served:
        async with client_of(served) as client:
            assert (await client.get("/ready")).status_code == 503
            started = await served.said("started")
            assert (started["model"], started["up"], started["engines"]) == ("rollout/policy", 2, 2)
            assert (await served.said("ready"))["url"] == served.url
            assert (await client.get("/ready")).status_code == 200
            engines = {(await generate(client, f"s{number}"))["engine"] for number in range(4)}
            assert engines == {"policy/0", "policy/1"}
        assert {path.name for path in (tmp_path / "logs" / "policy").iterdir()} == {"0.g1.log", "1.g1.log"}
        served.signal(signal.SIGINT)
        ended = await served.ended()
        assert ended.code == 0, ended.err
        assert not engine_processes(tmp_path)


async def test_sigkill_leaves_no_engine(tmp_path: Path) -> None:
    """Nobody cleans up, and still nothing outlives it."""
    async with up(config(tmp_path)) as served:
        await served.said("ready")
        assert engine_processes(tmp_path)
        served.signal(signal.SIGKILL)
        await served.ended()
        await gone(tmp_path)


async def test_a_second_signal_ends_a_start_at_once(tmp_path: Path) -> None:
    """Also engines that only just started are gone."""
    async with up(config(tmp_path, replicas=3)) as served:
        await served.logged("engine starts")
        served.signal(signal.SIGTERM)
        await served.logged("stopping")
        served.signal(signal.SIGTERM)
        assert (await served.ended()).code == 0
        assert not engine_processes(tmp_path)


async def test_a_killed_engine_is_replaced(tmp_path: Path) -> None:
    """Its sessions go on with the other one meanwhile; the new incarnation moves the topology."""
    async with up(config(tmp_path)) as served, client_of(served) as client:
        await served.said("ready")
        before = await discovered(client, lambda engines: len(engines) == 2)
        victim = before["models"]["policy"]["engines"][0]
        port = victim["base_url"].rsplit(":", 1)[1]
        os.kill(_listener(engine_processes(tmp_path), port), signal.SIGKILL)
        await served.logged("died")
        assert (await generate(client, "s"))["engine"] in {"policy/0", "policy/1"}
        after = await discovered(
            client,
            lambda engines: (
                [each["state"] for each in engines] == ["ready", "ready"]
                and victim["base_url"] not in {each["base_url"] for each in engines}
            ),
        )
        assert after["epoch"] == before["epoch"]
        assert after["topology_revision"] > before["topology_revision"]


async def test_the_fleet_is_controlled_through_the_gateway(tmp_path: Path) -> None:
    """Sleep, wake, pause, continue, drain, update: rows per engine, and 503 with the state meanwhile."""
    async with up(config(tmp_path)) as served, client_of(served) as client:
        await served.said("ready")

        async def asked(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            answer = await client.post(path, json=body or {})
            assert answer.status_code == 200, answer.text
            document: dict[str, Any] = answer.json()
            assert [row["engine"] for row in document["engines"]] in (["policy/0", "policy/1"], ["policy/0"])
            return document

        async def state() -> tuple[int, str | None]:
            answer = await client.post("/generate", json={"text": "a", "sampling_params": {"max_new_tokens": 1}})
            return answer.status_code, None if answer.status_code == 200 else answer.json()["error"]["detail"]["state"]

        assert {row["state"] for row in (await asked("/sleep"))["engines"]} == {"sleeping"}
        assert await state() == (503, "sleeping")
        assert {row["state"] for row in (await asked("/wake"))["engines"]} == {"ready"}
        assert await state() == (200, None)
        await asked("/pause", {"mode": "retract"})
        assert (await state())[0] == 503
        await asked("/continue")
        assert await state() == (200, None)
        await asked("/drain", {"engine": "policy/0"})
        assert {(await generate(client, f"d{number}"))["engine"] for number in range(4)} == {"policy/1"}
        await asked("/undrain", {"engine": "policy/0"})
        await asked("/flush")
        updated = await asked("/update_weights/from_disk", {"path": "sim://weights/1", "version": 1})
        assert updated["weight_version"] == 1
        assert (await generate(client, "s"))["version"] == "1"


async def test_the_shell_scales_the_fleet(tmp_path: Path) -> None:
    """One engine more, which gets requests; then one, the first; a group that is not there is one message."""
    async with up(config(tmp_path, replicas=1, model="elastic_enabled = true")) as served, client_of(served) as client:
        await served.said("ready")
        grown = await run("scale", "2", "--json", "--url", served.url)
        assert grown.code == 0, grown.err
        assert [row["engine"] for row in json.loads(grown.out)["engines"]] == ["policy/1"]
        assert {(await generate(client, f"s{number}"))["engine"] for number in range(4)} == {"policy/0", "policy/1"}
        assert (await run("scale", "1", "--group", "main", "--url", served.url)).code == 0
        assert {(await generate(client, f"t{number}"))["engine"] for number in range(4)} == {"policy/0"}
        refused = await run("scale", "2", "--group", "mian", "--url", served.url)
        assert refused.code == 1
        assert "mian" in refused.err


async def test_an_engine_that_cannot_start_is_said_so_with_its_log(tmp_path: Path) -> None:
    """Where nothing is replaced, it is the end: exit code 1, the command, its exit and its output; nothing is left."""
    path = config(tmp_path, model="fault_tolerance_enabled = false")
    path.write_text(path.read_text().replace("time-scale = 0.05", "no-such-flag = 1"))
    ended = await run("up", str(path), "--port", "0")
    assert ended.code == 1
    for part in ("policy/", "exited with code 2", "no-such-flag", "--port"):
        assert part in ended.err
    assert not engine_processes(tmp_path)


async def test_a_taken_port_of_the_gateway_starts_no_engine(tmp_path: Path) -> None:
    """The message names the address."""
    (port,) = free_ports(1)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        ended = await run("up", str(config(tmp_path)), "--port", str(port))
    assert ended.code == 1
    assert f"127.0.0.1:{port}" in ended.err
    assert not (tmp_path / "logs").exists() or not list((tmp_path / "logs").iterdir())


async def test_a_bad_file_is_refused_as_check_refuses_it(tmp_path: Path) -> None:
    """Exit code 2, one message, nothing started."""
    path = config(tmp_path, model="weight_sourc = 1")
    ended, checked = await run("up", str(path)), await run("check", str(path))
    assert ended.code == checked.code == 2
    assert ended.err == checked.err
    assert "weight_source" in ended.err


def _listener(pids: list[int], port: str) -> int:
    """The engine process whose command line has ``port``."""
    commands = {pid: (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0") for pid in pids}
    return next(pid for pid, command in commands.items() if port.encode() in command and b"-m" in command)
