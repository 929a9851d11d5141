"""A raw client: it sends exactly the bytes it is told, and can stop or reset at any of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from tests.support.http1 import Broken, Head, Header, Response, Wire, request_bytes
from tests.support.sockets import reset, tcp_socket
from tests.support.waiting import DEADLINE_S

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self


class RawClient:
    """One TCP connection to the server under test. Every read has a deadline.

    Args:
        host: Address to connect to.
        port: Port to connect to.
        receive_buffer: Size of the kernel's receive buffer (SO_RCVBUF); small ones make a slow reader.
        read_limit: Bytes that are read ahead of the test.
    """

    def __init__(self, host: str, port: int, *, receive_buffer: int | None = None, read_limit: int = 2**20) -> None:
        self._address = (host, port)
        self._receive_buffer = receive_buffer
        self._read_limit = read_limit
        self._writer: asyncio.StreamWriter | None = None
        self.wire: Wire = Wire(asyncio.StreamReader())

    async def __aenter__(self) -> Self:
        sock = tcp_socket()
        sock.setblocking(False)
        if self._receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self._address)
            reader, self._writer = await asyncio.open_connection(sock=sock, limit=self._read_limit)
        except BaseException:  # a refusal, or a test that cancels inside the handshake
            sock.close()
            raise
        self.wire = Wire(reader)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def writer(self) -> asyncio.StreamWriter:
        """The stream to write to."""
        assert self._writer is not None, "use the client as an async context manager"
        return self._writer

    async def send(self, data: bytes) -> None:
        """Send raw bytes; waits until the kernel took (nearly) all of them."""
        self.writer.write(data)
        await asyncio.wait_for(self.writer.drain(), DEADLINE_S)

    async def head(self) -> Head:
        """The next response head, interim ones (1xx) included."""
        head = await asyncio.wait_for(self.wire.head(), DEADLINE_S)
        if head is None:
            raise Broken("the server closed the connection without an answer")
        return head

    async def body(self, head: Head) -> bytes:
        """The whole body of a response."""
        return await asyncio.wait_for(self.wire.body(head), 3 * DEADLINE_S)

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body, empty at its end."""
        return await asyncio.wait_for(self.wire.chunk(), DEADLINE_S)

    async def chunked(self, count: int) -> bytes:
        """At least ``count`` bytes of a chunked body, whatever the chunk borders are."""
        data = b""
        while len(data) < count:
            more = await self.chunk()
            assert more, f"the body ended after {len(data)} of {count} bytes"
            data += more
        return data

    async def event(self) -> bytes:
        """The next event of a chunked event stream, whatever the chunk borders are; empty at its end."""
        event = b""
        while not event.endswith(b"\n\n"):
            if not (data := await self.chunk()):
                return event
            event += data
        return event

    async def until_broken(self) -> bytes:
        """What a chunked body delivers before it breaks; a clean end fails the test."""
        data = b""
        try:
            while part := await self.chunk():
                data += part
        except Broken:
            return data
        raise AssertionError(f"the body ended as if it were whole: {data[-300:]!r}")

    async def fails(self) -> None:
        """The answer is a 5xx or breaks; a whole one fails the test."""
        try:
            answer = await self.response()
        except Broken:
            return
        assert answer.status >= 500, f"a whole answer: {answer}"

    async def response(self) -> Response:
        """The next final response, read whole."""
        while (head := await self.head()).status // 100 == 1:
            pass
        return Response(head, await self.body(head))

    async def rest(self) -> bytes:
        """Every byte until the connection ends, raw; a reset ends it like a FIN."""
        data = b""
        with contextlib.suppress(Broken):
            while more := await asyncio.wait_for(self.wire.some(), DEADLINE_S):
                data += more
        return data

    def half_close(self) -> None:
        """Say that no more bytes follow, and go on reading; a connection the server has already ended stays ended."""
        with contextlib.suppress(OSError):
            self.writer.write_eof()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        reset(self.writer)

    async def close(self) -> None:
        """End the connection with a FIN."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()


async def ask(
    host: str,
    port: int,
    path: str,
    body: bytes | None = b"{}",
    headers: Iterable[Header] = (),
    *,
    method: str = "POST",
) -> Response:
    """One request on a connection of its own."""
    async with RawClient(host, port) as client:
        await client.send(request_bytes(path, body, headers, method=method))
        return await client.response()
