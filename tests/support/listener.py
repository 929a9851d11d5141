"""A process that listens on a port, for tests of who owns one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROGRAM = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""


@contextmanager
def listener(port: int, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """It listens while the block runs, unless somebody ends it; in a session of its own."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", _PROGRAM, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            yield process
        finally:
            process.kill()
