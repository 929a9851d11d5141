"""Real SGLang under ``LocalLauncher``: it comes up, its death is seen at once, a stop leaves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.sglang_cpu.serve import ENVIRONMENT, FLAGS, SWITCHES
from tests.support.sglang_server import START_DEADLINE_S, session_members
from tests.support.waiting import wait_until
from trimtab_manager.launch.local import LocalLauncher
from trimtab_manager.launch.types import LaunchError, LaunchRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.sglang_server import Installation

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(START_DEADLINE_S + 120)]

LAUNCHERS_OWN = ("--host", "--served-model-name")
KEY = "sk-e2e"


def request(model: Path | str, number: int = 0, **fields: Any) -> LaunchRequest:
    """The tiny model on the CPU."""
    arguments: dict[str, Any] = {flag: value for flag, value in FLAGS.items() if flag not in LAUNCHERS_OWN}
    arguments |= dict.fromkeys(SWITCHES, True)
    whole = {"engine_id": f"policy/{number}", "generation": 1, "engine": "sglang", "served_model_name": "tiny"}
    whole |= {"server_args": arguments, "env_vars": ENVIRONMENT, "deadline_s": START_DEADLINE_S}
    return LaunchRequest(**{**whole, "model_path": str(model), **fields})


@asynccontextmanager
async def launching(installation: Installation, folder: Path) -> AsyncIterator[LocalLauncher]:
    """A launcher that ends with the block."""
    launcher = LocalLauncher(folder, python=str(installation.python), stop_grace_s=0)
    try:
        yield launcher
    finally:
        await launcher.close()


def scheduler_of(pid: int) -> int:
    """The process of the server's session that runs the model."""
    for member in session_members(pid):
        with open(f"/proc/{member}/cmdline", "rb") as command:  # noqa: PTH123  # a file of the kernel
            if b"scheduler" in command.read():
                return member
    raise AssertionError(f"no scheduler among {session_members(pid)}")


async def test_real_engines_come_up_and_go(
    sglang_installation: Installation, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Two start at once, with keys from a file. One loses its scheduler: seen within seconds. One is stopped: clean."""
    async with launching(sglang_installation, tmp_path) as launcher:
        model = sglang_installation.models[0]
        killed, stopped = await asyncio.gather(
            launcher.launch(request(model, api_key=KEY)), launcher.launch(request(model, 1))
        )
        async with http.get(f"{killed.url}/model_info", headers={"authorization": f"Bearer {KEY}"}) as answer:
            assert (await answer.json())["served_model_name"] == "tiny"
        async with http.get(f"{killed.url}/model_info") as answer:
            assert answer.status == 401
        assert KEY not in f"{killed.facts} {killed.log_tail(10_000)}"

        pid = killed.facts["pids"][0]
        scheduler = scheduler_of(pid)
        os.kill(scheduler, signal.SIGKILL)
        started = time.monotonic()
        ended = await asyncio.wait_for(killed.exited(), 10)
        assert time.monotonic() - started < 1
        assert (ended.what, ended.pid) == ("sglang::scheduler", scheduler)
        await wait_until(lambda: not session_members(pid), "its whole session is gone", deadline_s=2)

        pid = stopped.facts["pids"][0]
        await stopped.stop(30)
        left = session_members(pid)
        ended_well = stopped.exit()
        assert not left
        assert ended_well is not None
        assert ended_well.code == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{stopped.url}/ready")


async def test_a_model_that_is_not_there(sglang_installation: Installation, tmp_path: Path) -> None:
    """The error has SGLang's own trace."""
    async with launching(sglang_installation, tmp_path) as launcher:
        with pytest.raises(LaunchError, match=r"(?s)main \(pid \d+\) exited with code 1 .*Traceback .*no-such-model"):
            await launcher.launch(request(tmp_path / "no-such-model"))
