"""Scripted backends: they answer the liveness probe and nothing else.

Run as ``python -m benches.lease.engines COUNT``: prints one JSON line, the list of ports, and serves until stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

BODY = b'{"model_path":"scripted"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request without a body on one connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER)
            await writer.drain()
    writer.close()


async def serve(count: int) -> None:
    """Serve ``count`` backends until stdin ends."""
    servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
