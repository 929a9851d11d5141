"""A simulated engine as a process of its own, for what can only happen to a process: SIGSTOP, SIGKILL."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

START_S = 30


@dataclass(frozen=True)
class SimProcess:
    """A running engine.

    Attributes:
        url: Where it listens.
        process: Its process.
    """

    url: str
    process: asyncio.subprocess.Process

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return self.process.returncode is not None

    def stop(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """SIGKILL, which a stopped process obeys, too."""
        with suppress(ProcessLookupError):
            self.process.kill()


@asynccontextmanager
async def sim_process(*arguments: str) -> AsyncIterator[SimProcess]:
    """One on a free port, with further arguments of ``trimtab sim-engine``; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "trimtab_manager.sim.cli",
        "--port",
        "0",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), START_S)).decode()
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)$", line)
        assert found is not None, line
        yield SimProcess(found[1], process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
