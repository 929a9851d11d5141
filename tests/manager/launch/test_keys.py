"""The file with an engine's keys outlives neither the start of the engine nor the end of its guard or manager."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.manager.launch.conftest import request
from tests.support.fake_sglang import write_fake
from tests.support.waiting import wait_until
from trimtab_manager.launch.local.guard import parent_of_each
from trimtab_manager.launch.local.orphans import MANAGER_VARIABLE, marked, process_identity
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab_manager.launch.local import LocalLauncher

    MakeLauncher = Callable[..., LocalLauncher]

_MANAGER = """
import asyncio, sys
from pathlib import Path
from tests.manager.launch.conftest import request
from trimtab_manager.launch.local import LocalLauncher

launcher = LocalLauncher(Path(sys.argv[2]), python=sys.argv[1])
asyncio.run(launcher.launch(request(behave="silent", api_key="s3cret")))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this test and of the processes that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def content(temporary: Path) -> list[tuple[int, str]]:
    """Mode and text of what is there."""
    return [(stat.S_IMODE(file.stat().st_mode), file.read_text()) for file in temporary.iterdir()]


async def written(temporary: Path) -> None:
    """Wait until the key is there, for its owner only."""
    await wait_until(lambda: content(temporary) == [(0o600, 'api-key: "s3cret"\n')], "a file with the key")


@pytest.mark.slow
async def test_a_manager_that_is_killed_while_an_engine_starts_leaves_no_key(tmp_path: Path, temporary: Path) -> None:
    """The guard removes it, and ends the engine."""
    command = [sys.executable, "-c", _MANAGER, write_fake(tmp_path), str(tmp_path / "logs")]
    mark = {"TRIMTAB_TEST_MARK": str(tmp_path)}
    manager = await asyncio.create_subprocess_exec(*command, env={**os.environ, **mark})
    try:
        await written(temporary)
    finally:
        manager.kill()
        await manager.wait()
    await wait_until(lambda: not content(temporary), "no file is left")
    await wait_until(lambda: not marked(mark), "no process is left")


async def test_a_guard_that_is_killed_leaves_no_key(make_launcher: MakeLauncher, temporary: Path) -> None:
    """Its manager removes it."""
    launch = asyncio.ensure_future(make_launcher().launch(request(behave="silent", api_key="s3cret")))
    await written(temporary)
    own = marked({MANAGER_VARIABLE: process_identity(os.getpid()) or ""})
    parents = parent_of_each()
    (guard,) = (pid for pid in own if parents.get(pid) == os.getpid())
    os.kill(guard, signal.SIGKILL)
    with pytest.raises(LaunchError, match="its guard"):
        await launch
    assert not content(temporary)


async def test_a_start_that_is_cancelled_leaves_no_key(make_launcher: MakeLauncher, temporary: Path) -> None:
    """As the rest of it."""
    launch = asyncio.ensure_future(make_launcher().launch(request(behave="silent", api_key="s3cret")))
    await written(temporary)
    launch.cancel()
    with suppress(asyncio.CancelledError):
        await launch
    assert not content(temporary)


async def test_a_place_that_cannot_be_written_to_is_said(
    make_launcher: MakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(LaunchError, match=f"FileNotFoundError: .*{tmp_path}/missing/trimtab-"):
        await make_launcher().launch(request(api_key="s3cret"))
