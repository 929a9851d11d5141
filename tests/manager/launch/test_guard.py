"""B18: whatever ends an engine or its manager, no process of the engine is left two seconds later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.manager.launch.conftest import request
from tests.support.fake_sglang import write_fake
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab_manager.launch.local import LocalLauncher

    MakeLauncher = Callable[..., LocalLauncher]

GONE_S = 2.0

_MANAGER = """
import asyncio, os, sys
from pathlib import Path
from tests.manager.launch.conftest import request
from trimtab_manager.launch.local import LocalLauncher

async def main():
    launcher = LocalLauncher(Path(sys.argv[2]), python=sys.argv[1])
    await launcher.launch(request(behave="family", file=sys.argv[3]))
    # A fork, as a data loader makes one, inherits the pipes to the guards and outlives the manager.
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def alive(pids: Path) -> list[int]:
    """Processes of the family that live; a zombie is dead."""
    found = []
    for pid in map(int, pids.read_text().split()):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


@contextmanager
def unrelated() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, which must live through it all."""
    with subprocess.Popen([sys.executable, "-IS", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        assert process.poll() is None
        process.kill()


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A manager with an engine; its fork ends with the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as manager:
        try:
            assert manager.stdout is not None
            assert manager.stdout.readline() == "up\n"
            yield manager
        finally:
            manager.kill()
            manager.communicate("")


async def gone(pids: Path) -> None:
    """Wait until no process of the family is left."""
    await wait_until(lambda: not alive(pids), f"the processes of {pids} are gone", deadline_s=GONE_S)


@pytest.mark.parametrize("victim", ["parent", "guard", "nobody"])
async def test_b18_no_process_outlives_its_engine(make_launcher: MakeLauncher, tmp_path: Path, victim: str) -> None:
    """Parent, child, orphaned grandchild and one in another session end with the parent, the guard, or a stop."""
    pids = tmp_path / "pids"
    with unrelated():
        engine = await make_launcher().launch(request(behave="family", file=str(pids)))
        assert len(alive(pids)) == 4
        if victim == "parent":
            os.kill(engine.facts["pids"][0], signal.SIGKILL)
        elif victim == "guard":
            os.kill(engine.facts["guards"][0], signal.SIGKILL)
        else:
            await engine.stop(1)
            assert not alive(pids)
        await gone(pids)
        ended = engine.exit()
    assert ended is not None
    if victim == "guard":
        assert "its guard" in ended.evidence
        assert "ended with -9" in ended.evidence


@pytest.mark.slow
async def test_a_guard_that_was_stopped(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """It obeys no order, so it is killed, and what it guarded is looked for."""
    pids = tmp_path / "pids"
    engine = await make_launcher().launch(request(behave="family", file=str(pids)))
    os.kill(engine.facts["guards"][0], signal.SIGSTOP)
    await engine.stop(0)
    assert not alive(pids)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_b18_no_engine_outlives_its_manager(tmp_path: Path, number: signal.Signals) -> None:
    """Not even when a fork of the manager lives on and holds the pipe that the guard watches."""
    pids = tmp_path / "pids"
    command = [sys.executable, "-c", _MANAGER, write_fake(tmp_path), str(tmp_path / "logs"), str(pids)]
    with unrelated(), running(command) as manager:
        assert len(alive(pids)) == 4
        manager.send_signal(number)
        await gone(pids)
