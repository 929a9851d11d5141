"""A program in the place of an interpreter that has SGLang: it takes SGLang's flags, serves ``/health`` and behaves.

How it behaves is the flag ``--behave``, so a test says it in ``server_args``. It imports little: it is up in 0.1 s.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


def write_fake(folder: Path) -> str:
    """An executable for ``LocalLauncher(python=...)``; its path."""
    path = folder / "fake-python"
    path.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
    path.chmod(0o755)
    return str(path)


def flag(name: str, default: str = "") -> str:
    """The value of ``--name``."""
    return sys.argv[sys.argv.index(f"--{name}") + 1] if f"--{name}" in sys.argv else default


def say(text: str) -> None:
    """Write a line to the log at once."""
    os.write(1, f"{text}\n".encode())


def serve(status: int = 200) -> NoReturn:
    """Answer every request with ``status``, one at a time, until a signal."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((flag("host"), int(flag("port"))))
        server.listen(64)
        say("listening")
        while True:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 %d -\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)


def family(pids: Path) -> None:
    """Have a child, a grandchild whose parent is gone, and one of those in a session of its own; note their pids."""
    pids.write_text(f"{os.getpid()}\n")
    for session in (False, True):
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            if session:
                os.setsid()
            stay(pids)
        os.wait()
    if os.fork() == 0:
        stay(pids)
    while len(pids.read_text().split()) < 4:
        time.sleep(0.005)


def stay(pids: Path) -> NoReturn:
    """Be there, deaf to every polite signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with pids.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        signal.pause()


def trace() -> None:
    """End as a model that does not load does."""
    say('Traceback (most recent call last):\n  File "model.py", line 7\nValueError: no such model')
    sys.exit(1)


def killed() -> None:
    """End as a process does that took too much memory."""
    say("loading weights")
    os.kill(os.getpid(), signal.SIGKILL)


def deaf() -> None:
    """Never be healthy."""
    say("loading weights")
    serve(503)


def node_1_dies() -> None:
    """Be the head that waits for the others, or the one that does not come."""
    if flag("node-rank") == "1":
        say("NCCL error: peer")
        sys.exit(3)
    stay(Path(os.devnull))


def port_taken_once() -> None:
    """Find the port in use, the first time."""
    note = Path(flag("file"))
    if not note.exists():
        note.write_text(flag("port"))
        say("OSError: [Errno 98] Address already in use")
        sys.exit(1)


def stubborn() -> None:
    """Ignore SIGTERM, as SGLang does when it is paused with a request."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def shows() -> None:
    """Write down arguments and environment, and print the configuration file."""
    Path(flag("file")).write_text("\0".join([*sys.argv, *(f"{name}={value}" for name, value in os.environ.items())]))
    if "--config" in sys.argv:
        say(Path(flag("config")).read_text())


def chatty() -> None:
    """Write a long log."""
    say("\n".join(f"line {number}" for number in range(1000)))


def parts() -> None:
    """Have a scheduler whose end nobody here notices; write down its pid."""
    if (pid := os.fork()) == 0:
        os.execv("/bin/sleep", ["sglang::scheduler_TP0", "60"])
    Path(flag("file")).write_text(str(pid))


BEHAVIOURS: dict[str, Callable[[], None]] = {
    "serve": lambda: None,
    "trace": trace,
    "killed": killed,
    "deaf": deaf,
    "node 1 dies": node_1_dies,
    "port taken once": port_taken_once,
    "stubborn": stubborn,
    "family": lambda: family(Path(flag("file"))),
    "shows": shows,
    "chatty": chatty,
    "parts": parts,
    "silent": lambda: stay(Path(os.devnull)),
}

if __name__ == "__main__":
    BEHAVIOURS[flag("behave", "serve")]()
    serve()
