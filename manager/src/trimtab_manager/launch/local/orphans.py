"""Processes that an earlier manager left, found by what their environment says.

Every process of an engine inherits three variables: the run it belongs to, the manager that started it, and its engine.
A process is an orphan of ours if it belongs to our run and its manager is gone. Processes of a manager that lives are
never touched, even of the same run: whoever restarts a manager while the old one runs has two of them.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

RUN_VARIABLE = "TRIMTAB_RUN_ID"
MANAGER_VARIABLE = "TRIMTAB_MANAGER"
ENGINE_VARIABLE = "TRIMTAB_ENGINE"
_PROC = Path("/proc")
_LISTEN = "0A"
_KILL_WAIT_S = 2.0


@dataclass(frozen=True)
class Owner:
    """A process that has a port.

    Attributes:
        pid: Its process id.
        command: Its command line, cut after 200 characters.
        environment: Its environment; empty when it is another user's.
    """

    pid: int
    command: str
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """``pid 17 (python server.py)``."""
        return f"pid {self.pid} ({self.command})"


def marks(run_id: str, engine: str) -> dict[str, str]:
    """The variables that mark the processes of an engine that this process starts.

    Args:
        run_id: The run.
        engine: The incarnation, such as ``policy/0#1``.
    """
    return {RUN_VARIABLE: run_id, MANAGER_VARIABLE: process_identity(os.getpid()) or "", ENGINE_VARIABLE: engine}


def process_identity(pid: int) -> str | None:
    """``pid:start`` with the start in clock ticks since boot, which no later process shares; None if it ended."""
    with suppress(OSError, IndexError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return f"{pid}:{fields[19]}"
    return None


def processes() -> Iterator[int]:
    """Every process id that this process can see."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def environment_of(pid: int) -> dict[str, str]:
    """What it was started with; empty when it ended or is another user's."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def is_orphan(environment: Mapping[str, str], run_id: str) -> bool:
    """Whether a process with this environment belongs to our run, and its manager is gone."""
    if environment.get(RUN_VARIABLE) != run_id:
        return False
    manager = environment.get(MANAGER_VARIABLE, "")
    pid = manager.partition(":")[0]
    return not (pid.isdigit() and process_identity(int(pid)) == manager)


def marked(wanted: Mapping[str, str]) -> list[int]:
    """Processes whose environment has all of ``wanted``, this one left out."""
    own = os.getpid()
    return [pid for pid in processes() if pid != own and wanted.items() <= environment_of(pid).items()]


def kill_marked(wanted: Mapping[str, str], *, deadline_s: float = _KILL_WAIT_S) -> list[int]:
    """SIGKILL to all of them, until none is left or ``deadline_s`` passed; who is left."""
    deadline = time.monotonic() + deadline_s
    while left := _alive(marked(wanted)):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.01)
    return []


def kill_orphans(run_id: str) -> list[int]:
    """End what earlier managers of this run left on this machine; the process ids."""
    own = os.getpid()
    found = [pid for pid in processes() if pid != own and is_orphan(environment_of(pid), run_id)]
    for pid in found:
        kill_group(pid, run_id)
    if found:
        log.warning("ended processes that an earlier manager of run %s left: %s", run_id, found)
    return found


def kill_group(pid: int, run_id: str) -> None:
    """SIGKILL to an orphan and to its process group, if the group is of our run too; waits until it is gone."""
    with suppress(OSError):
        group = os.getpgid(pid)
        if group != os.getpgrp() and (group == pid or is_orphan(environment_of(group), run_id)):
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_WAIT_S
    while _alive([pid]) and time.monotonic() < deadline:
        time.sleep(0.005)


def owners(ports: Iterable[int], among: Iterable[int] | None = None) -> dict[int, Owner | None]:
    """Who listens on these TCP ports; None for a process that this one may not look at.

    Args:
        ports: Those that nobody listens on are left out of the answer.
        among: Look at these processes only; by default at all, which takes long on a busy host.
    """
    inodes = _inodes(set(ports))
    found: dict[int, Owner | None] = dict.fromkeys(inodes.values())
    if not inodes:
        return found
    for pid in processes() if among is None else among:
        with suppress(OSError):
            for link in (_PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    target = os.readlink(link)  # noqa: PTH115  # a Path per descriptor of the machine is slow
                    port = inodes.get(target[8:-1]) if target.startswith("socket:[") else None
                    if port is not None:
                        found[port] = Owner(pid, _command(pid), environment_of(pid))
    return found


def _inodes(ports: set[int]) -> dict[str, int]:
    """Inodes of the listening sockets with these local ports."""
    found = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                port = int(fields[1].rpartition(":")[2], 16)
                if port in ports and fields[3] == _LISTEN:
                    found[fields[9]] = port
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200].strip()
    return "?"


def _alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if process_identity(pid) is not None]
