"""The manager's side of a guarded process: see ``guard.py`` for the other one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trimtab_manager.launch.diagnosis import EVIDENCE_LINES
from trimtab_manager.launch.keys import KeyFile
from trimtab_manager.launch.local.logs import LogFile
from trimtab_manager.launch.local.orphans import kill_marked
from trimtab_manager.launch.types import Exit

_GUARD = Path(__file__).with_name("guard.py")
SERVING = b"S"
WATCH = b"W"
TERMINATE = b"T"
KILL = b"K"


class GuardedProcess:
    """One process of an engine with all that it starts, under a guard. Made in a running event loop.

    Args:
        what: Its name in an ``Exit``.
        command: What to run.
        environment: Its whole environment.
        marks: The part of that by which leftovers are found if the guard itself is killed.
        log: Where it writes.
        keys: The file with its keys, which is there until it is told to be ``SERVING``.
    """

    def __init__(
        self,
        what: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        marks: Mapping[str, str],
        log: LogFile,
        keys: KeyFile | None = None,
    ) -> None:
        self.what = what
        self.command = tuple(command)
        self.log = log
        self.pid: int | None = None
        self.parts: Mapping[int, str] = {}
        """The named processes of a ready engine, whose end is its end."""
        self.exit: Exit | None = None
        self.ended = asyncio.Event()
        """The first process ended; others may be left for a moment."""
        self.gone = asyncio.Event()
        """No process is left, and the guard is collected."""
        self._marks = marks
        self._keys = keys or KeyFile("", b"")
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._reaped = False
        told = (self._keys.path, str(len(self._keys.content)))
        # No code runs between fork and exec of this process, which may have threads: -I and -S keep the guard small.
        self._guard = subprocess.Popen(  # noqa: S603  # no shell; the command is the operator's own
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *told, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.file,
            env=environment,
            bufsize=0,
            # Ctrl-C in a terminal reaches the manager alone, which ends its engines in order.
            start_new_session=True,
        )
        assert self._guard.stdin is not None  # noqa: S101  # for the type checker: both are pipes
        assert self._guard.stdout is not None  # noqa: S101
        self._orders = self._guard.stdin
        self._events = self._guard.stdout
        os.set_blocking(self._events.fileno(), False)
        self.order(self._keys.content)
        self._loop.add_reader(self._events.fileno(), self._read)

    def order(self, order: bytes) -> None:
        """It is ``SERVING``, ``WATCH`` its parts, ``TERMINATE`` its first process, or ``KILL`` all."""
        if not self._orders.closed:
            with suppress(BrokenPipeError):
                self._orders.write(order)

    def kill_guard(self) -> None:
        """For a guard that obeys no order, such as a stopped one: its engine goes with it, the rest is looked for."""
        if not self.gone.is_set():
            self._guard.kill()

    def abandon(self) -> None:
        """Kill it and look no more: for a start that failed half way. The guard needs nobody for that."""
        self.order(KILL)

    @property
    def guard_pid(self) -> int:
        """The guard's process id."""
        return self._guard.pid

    def _read(self) -> None:
        try:
            data = os.read(self._events.fileno(), 4096)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._on_event(line.decode())
        if not data:
            self._on_guard_end()

    def _on_event(self, line: str) -> None:
        event, _, value = line.partition(" ")
        if event == "start":
            self.pid = int(value)
        elif event == "parts":
            words = value.split()
            self.parts = dict(zip(map(int, words[::2]), words[1::2], strict=True))
        elif event == "lost":
            pid, _, name = value.partition(" ")
            self._set_exit(Exit(name, pid=int(pid), evidence=self.log.tail(EVIDENCE_LINES)))
        elif event == "end":
            self._reaped = True
            code = os.waitstatus_to_exitcode(int(value))
            how = {"code": code} if code >= 0 else {"signal": _signal_name(-code)}
            self._set_exit(Exit(self.what, pid=self.pid, evidence=self.log.tail(EVIDENCE_LINES), **how))

    def _on_guard_end(self) -> None:
        """The guard closed its events, which only its own end does."""
        self._loop.remove_reader(self._events.fileno())
        self._events.close()
        self._orders.close()
        code = self._guard.wait()
        if self._reaped:
            self.gone.set()
            return
        if self._keys.path:
            Path(self._keys.path).unlink(missing_ok=True)
        # Somebody killed the guard. The engine's first process goes with it; others have to be looked for.
        evidence = f"its guard (pid {self._guard.pid}) ended with {code}\n{self.log.tail(EVIDENCE_LINES - 1)}"
        self._set_exit(Exit(self.what, pid=self.pid, evidence=evidence))
        self._sweep()

    def _sweep(self) -> None:
        """Kill what the marks find, until they find nothing."""
        sweep = self._loop.run_in_executor(None, lambda: kill_marked(self._marks))
        sweep.add_done_callback(lambda done: self._sweep() if done.result() else self.gone.set())

    def _set_exit(self, ended: Exit) -> None:
        """The first end counts: what follows is the guard's doing."""
        if self.exit is None:
            self.exit = ended
            self.ended.set()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
