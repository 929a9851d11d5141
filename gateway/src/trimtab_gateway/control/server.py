"""Runs the control app on a private Unix socket."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# sockaddr_un holds 108 bytes on Linux, the terminating zero among them.
MAX_SOCKET_PATH_BYTES = 107
# hyper lets a request head of this size through; aiohttp's own limit is smaller and answers in plain text.
_MAX_HEADER_BYTES = 2**18
_PREFIX = "trimtab-"
_SOCKET = "control"
_PRIVATE_MODE = 0o700
_YOUNG_S = 60.0


@asynccontextmanager
async def private_server(app: web.Application) -> AsyncIterator[Path]:
    """Serve ``app`` until the block ends.

    Yields:
        The socket's path: mode 0600 in a directory of mode 0700 that exists only for this block.
    """
    remove_stale_directories()
    directory = _private_directory()
    try:
        path = directory / _SOCKET
        runner = web.AppRunner(
            app,
            access_log=None,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
            path.chmod(0o600)
            await web.SockSite(runner, listener).start()
            yield path
        finally:
            await runner.cleanup()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_stale_directories() -> None:
    """Remove what killed gateways of this user left behind: directories of ours whose socket nobody listens on.

    Young ones are left alone, since they may be those of a gateway that is about to listen.
    """
    for parent in {tempfile.gettempdir(), "/tmp"}:
        for directory in Path(parent).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # gone meanwhile, or not ours to look into
                if _is_stale(directory):
                    shutil.rmtree(directory, ignore_errors=True)


def _is_stale(directory: Path) -> bool:
    facts = directory.lstat()
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and stat.S_IMODE(facts.st_mode) == _PRIVATE_MODE
    if not ours or time.time() - facts.st_mtime < _YOUNG_S or os.listdir(directory) != [_SOCKET]:  # noqa: PTH208 -- names
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(directory / _SOCKET))
        except ConnectionRefusedError:
            return True
    return False


def _private_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(bytes(directory / _SOCKET)) <= MAX_SOCKET_PATH_BYTES:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
