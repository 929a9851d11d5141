"""The guard of one engine process: a program that ends the engine when its manager is gone, however it went.

The kernel's parent-death signal alone does not do it: it is bound to the *thread* that started the child, reaches no
grandchild, and setting it needs code between fork and exec, which is unsafe in a process with threads. So the
manager starts this program, which has one thread and imports next to nothing, and this program starts the engine:

* It is a *subreaper*: whatever the engine's processes leave behind, a daemon in a session of its own included, becomes
  a child of the guard. When ``wait`` has no child left, nothing of the engine is left; that is a proof, not a scan.
* It watches a pipe from the manager and the manager's pidfd. Both, since a fork of the manager (a data loader, say)
  keeps the pipe open after the manager died, and since old kernels have no pidfd.
* The engine has the guard as its parent-death signal, set between fork and exec of this one thread. So an engine does
  not outlive a guard that is killed itself.
* When the engine's first process ends, the rest is killed: a server without its main process serves nobody. Once the
  engine is ready that also holds for its schedulers and the like, whose end a main process may never notice.

* It owns the file with the engine's keys, which outlives neither the start nor the manager.

It runs as ``python -I -S guard.py MANAGER_PID KEY_FILE KEY_BYTES COMMAND ...`` with stdin = what goes into the key file
(if there is to be one), then orders, stdout = events, stderr = the engine's log, and the environment of the engine.
Orders are bytes: ``S`` says that the server is up and has read its keys, ``W`` watches the named processes of a ready
engine, ``T`` sends SIGTERM to the engine's first process (SGLang tells its children itself; a signal to all makes them
crash first), ``K`` kills all. Events are lines: ``start PID``, ``parts PID NAME ...`` once they are watched, maybe
``lost PID NAME``, then ``end STATUS`` with the wait status of the first process. It exits when no process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NAMED = "sglang::"
"""How the processes of an SGLang server name themselves: ``sglang::scheduler_TP0``, ``sglang::detokenizer``."""
FIRST_ROUND_MS = 10
LAST_ROUND_MS = 1000
"""Between two rounds of SIGKILL, from and to: whoever forked meanwhile gets it in the next one. The rounds become rarer
because a process that a driver holds can stay for minutes."""


def prctl(option: int, value: int) -> None:
    """A call of prctl; raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def parent_of_each() -> dict[int, int]:
    """Parent of every process there is, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # no import that is not needed: one guard runs per engine
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    # After the command, which may hold spaces and parentheses: state, parent, ...
                    parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended meanwhile
    return parents


def descendants(root: int) -> list[int]:
    """Every process below ``root``."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of_each().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    layer = children.get(root, [])
    while layer:
        found += layer
        layer = [child for pid in layer for child in children.get(pid, [])]
    return found


