"""Scripted engines: what an update calls, answered at once, but for the load of the weights, which takes a known time.

A process serves many, each on a port of its own. Run as ``python -m benches.update.engines COUNT LOAD_S``: prints one
JSON line, the list of ports, and serves until stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

META = {"cached_tokens": 0, "finish_reason": {"type": "length", "length": 1}}
DONE = {"success": True, "message": "Succeeded."}
RANK = {"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0, "max_running_requests": 8}


class Engine:
    """The state of one engine."""

    def __init__(self, load_s: float) -> None:
        self.load_s = load_s
        self.version = "1"

    async def answer(self, path: str, body: bytes) -> object:
        """The body of the answer to one call."""
        if path == "/update_weights_from_disk":
            await asyncio.sleep(self.load_s)
            self.version = json.loads(body)["weight_version"]
            return DONE
        if path == "/model_info":
            return {"model_path": "m", "served_model_name": "m", "weight_version": self.version}
        if path == "/v1/loads":
            now_s = time.time()
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
            return {"timestamp": f"{stamp}+00:00", "loads": [{**RANK, "timestamp": now_s}]}
        if path == "/generate":
            return {"text": "", "output_ids": [1], "meta_info": {**META, "weight_version": self.version}}
        return {"status": "ok"}


class Connection(asyncio.Protocol):
    """One connection; requests come one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer a request once it is complete."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if len(body) < length:
            return
        path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
        self._data = body[length:]
        self._task = asyncio.ensure_future(self._reply(path, body[:length]))

    async def _reply(self, path: str, body: bytes) -> None:
        text = json.dumps(await self._engine.answer(path, body)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text)
        if self._transport is not None:
            self._transport.write(head + text)


async def serve(count: int, load_s: float) -> None:
    """Serve ``count`` engines until stdin ends."""
    loop = asyncio.get_running_loop()
    engines = [Engine(load_s) for _ in range(count)]
    servers = [await loop.create_server(lambda e=engine: Connection(e), "127.0.0.1", 0) for engine in engines]  # type: ignore[misc]  # binds the loop's variable
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
