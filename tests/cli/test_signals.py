"""Signals end ``trimtab`` in order at every moment of its life: no traceback, no engine left, however many come."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import Result, Serving, serving, up
from tests.cli.test_serve import NOBODY
from tests.cli.test_up import config, engine_processes

if TYPE_CHECKING:
    from pathlib import Path

_AT_IMPORT = """
import importlib.abc, os, sys

module, number = sys.argv[1], int(sys.argv[2])
sys.argv[:3] = ["trimtab"]

class Signals(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Signals())
from trimtab.cli import main
main()
"""
"""The console script, which gets a signal the moment it is about to import a module."""


def signalled_at(module: str, number: signal.Signals, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``trimtab ARGUMENTS`` with a signal at the import of ``module``."""
    command = [sys.executable, "-c", _AT_IMPORT, module, str(int(number)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def signalled_until_it_ends(served: Serving, number: signal.Signals) -> Result:
    """Send a signal every few milliseconds, for as long as there is somebody to get it; how it ended."""
    process = os.pidfd_open(served.pid)  # no signal can reach a later process of that number

    async def send() -> None:
        with suppress(ProcessLookupError):
            while True:
                signal.pidfd_send_signal(process, number)
                await asyncio.sleep(0.005)

    sending = asyncio.create_task(send())
    try:
        return await served.ended()
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        os.close(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("module", ["trimtab.cli.commands", "click", "trimtab.spec", "trimtab_gateway", "uvloop"])
def test_a_signal_during_the_imports_ends_it_silently(
    tmp_path: Path, module: str, number: signal.Signals, code: int
) -> None:
    """With the code that a shell gives to such an end."""
    ended = signalled_at(module, number, "up", str(config(tmp_path)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_event_loop_runs_is_kept_for_it(tmp_path: Path, number: signal.Signals) -> None:
    """From when there is something to clean up it ends in order."""
    ended = signalled_at(
        "trimtab_manager.launch.local.launcher", number, "up", str(config(tmp_path)), "--json", "--port", "0"
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert f'"signal":"{number.name}"' in ended.stderr.replace(" ", "")
    assert ended.stderr.splitlines()[-1].count('"stopped"') == 1
    assert not engine_processes(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signals_without_end_do_not_kill_a_gateway(number: signal.Signals) -> None:
    """Neither while it stops nor while the interpreter ends."""
    async with serving("--engine", NOBODY) as served:
        ended = await signalled_until_it_ends(served, number)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert '"stopped"' in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("state", ["starting", "ready"])
async def test_signals_without_end_leave_no_engine(tmp_path: Path, state: str) -> None:
    """Whether engines start or serve: they are stopped, and the exit code is that of an orderly end."""
    async with up(config(tmp_path)) as served:
        await (served.logged("engine starts") if state == "starting" else served.said("ready"))
        ended = await signalled_until_it_ends(served, signal.SIGTERM)
        assert not engine_processes(tmp_path)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert '"stopped"' in ended.err
