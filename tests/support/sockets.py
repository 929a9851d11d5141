"""Sockets that end hard, addresses that refuse, and what this process still holds open."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Iterator

_LISTEN = "0A"
_TIME_WAIT = "06"


def tcp_socket() -> socket.socket:
    """A TCP socket. Named as such, because asyncio sets TCP_NODELAY only where the protocol is not left open.

    Without it an event waits for the acknowledgement of the one before: 40 ms that a test would blame on the gateway.
    """
    return socket.socket(proto=socket.IPPROTO_TCP)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a TCP reset: linger 0 makes close() drop what is queued and send RST."""
    sock: Any = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def refusing_address() -> Iterator[str]:
    """An authority that refuses connections and that nobody else can take meanwhile: bound, never listening."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@contextlib.contextmanager
def silent_address() -> Iterator[str]:
    """An authority whose connects never finish: a listener whose backlog is full of connections nobody accepts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def open_tcp_sockets(ports: Collection[int]) -> list[str]:
    """TCP sockets of this process (Python's and the extension's alike) with one of ``ports`` at either end."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        path = Path("/proc/self/net") / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            near, far = int(local.rsplit(":", 1)[1], 16), int(remote.rsplit(":", 1)[1], 16)
            if inode in inodes and state != _TIME_WAIT and (near in ports or far in ports):
                found.append(f"listening on {near}" if state == _LISTEN else f"{near} -> {far} (state {state})")
    return found


def child_processes() -> set[tuple[int, str]]:
    """Live children of this process, zombies included: ``(pid, command name)``."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile; its children moved to another one
            for pid in (thread / "children").read_text().split():
                with contextlib.suppress(OSError):  # a child that ended and was collected meanwhile
                    found.add((int(pid), Path(f"/proc/{pid}/comm").read_text().strip()))
    return found
