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

    from trimtab_manager.launch.local import LocalLauncher

    MakeLauncher = Callable[..., LocalLauncher]

CASES = {
    "trace": r"policy/0 \(generation 1\) did not start: main \(pid \d+\) exited with code 1 after [\d.]+ s",
    "killed": r"did not start: main \(pid \d+\) ended by SIGKILL after [\d.]+ s. .*for want of memory: see dmesg",
    "deaf": r"did not start: it was not healthy within 1\.\d s; GET /health last said: 503. .*raise the start deadline",
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
async def test_b20_a_start_that_fails(make_launcher: MakeLauncher, behave: str) -> None:
    """Four causes, four messages; each with exit, elapsed time, command, ports and the log's end."""
    started = time.monotonic()
    with pytest.raises(LaunchError, match=CASES[behave]) as raised:
        await make_launcher().launch(
            request(
                behave=behave, nodes=2 if behave.startswith("node") else 1, deadline_s=1.0 if behave == "deaf" else 60
            )
        )
    assert time.monotonic() - started < (3.0 if behave == "deaf" else 2.0)
    message = str(raised.value)
    assert LOGS[behave] in message
    assert "-m sglang.launch_server --model-path models/tiny" in message
    assert "\n  ports: " in message
    assert "\n  logs: " in message
    assert [name for name, pattern in CASES.items() if re.search(pattern, message)] == [behave]


async def test_a_command_that_cannot_run(make_launcher: MakeLauncher) -> None:
    """The interpreter is not there: exit code 127, and the system's word for it."""
    with pytest.raises(LaunchError, match=r"(?s)code 127.*cannot execute /no/such/python: No such file or directory"):
        await make_launcher(python="/no/such/python").launch(request())


async def test_only_the_end_of_a_long_log_is_shown(make_launcher: MakeLauncher) -> None:
    """Fifty lines."""
    engine = await make_launcher().launch(request(behave="chatty"))
    assert engine.log_tail().splitlines() == [*(f"line {n}" for n in range(951, 1000)), "listening"]
    assert engine.log_tail(1) == "listening"
