"""The processes of the bench: each prints one line when it serves, and ends when its stdin does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PEER_VENV = "bench-lease"
PEER_PYTHON = ROOT / ".venvs" / PEER_VENV / "bin" / "python"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_DEADLINE_S = 20.0


class Served(AbstractContextManager["Served"]):
    """A process that serves until the ``with`` block ends.

    Args:
        name: What to call it.
        module: What it runs.
        args: Its arguments.
        python: The interpreter, by default this one.
        core: The CPU core to stay on, where there are several.
    """

    def __init__(
        self, name: str, module: str, args: Sequence[object], *, python: Path | None = None, core: int | None = None
    ) -> None:
        self.name = name
        command = [str(python or sys.executable), "-m", module, *map(str, args)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if core is not None:
            pin(self._process.pid, core)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} did not start: exit status {self._process.wait()}")
        self.said = json.loads(line)

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds so far of all its threads: in its own code, and in the kernel."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / TICKS_PER_SECOND, int(fields[12]) / TICKS_PER_SECOND

    @property
    def peak_mib(self) -> float:
        """The most memory it ever had resident, in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def pin(pid: int, core: int) -> None:
    """Keep a process on one of the cores it may use; where there is only one, nothing changes."""
    allowed = sorted(os.sched_getaffinity(pid))
    os.sched_setaffinity(pid, {allowed[core % len(allowed)]})
