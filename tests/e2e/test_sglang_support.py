"""The kit around SGLang itself, on stand-ins for the engine: it never hangs, explains itself, and leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import sglang
from tests.support.sglang_server import (
    REPOSITORY,
    Installation,
    SglangError,
    SglangServer,
    session_members,
    start_servers,
    stop_servers,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Ignores SIGTERM and has a child that does too: SGLang does that while it is paused with a request.
STUBBORN = """
trap '' TERM
sleep 600 &
echo started
while :; do sleep 600; done
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], SglangServer]:
    """Make a server whose interpreter is a shell script."""

    def make(script: str) -> SglangServer:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        return SglangServer(Installation(python, (tmp_path,)), log=tmp_path / "server.log")

    return make


def test_failed_start_shows_the_status_and_the_last_50_lines(stand_in: Callable[[str], SglangServer]) -> None:
    """A server that exits while it starts is reported at once, with its exit status and the end of its log."""
    server = stand_in("seq 1 80; echo no such model; exit 3")
    with pytest.raises(SglangError, match=r"exited with 3 while it started(?s:.*)no such model") as caught:
        start_servers([server])
    lines = str(caught.value).splitlines()
    assert len(lines) == 51
    assert lines[1] == "32"


def test_start_deadline_ends_the_server(stand_in: Callable[[str], SglangServer]) -> None:
    """A server that never answers is given up at the deadline, and is gone afterwards."""
    server = stand_in("exec sleep 600")
    with pytest.raises(SglangError, match="was not healthy after"):
        start_servers([server], deadline_s=0.2)
    assert not server.running()
    assert session_members(server.pid) == []


async def test_stop_ends_a_server_that_ignores_sigterm(stand_in: Callable[[str], SglangServer]) -> None:
    """After the deadline the whole session is killed, children included."""
    server = stand_in(STUBBORN)
    server.start()
    await wait_until(lambda: "started" in server.log.read_text(), "the stand-in runs")
    assert len(session_members(server.pid)) >= 2
    stop_servers([server], term_deadline_s=0.2)
    assert server.exit_status() == -9
    assert session_members(server.pid) == []


async def test_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """When a test run is killed, the kernel takes its servers along."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    program = (
        "import os, pathlib, signal, sys\n"
        "from tests.support.sglang_server import Installation, SglangServer\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "server = SglangServer(Installation(folder / 'python', (folder,)), log=folder / 'server.log')\n"
        "server.start()\n"
        "while b'sleep' not in pathlib.Path(f'/proc/{server.pid}/cmdline').read_bytes(): pass\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(  # noqa: ASYNC221 - it ends by itself within a second
        [sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True, text=True, cwd=REPOSITORY
    )
    assert parent.returncode == -9, parent.stderr
    pid = int(parent.stdout)
    await wait_until(lambda: session_members(pid) == [], "the orphan is gone")


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ({}, pytest.skip.Exception),
        ({"CI": "true"}, pytest.fail.Exception),
        ({"TRIMTAB_REQUIRE_SGLANG": "1"}, pytest.fail.Exception),
    ],
)
def test_absent_environment_skips_locally_and_fails_where_required(
    variables: dict[str, str], outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the environment the message says how to install it; a pipeline cannot pass by skipping."""
    for name in ("CI", "TRIMTAB_REQUIRE_SGLANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(outcome, match=r"python3 tests/sglang_cpu/install\.py"):
        sglang.require_installation(tmp_path / "no-venv")
