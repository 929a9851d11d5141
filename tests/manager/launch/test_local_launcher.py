"""``LocalLauncher``: engines of both kinds come up, and go."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.manager.launch.conftest import request
from tests.support.waiting import wait_until
from trimtab_manager.launch.types import LaunchError, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab_manager.launch.local import LocalLauncher

    MakeLauncher = Callable[..., LocalLauncher]


def refuses(url: str) -> bool:
    """Whether nothing listens there."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def content(path: Path) -> tuple[int, str] | None:
    """Mode of a file and the keys in it, which the fake prints as SGLang does; None if it is gone."""
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return mode, "\n".join(re.findall(".*api-key.*", file.read()))
    except FileNotFoundError:
        return None


@pytest.mark.slow
async def test_a_simulated_engine_comes_up_and_goes(make_launcher: MakeLauncher) -> None:
    """It serves under its name and key; a stop ends it, with the exit code of an orderly end."""
    engine = await make_launcher().launch(request("sim", api_key="k", server_args={"max_running_requests": 3}))
    headers = {"authorization": "Bearer k"}
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{engine.url}/model_info", headers=headers) as answer:
            assert (await answer.json())["served_model_name"] == "tiny"
        async with client.get(f"{engine.url}/model_info") as answer:
            assert answer.status == 401
    assert engine.exit() is None
    await engine.stop(10)
    ended = engine.exit()
    assert ended is not None
    assert ended.code == 0
    assert refuses(engine.url)


async def test_the_end_of_a_running_engine_is_seen(make_launcher: MakeLauncher) -> None:
    """Without a call: who waits gets the signal's name and the log's end."""
    engine = await make_launcher().launch(request())
    waiting = asyncio.ensure_future(engine.exited())
    os.kill(engine.facts["pids"][0], signal.SIGKILL)
    ended = await asyncio.wait_for(waiting, 2)
    assert (ended.what, ended.signal, ended.code) == ("main", "SIGKILL", None)
    assert ended.evidence.endswith("listening")
    assert engine.exit() == ended


