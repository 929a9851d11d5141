"""What a process on this machine uses, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path


class ProcessUsage:
    """Memory and CPU of process ``pid``."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)

    def resident_bytes(self) -> int:
        """What it holds in memory now."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most it held in memory since its start or the last ``forget_peak``."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Let the peak begin anew with what it holds now."""
        (self._folder / "clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, in the program and in the kernel for it."""
        # The name (second field) may hold spaces, but its parenthesis is the last one.
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith(f"{name}:")]
        return int(line.split()[1]) * 1024