def kill(pid: int, number: int) -> None:
    """Send a signal; nothing happens if it ended."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def start(command: list[str]) -> int:
    """Fork and exec the engine as leader of a session of its own; its pid."""
    guard = os.getpid()
    # A SIGTERM that comes before exec would find the guard's handler in the child, and be lost. It has to wait.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:  # else the guard ended before the call above
            os.setsid()
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(2, 1)
            os.execvp(command[0], command)  # noqa: S606  # a shell is what nobody wants here
    except OSError as error:
        os.write(2, f"cannot execute {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


class KeyFile:
    """The file with the engine's keys.

    Args:
        path: Where; empty: the engine has no keys.
        size: How many bytes of it come on stdin, ahead of the orders.
    """

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size

    def write(self) -> None:
        """Make it of what comes."""
        content = b""
        while len(content) < self._size and (arrived := os.read(0, self._size - len(content))):
            content += arrived
        if self._path:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(file, content)
            os.close(file)

    def forget(self) -> None:
        """Remove it, if it is there."""
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108  # no import that is not needed, as above


class Guard:
    """The loop of a guard: orders and deaths in, signals and events out."""

    def __init__(self, manager: int, keys: KeyFile, command: list[str]) -> None:
        self._keys = keys
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self._poll = select.poll()
        # A signal interrupts no poll in Python; one byte in this pipe does.
        self._woken, write = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._killing = False
        self._manager = -1
        self._named: dict[int, tuple[int, str]] = {}
        self._watch_manager(manager)
        self._engine: int | None = None
        if not self._killing:
            keys.write()
            self._engine = start(command)
            self._tell(f"start {self._engine}")

    def run(self) -> None:
        """Serve until no process is left."""
        round_ms = FIRST_ROUND_MS
        while self._reap():
            wait_ms = None  # the end of a child is a signal, which is a byte in a pipe
            if self._killing:
                self._keys.forget()
                for pid in descendants(os.getpid()):
                    kill(pid, signal.SIGKILL)
                wait_ms = round_ms
                round_ms = min(2 * round_ms, LAST_ROUND_MS)
            for file, _ in self._poll.poll(wait_ms):
                self._on_ready(file)

    def _watch_manager(self, manager: int) -> None:
        """Watch the orders, the signals and the manager's end; the last by its pidfd, where the kernel has them."""
        with contextlib.suppress(OSError, AttributeError):
            self._manager = os.pidfd_open(manager)
            self._poll.register(self._manager, select.POLLIN)
        # If it is still the parent after that, the pidfd is its own and not that of a later process.
        self._killing = os.getppid() != manager
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def _on_ready(self, file: int) -> None:
        if file == self._woken:
            os.read(file, 4096)
        elif file in (0, self._manager):
            orders = os.read(0, 4096) if file == 0 else b""
            for order in orders:
                self._obey(order)
            if not orders:  # the manager is gone; said once, and looked at no more
                self._killing = True
                self._poll.unregister(file)
        elif file in self._named:  # and not let go by an order of this round
            self._on_lost(*self._named[file])

    def _obey(self, order: int) -> None:
        if order == ord("S"):
            self._keys.forget()
        elif order == ord("W") and not self._killing:
            self._watch_named()
        elif order == ord("T") and self._engine is not None:
            self._unwatch_named()  # in an orderly end they go first
            kill(self._engine, signal.SIGTERM)
        elif order == ord("K"):
            self._killing = True

    def _watch_named(self) -> None:
        """Have the end of every process that calls itself ``sglang::something`` wake the poll."""
        watched = {pid for pid, _ in self._named.values()}
        for pid in set(descendants(os.getpid())) - watched:
            with contextlib.suppress(OSError, AttributeError):
                file = os.pidfd_open(pid)
                # The name is read after the pidfd was taken, so it is that process's.
                with open(f"/proc/{pid}/cmdline", "rb") as title:  # noqa: PTH123  # as above
                    name = title.read(200).split(b"\0")[0].strip().decode(errors="replace")
                if name.startswith(NAMED):
                    self._named[file] = (pid, name.split()[0])
                    self._poll.register(file, select.POLLIN)
                else:
                    os.close(file)
        self._tell(" ".join(["parts", *(f"{pid} {name}" for pid, name in self._named.values())]))

    def _unwatch_named(self) -> None:
        for file in self._named:
            self._poll.unregister(file)
            os.close(file)
        self._named = {}

    def _on_lost(self, pid: int, name: str) -> None:
        self._unwatch_named()
        if self._engine is not None and not self._killing:
            self._tell(f"lost {pid} {name}")
            self._killing = True

    def _on_term(self, *_: object) -> None:
        self._killing = True

    def _reap(self) -> bool:
        """Collect what ended; whether any process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._engine:
                self._engine = None
                self._killing = True
                self._tell(f"end {status}")

    @staticmethod
    def _tell(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody listens any more; the orders' pipe says so too
            os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    key_file = KeyFile(sys.argv[2], int(sys.argv[3]))
    try:
        Guard(int(sys.argv[1]), key_file, sys.argv[4:]).run()
    finally:
        key_file.forget()