async def test_the_end_of_a_scheduler_is_the_engines_end(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """Also where the server does not notice; a stop, in which the parts end first, is not taken for it."""
    engine = await make_launcher().launch(request(behave="parts", file=str(tmp_path / "pid")))
    scheduler = int((tmp_path / "pid").read_text())
    title = Path(f"/proc/{scheduler}/cmdline")
    await wait_until(lambda: title.read_bytes().startswith(b"sglang::"), "it has its name")
    engine.watch()  # what the launcher asked for may have come before the name
    await wait_until(lambda: engine.facts["parts"] == {str(scheduler): "sglang::scheduler_TP0"}, "it is watched")
    os.kill(scheduler, signal.SIGKILL)
    ended = await asyncio.wait_for(engine.exited(), 2)
    assert (ended.what, ended.pid) == ("sglang::scheduler_TP0", scheduler)
    await engine.stop(0)
    assert engine.exit() == ended
    assert refuses(engine.url)
    other = await make_launcher().launch(request(behave="parts", file=str(tmp_path / "pid")))
    await other.stop(2)
    assert str(other.exit()).endswith("ended by SIGTERM")


async def test_stops_join_and_the_shortest_grace_counts(make_launcher: MakeLauncher) -> None:
    """A server that ignores SIGTERM is killed when its grace is over; a second stop only shortens it."""
    engine = await make_launcher().launch(request(behave="stubborn"))
    started = time.monotonic()
    first = asyncio.ensure_future(engine.stop(60))
    await asyncio.sleep(0)
    await engine.stop(0.2)
    await first
    assert 0.2 <= time.monotonic() - started < 10
    ended = engine.exit()
    assert ended is not None
    assert ended.signal == "SIGKILL"
    assert refuses(engine.url)
    await engine.stop(60)


async def test_a_cancelled_stop_goes_on(make_launcher: MakeLauncher) -> None:
    """Who waited is free at once; the engine ends all the same."""
    engine = await make_launcher().launch(request(behave="stubborn"))
    stop = asyncio.ensure_future(engine.stop(0.2))
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    assert (await asyncio.wait_for(engine.exited(), 10)).signal == "SIGKILL"
    await engine.stop(0)
    assert refuses(engine.url)


async def test_a_cancelled_launch_leaves_nothing(make_launcher: MakeLauncher) -> None:
    """Neither a process (the autouse check) nor a port."""
    seen: list[Progress] = []
    launcher = make_launcher(progress=seen.append, progress_interval_s=0.01)
    launch = asyncio.ensure_future(launcher.launch(request(behave="deaf")))
    await wait_until(lambda: seen, "a line of progress")
    launch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launch
    assert not launcher.statistics().engines


async def test_close_ends_a_launch_that_is_not_ready(make_launcher: MakeLauncher) -> None:
    """The launch fails; later ones are refused."""
    seen: list[Progress] = []
    launcher = make_launcher(progress=seen.append, progress_interval_s=0.01)
    launch = asyncio.ensure_future(launcher.launch(request(behave="deaf")))
    await wait_until(lambda: seen, "a line of progress")
    await launcher.close()
    with pytest.raises(LaunchError, match="policy/0: the launcher was closed while the engine started"):
        await launch
    with pytest.raises(LaunchError, match="the launcher is closed"):
        await launcher.launch(request())


@pytest.mark.slow
async def test_progress_says_how_far_it_is(make_launcher: MakeLauncher) -> None:
    """Every interval: seconds, what /health said, the last line of the log."""
    seen: list[Progress] = []
    launcher = make_launcher(progress=seen.append, progress_interval_s=0.2)
    with pytest.raises(LaunchError):
        await launcher.launch(request(behave="deaf", deadline_s=2.0))
    assert 2 <= len(seen) <= 10
    assert (seen[-1].engine, seen[-1].health, seen[-1].last_line) == ("policy/0", "503", "listening")
    assert str(seen[-1]).startswith("policy/0 is starting: ")


async def test_keys_are_on_no_command_line(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """SGLang reads them from a file of the owner's that is gone once it serves; what is shown of logs is redacted."""
    shown = tmp_path / "shown"
    engine = await make_launcher().launch(
        request(behave="shows", file=str(shown), api_key="s3cret", server_args={"admin_api_key": "t0psecret"})
    )
    words = shown.read_text().split("\0")
    config = Path(words[words.index("--config") + 1])
    await wait_until(lambda: content(config) is None, "the guard removed the keys")
    everything = f"{words} {engine.facts} {engine.log_tail()}"
    assert "s3cret" not in everything
    assert "t0psecret" not in everything
    assert engine.log_tail().splitlines()[:2] == ['api-key: "***"', 'admin-api-key: "***"']
    assert content(Path(engine.facts["logs"][0])) == (0o600, 'api-key: "s3cret"\nadmin-api-key: "t0psecret"')


async def test_the_environment_of_an_engine(
    make_launcher: MakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fast death, no proxy to this host, no GPU that was not assigned, marks of the run; and what the spec adds."""
    monkeypatch.setenv("no_proxy", "corp.example")
    shown = tmp_path / "shown"
    await make_launcher(run_id="run 7").launch(request(behave="shows", file=str(shown), env_vars={"MINE": "1"}))
    words = shown.read_text().split("\0")
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    assert environment["SGLANG_PYSPY_DUMP_BEFORE_CRASH"] == environment["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "0"
    assert environment["no_proxy"] == environment["NO_PROXY"] == "corp.example,127.0.0.1,localhost,::1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert (environment["TRIMTAB_RUN_ID"], environment["TRIMTAB_ENGINE"]) == ("run 7", "policy/0#1")
    assert environment["MINE"] == "1"


async def test_gpus_that_are_not_there(make_launcher: MakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message counts what is free."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    launcher = make_launcher()
    await launcher.launch(request(gpus=1))
    with pytest.raises(LaunchError, match=r"needs 2 GPUs, and 1 of 2 on this host are free \(0: policy/0\)"):
        await launcher.launch(request(engine_id="policy/1", gpus=2))
