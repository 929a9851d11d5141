"""B20: why an engine did not start, within two seconds of the event."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.manager.launch.conftest import request
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab_manager.launch.local import LocalLauncher

    MakeLauncher = Callable[..., LocalLauncher]

CASES = {
    "trace": r"policy/0 \(generation 1\) did not start: main \(pid \d+\) exited with code 1 after [\d.]+ s",
    "killed": r"did not start: main \(pid \d+\) ended by SIGKILL after [\d.]+ s. .*for want of memory: see dmesg",
    "deaf": r"did not start: it was not healthy within 2\.\d s; GET /health last said: 503. .*raise the start deadline",
    "node 1 dies": r"did not start: node 1 \(pid \d+\) exited with code 3 after [\d.]+ s",
}
LOGS = {
    "trace": "ValueError: no such model",
    "killed": "loading weights",
    "deaf": "listening",
    "node 1 dies": "NCCL error",
}


@pytest.mark.slow
@pytest.mark.parametrize("behave", CASES)
async def test_b20_a_start_that_fails(make_launcher: MakeLauncher, tmp_path: Path, behave: str) -> None:
    """Four causes, four messages; each with exit, elapsed time, command, ports and the log's end."""
    nodes, deadline_s = (2 if behave == "node 1 dies" else 1), (2.0 if behave == "deaf" else 60.0)
    started = time.time()
    with pytest.raises(LaunchError, match=CASES[behave]) as raised:
        await make_launcher().launch(request(behave=behave, nodes=nodes, deadline_s=deadline_s))
    # The fakes write their last line and end.
    event = started + deadline_s if behave == "deaf" else last_written(tmp_path / "logs")
    assert time.time() - event < 2.0
    message = str(raised.value)
    assert LOGS[behave] in message
    assert "-m sglang.launch_server --model-path models/tiny" in message
    assert "\n  ports: " in message
    assert "\n  logs: " in message
    assert [name for name, pattern in CASES.items() if re.search(pattern, message)] == [behave]


def last_written(folder: Path) -> float:
    """When the last line of any log was written, in seconds of the wall clock."""
    return max(file.stat().st_mtime for file in folder.rglob("*.log"))


async def test_a_command_that_cannot_run(make_launcher: MakeLauncher) -> None:
    """The interpreter is not there: exit code 127, and the system's word for it."""
    with pytest.raises(LaunchError, match=r"(?s)code 127.*cannot execute /no/such/python: No such file or directory"):
        await make_launcher(python="/no/such/python").launch(request())


async def test_only_the_end_of_a_long_log_is_shown(make_launcher: MakeLauncher) -> None:
    """Fifty lines."""
    engine = await make_launcher().launch(request(behave="chatty"))
    assert engine.log_tail().splitlines() == [*(f"line {n}" for n in range(951, 1000)), "listening"]
    assert engine.log_tail(1) == "listening"
