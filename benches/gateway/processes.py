"""Processes of the bench: pinned to a core, measured with all their children, ended with their block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benches.gateway.tools import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STOP_DEADLINE_S = 10.0
_START_DEADLINE_S = 120.0


class Running(AbstractContextManager["Running"]):
    """A process group that runs until the ``with`` block ends.

    Args:
        name: What to call it.
        command: The program and its arguments.
        core: The CPU core that it and its threads stay on, where there are several.
        log: Where its output goes.
    """

    def __init__(self, name: str, command: Sequence[str], *, core: int, log: Path) -> None:
        self.name = name
        self._log = log
        # Pinned before it starts: runtimes count the cores that they may use.
        command = ["taskset", "-c", str(core % (os.cpu_count() or 1)), *command]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_DEADLINE_S)
        for pid in list(self._members()):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def wait_until_it_answers(self, port: int, path: str) -> None:
        """Return when a request to ``port`` is answered with 200."""
        deadline = time.monotonic() + _START_DEADLINE_S
        while not _answers(port, path):
            if self._process.poll() is not None or time.monotonic() > deadline:
                end = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start (exit status {self._process.poll()}):\n{end}")
            time.sleep(0.05)

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far, of all its processes and threads, in their own code and in the kernel."""
        return sum(_ticks(pid) for pid in self._members()) / TICKS_PER_SECOND

    @property
    def rss_mib(self) -> float:
        """Resident memory of all its processes, in MiB."""
        return sum(_resident_kib(pid) for pid in self._members()) / 1024

    def _members(self) -> Iterator[int]:
        # The leader of a session has the number of the session.
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _session(int(entry.name)) == self._process.pid:
                yield int(entry.name)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] != "Z" else 0


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _resident_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    _, found, rest = status.partition("VmRSS:")
    return int(rest.split()[0]) if found else 0


def _answers(port: int, path: str) -> bool:
    body = b'{"text":"x"}' if path == "/generate" else b""
    method = "POST" if body else "GET"
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nX-SMG-Routing-Key: first\r\n"
    request = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(request)
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()
