"""The engines behind every router: as cheap as possible, so that the router is the bottleneck.

Answers come from nginx (one process, a port for each engine, one constant JSON body). Event streams come from a
Python process with hand-made answers, since nginx cannot make them: 64 events of 200 bytes, back to back or paced.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvloop

from benches.gateway import nginx

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_BYTES = 700
EVENTS = 64
EVENT_BYTES = 200
PACE_S = 0.002

_SERVER = """
  default_type application/json;
  server {{
{listen}
    location = /generate {{ return 200 '{answer}'; }}
    location / {{ return 200 '{info}'; }}
  }}"""
# What routers ask of an engine before they take it in.
_INFO = (
    '{"status":"ok","model_path":"tiny","served_model_name":"tiny","id":"tiny","object":"list","data":[{"id":"tiny"}]}'
)


def nginx_command(ports: Sequence[int], folder: Path) -> list[str]:
    """How to start the engines that answer at once."""
    meta = '"meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":64,"prompt_tokens":256}}'
    answer = '{"text":"' + "y" * (ANSWER_BYTES - len(meta) - 11) + '",' + meta
    listen = "\n".join(f"    listen 127.0.0.1:{port} backlog=4096;" for port in ports)
    return nginx.command(folder, _SERVER.format(listen=listen, answer=answer, info=_INFO))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_EVENT = _chunk(b'data: {"text":"' + b"y" * (EVENT_BYTES - 19) + b'"}\n\n')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_INFO_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_INFO),
    _INFO.encode(),
)


class _Engine(asyncio.Protocol):
    """One connection: requests in turn, each answered with a stream (GET: with a few facts)."""

    def __init__(self, pace_s: float | None) -> None:
        self._pace_s = pace_s
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n") + 4) >= 4:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 : head.index(b"\r", at)]) if at >= 0 else 0
            if len(self._buffer) < end + length:
                return
            self._buffer = self._buffer[end + length :]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        transport = self._transport
        assert transport is not None
        if head.startswith(b"get"):
            transport.write(_INFO_ANSWER)
            return
        transport.write(_HEAD)
        self._send(EVENTS)

    def _send(self, left: int) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return
        if left == 0:
            transport.write(_END)
            return
        transport.write(_EVENT)
        loop = asyncio.get_running_loop()
        if self._pace_s is None:
            # Its own turn of the loop: a write of its own, as an engine does it.
            loop.call_soon(self._send, left - 1)
        else:
            loop.call_later(self._pace_s, self._send, left - 1)


async def _stream(pace_s: float | None, ports: Sequence[int]) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(lambda: _Engine(pace_s), "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    pace = float(sys.argv[1])
    uvloop.run(_stream(pace or None, [int(port) for port in sys.argv[2:]]))
