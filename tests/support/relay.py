"""A relay before an HTTP server that loses, repeats, delays and replaces messages by script.

Lost and late messages cannot be had from a server that works. The relay stands between a client and a real server, so
that what a test shows is how both ends deal with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Message", "Relay", "answering", "held", "lose_reply", "lose_request", "relay_to", "repeated"]


@dataclass(frozen=True)
class Message:
    """One request: its first line without the protocol, its headers in lower case, and its raw bytes."""

    line: str
    headers: dict[str, str]
    raw: bytes
    body: bytes


Forward: TypeAlias = Callable[[bytes], Awaitable[bytes]]
Action: TypeAlias = Callable[[bytes, Forward], Awaitable[bytes | None]]
"""Gives the raw answer to a raw request, or ``None`` to cut the connection."""


async def lose_request(raw: bytes, forward: Forward) -> None:
    """The server never sees the request."""
    del raw, forward


async def lose_reply(raw: bytes, forward: Forward) -> None:
    """The server carries the request out, and nobody hears of it."""
    await forward(raw)


async def repeated(raw: bytes, forward: Forward) -> bytes | None:
    """The server gets the request twice; the second answer is the one that arrives."""
    await forward(raw)
    return await forward(raw)


def answering(status: str, body: bytes = b"") -> Action:
    """Something else answers; the server never sees the request."""

    async def answer(raw: bytes, forward: Forward) -> bytes | None:
        del raw, forward
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    return answer


def held(until: asyncio.Event) -> Action:
    """The answer arrives only after ``until``."""

    async def hold(raw: bytes, forward: Forward) -> bytes | None:
        answer = await forward(raw)
        await until.wait()
        return answer

    return hold


@dataclass
class Relay:
    """What happened and what is to happen.

    Attributes:
        url: Where clients connect.
        messages: Every request that arrived.
        otherwise: The action for requests that the script does not mention; by default they are passed on.
    """

    url: str = ""
    messages: list[Message] = field(default_factory=list)
    otherwise: Callable[[str], Action | None] = lambda _: None
    _script: deque[tuple[str, Action]] = field(default_factory=deque)

    def next(self, text: str, *actions: Action) -> None:
        """Applies ``actions``, in order, to the next requests whose first line contains ``text``."""
        self._script.extend((text, action) for action in actions)

    def lines(self, text: str) -> list[str]:
        """First lines of the requests so far that contain ``text``."""
        return [message.line for message in self.messages if text in message.line]

    def take(self, line: str) -> Action | None:
        """The action for a request, which is used up."""
        for text, action in self._script:
            if text in line:
                self._script.remove((text, action))
                return action
        return self.otherwise(line)


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *fields = head.decode().rstrip("\r\n").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return first, headers, head + body, body


@asynccontextmanager
async def relay_to(host: str, port: int) -> AsyncIterator[Relay]:
    """A relay before ``host:port``; without a script it passes everything on."""
    relay = Relay()
    open_connections: set[asyncio.Task[None]] = set()

    async def forward(raw: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(raw)
            return (await _read(reader))[2]
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    first, headers, raw, body = await _read(reader)
                    line = first.rpartition(" ")[0]
                    relay.messages.append(Message(line, headers, raw, body))
                    action = relay.take(line)
                    answer = await (forward(raw) if action is None else action(raw, forward))
                    if answer is None:
                        break
                    writer.write(answer)
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        open_connections.add(task)
        task.add_done_callback(open_connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        tasks = list(open_connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
