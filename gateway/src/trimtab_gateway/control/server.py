"""Runs the control app on a private Unix socket."""

from __future__ import annotations

import shutil
import socket
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# sockaddr_un holds 108 bytes on Linux, the terminating zero among them.
MAX_SOCKET_PATH_BYTES = 107
# hyper lets a request head of this size through; aiohttp's own limit is smaller and answers in plain text.
_MAX_HEADER_BYTES = 2**18


@asynccontextmanager
async def private_server(app: web.Application) -> AsyncIterator[Path]:
    """Serve ``app`` until the block ends.

    Yields:
        The socket's path: mode 0600 in a directory of mode 0700 that exists only for this block.
    """
    directory = _private_directory()
    try:
        path = directory / "control"
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


def _private_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="trimtab-"))
    if len(bytes(directory / "control")) <= MAX_SOCKET_PATH_BYTES:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="trimtab-", dir="/tmp"))
