"""``trimtab serve`` as a user runs it: the ready line, what it serves, its log and its end."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.processes import DEADLINE_S, SCRIPT, run, serving
from tests.support.ports import free_ports
from tests.support.scripts import hold, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.lab import Lab

NOBODY = "127.0.0.1:9"
"""An engine address where nothing listens (the discard port)."""


async def test_it_serves_the_engines_of_its_flags(lab: Lab) -> None:
    """Ready line, one request through each form of the path, capacities in discovery, exit code 0."""
    first, second = await lab.engines(2, one())
    flags = ("--model", "tiny", "--engine", f"{first.authority}=8", "--engine", f"http://{second.authority}")
    async with serving(*flags) as served, httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
        assert served.ready["event"] == "listening"
        urls = [f"http://{first.authority}", f"http://{second.authority}"]
        assert served.ready["roles"] == {"rollout": {"tiny": urls}}
        assert (await served.logged("model is ready"))["pool"] == "rollout/tiny"
        for path in ("/generate", "/rollout/generate"):
            assert (await client.post(path, json={"text": "a"})).status_code == 200
        engines = (await client.get("/engines")).json()["models"]["tiny"]["engines"]
        assert [engine["capacity"] for engine in engines] == [8.0, 1.0]
        served.signal(signal.SIGTERM)
        assert (await served.ended()).code == 0


async def test_it_serves_the_roles_of_its_file(tmp_path: Path, lab: Lab) -> None:
    """The port of the command line replaces the file's."""
    engine = await lab.engine(one())
    path = tmp_path / "trimtab.toml"
    path.write_text(
        f'[gateway]\nport = 1\n[roles.a.models.m]\nengines = ["{engine.authority}"]\n'
        f'[roles.b.models.n]\nengines = ["{NOBODY}"]\n'
    )
    async with (
        serving("--config", str(path)) as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False) as client,
    ):
        await served.logged("model is ready")
        assert (await client.post("/a/generate", json={"text": "a"})).status_code == 200
        assert (await client.post("/b/generate", json={"text": "a"})).status_code == 503
        assert (await client.post("/generate", json={"text": "a"})).status_code == 404
        served.signal(signal.SIGINT)
        assert (await served.ended()).code == 0


async def test_without_any_engine_reachable_it_starts_and_says_so() -> None:
    """``/ready`` is 503, the log names the engine, and the gateway answers."""
    async with serving("--engine", NOBODY) as served, httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
        record = await served.logged("no engine can serve")
        assert (record["level"], record["engines"], record["urls"]) == ("warning", "0/1", [f"http://{NOBODY}"])
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/engines")).json()["models"]["default"]["state"] == "starting"


async def test_the_plain_ready_line_names_address_roles_and_engines() -> None:
    """One line on stderr; stdout stays empty."""
    process = await asyncio.create_subprocess_exec(
        SCRIPT, "serve", "--port", "0", "--engine", NOBODY, "--engine", "127.0.0.1:10",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        while b"listens on http://127.0.0.1:" not in (line := await asyncio.wait_for(process.stderr.readline(), 30)):
            assert line, "it ended without a ready line"
        assert line.endswith(b" for rollout/default (2 engines: 127.0.0.1:9, 127.0.0.1:10)\n")
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"")


async def test_proxies_of_the_environment_are_ignored_and_mentioned(lab: Lab) -> None:
    """Engines are reached directly; the line names the variables and never their values, which may hold passwords."""
    engine = await lab.engine(one())
    env = {"HTTP_PROXY": "http://user:secret@127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "ALL_PROXY": ""}
    async with serving("--engine", engine.authority, env=env) as served:
        record = await served.logged("proxy variables")
        assert {"HTTP_PROXY", "https_proxy"} <= set(record["variables"])
        assert "ALL_PROXY" not in record["variables"]
        assert "secret" not in str(record)
        await served.logged("model is ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_a_running_request_finish(lab: Lab, number: signal.Signals) -> None:
    """It stops accepting, the request gets its answer, the exit code is 0."""
    release = asyncio.Event()

    async def script(exchange: object) -> None:
        await exchange.read_body()  # type: ignore[attr-defined]
        await release.wait()
        await exchange.answer(b'{"text":"late"}')  # type: ignore[attr-defined]

    engine = await lab.engine(script)
    async with serving("--engine", engine.authority) as served, httpx.AsyncClient(trust_env=False) as client:
        await served.logged("model is ready")
        request = asyncio.create_task(client.post(f"{served.url}/generate", json={"text": "a"}))
        await wait_until(lambda: engine.requests, "the request at the engine")
        served.signal(number)
        await served.logged("stopping")
        release.set()
        assert (await request).json() == {"text": "late"}
        assert (await served.ended()).code == 0


async def test_a_second_signal_ends_it_at_once(lab: Lab) -> None:
    """An engine that never answers does not hold it for the five seconds of grace."""
    engine = await lab.engine(hold())
    async with serving("--engine", engine.authority) as served, httpx.AsyncClient(trust_env=False) as client:
        await served.logged("model is ready")
        request = asyncio.create_task(client.post(f"{served.url}/generate", json={"text": "a"}))
        await wait_until(lambda: engine.requests, "the request at the engine")
        started = asyncio.get_running_loop().time()
        served.signal(signal.SIGINT)
        await served.logged("stopping")
        served.signal(signal.SIGINT)
        assert (await served.ended()).code == 0
        assert asyncio.get_running_loop().time() - started < 4.0
        with pytest.raises(httpx.HTTPError):
            await request


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_closed_standard_stream_is_no_place_for_a_socket(closed: str) -> None:
    """Started with stdin, stdout or stderr closed it serves, and ends with code 0 (uvloop would abort the process)."""
    (port,) = free_ports(1)

    def listens() -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", port)) == 0

    command = f'exec "$0" serve --engine {NOBODY} --port {port} {closed}'
    process = await asyncio.create_subprocess_exec("sh", "-c", command, SCRIPT)
    try:
        await wait_until(listens, "the gateway listens", deadline_s=DEADLINE_S)
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/status")).status_code == 200
        process.terminate()
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_shortage_of_descriptors_is_not_the_fault_of_engines(tmp_path: Path, lab: Lab) -> None:
    """Probes that could not be sent are no verdict: the engines stay up."""
    engine = await lab.engine(one(), keep_alive_s=0.01)
    path = tmp_path / "trimtab.toml"
    path.write_text(
        f'[gateway]\nprobe_interval_s = 0.05\n[roles.rollout.models.tiny]\nengines = ["{engine.authority}"]\n'
    )
    async with (
        serving("--config", str(path)) as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False) as http,
    ):
        await served.logged("model is ready")
        pid = served.ready["pid"]
        few = (1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        failed = seen = 0
        shortage_s = 0.5
        # Nothing can be asked during the shortage; on a busy machine it takes longer until enough probes have failed.
        while failed < 4:  # three in a row would take an engine out
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE, few)
            await asyncio.sleep(shortage_s)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            total = (await http.get("/status")).json()["data_plane"]["probe_failures_total"]
            failed, seen, shortage_s = total - seen, total, 2 * shortage_s
        assert (await http.post("/generate", json={"text": "a"})).status_code == 200
        served.signal(signal.SIGTERM)
        assert "suspect" not in (await served.ended()).err


async def test_an_engine_that_dies_is_logged(tmp_path: Path, lab: Lab) -> None:
    """State changes are lines of the log: the engine's, then the model's."""
    engine = await lab.engine(one())
    path = tmp_path / "trimtab.toml"
    path.write_text(
        f'[gateway]\nprobe_interval_s = 0.05\n[roles.rollout.models.tiny]\nengines = ["{engine.authority}"]\n'
    )
    async with serving("--config", str(path)) as served:
        await served.logged("model is ready")
        await engine.kill()
        assert engine.authority in (await served.logged("to down"))["event"]
        assert (await served.logged("no engine can serve"))["engines"] == "0/1"


async def test_a_taken_port_is_a_clear_error() -> None:
    """Exit code 1, the address and the way out; no traceback."""
    async with serving("--engine", NOBODY) as served:
        port = served.url.rpartition(":")[2]
        result = await run("serve", "--engine", NOBODY, "--port", port)
    assert result.code == 1
    assert f"127.0.0.1:{port}" in result.err
    assert "choose another port" in result.err
    assert "Traceback" not in result.err


async def test_keys_come_from_files_and_the_environment(tmp_path: Path) -> None:
    """The lease API asks for the admin key; no key is on the command line, in the log or in the status."""
    (tmp_path / "admin").write_text("admin-s3cr3t\n")
    flags = ("--host", "0.0.0.0", "--admin-key-file", str(tmp_path / "admin"), "--engine", NOBODY)
    async with (
        serving(*flags, env={"TRIMTAB_ENGINE_KEY": "engine-s3cr3t"}) as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False) as client,
    ):
        assert (await served.logged("whoever can connect can run generations"))["host"] == "0.0.0.0"
        assert (await client.get("/v1/router/pools")).status_code == 401
        bearer = {"authorization": "Bearer admin-s3cr3t"}
        assert (await client.get("/v1/router/pools", headers=bearer)).status_code == 200
        status = await run("status", "--url", served.url, "--json")
        served.signal(signal.SIGTERM)
        ended = await served.ended()
    assert ended.code == 0
    assert "s3cr3t" not in ended.err + ended.out + status.out + str(served.ready)


async def test_a_key_on_the_command_line_is_refused() -> None:
    """There is no flag for the key itself: everybody on the machine could read it."""
    result = await run("serve", "--engine", NOBODY, "--admin-key", "s3cr3t")
    assert result.code == 2
    assert "s3cr3t" not in result.err


async def test_it_starts_empty_and_takes_engines_in(lab: Lab) -> None:
    """``--empty`` serves nobody until an engine is registered (B54)."""
    engine = await lab.engine(one())
    async with serving("--empty") as served, httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
        assert served.ready["roles"] == {"rollout": {"default": []}}
        assert (await client.get("/ready")).status_code == 503
        assert (await client.post("/workers", json={"url": f"http://{engine.authority}"})).status_code == 202
        await served.logged("model is ready")
        assert (await client.post("/generate", json={"text": "a"})).status_code == 200
