"""The little of HTTP/1.1 that control calls need: one request, one whole answer.

An update of weights sends some nine calls to every engine while nothing is served, so what a call costs here is time
that the whole fleet stands still. With aiohttp's client that was 0.2 ms of CPU each, 120 ms for 64 engines; this takes
a tenth of it. What it leaves out: redirects, cookies, proxies, compression, interim answers, pipelining.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode, urlsplit

MAX_HEAD_BYTES = 64 * 1024
BODILESS = frozenset({204, 304})
FIRST_FINAL = 200
STATUS_LINE = re.compile(r"HTTP/1\.([01]) (\d{3})(?: .*)?")


class BrokenAnswer(ConnectionError):
    """The connection ended, or made no sense, before the answer was complete.

    Attributes:
        nothing_came: Whether not a byte of the answer had arrived.
    """

    def __init__(self, message: str, *, nothing_came: bool) -> None:
        self.nothing_came = nothing_came
        super().__init__(message)


@dataclass(frozen=True)
class Reply:
    """An answer, whatever its status. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Target:
    """Where to connect, and what to call it in a request."""

    host: str
    port: int
    authority: str
    prefix: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str) -> Target:
        """The target of a base URL. Raises ``ValueError`` when it is none."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// URL with a host")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if tls is not None else 80)
        return cls(parts.hostname, port, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), tls)

    def request(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], length: int
    ) -> bytes:
        """The head of a request with a body of ``length`` bytes."""
        where = f"{self.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        lines = [f"{method} {where} HTTP/1.1", f"host: {self.authority}", "accept: */*", f"content-length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Connection(asyncio.Protocol):
    """One connection to a server. Use it for one exchange at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._data = bytearray()
        self._head: tuple[int, dict[str, str]] | None = None
        self._is_bodiless = False
        self._ended = False
        self.idle_since_s = 0.0

    @classmethod
    async def open(cls, target: Target) -> Connection:
        """Connect. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, target.host, target.port, ssl=target.tls)
        return connection

    @property
    def usable(self) -> bool:
        """Whether another request could go over it, as far as anybody knows."""
        return not self._ended and not self._data and self._answer is None

    async def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Reply:
        """Send a request and wait for its whole answer; afterwards the connection is usable again, or closed.

        Raises:
            BrokenAnswer: It broke off.
            asyncio.TimeoutError: It is not complete in time.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply] = loop.create_future()
        self._answer = answer
        self._is_bodiless = head.startswith(b"HEAD ")
        timer = loop.call_later(timeout_s, self._fail, asyncio.TimeoutError())
        try:
            self._send(head, body)
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None
            self.idle_since_s = loop.time()

    def close(self) -> None:
        """End it. May be called twice."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    def _send(self, head: bytes, body: bytes) -> None:
        if self._transport is None or self._ended:
            raise BrokenAnswer("the connection had ended", nothing_came=True)
        self._transport.write(head)
        if body:
            self._transport.write(body)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of the answer."""
        self._data += data
        if self._answer is None:
            self.close()  # nobody asked: whatever it is, no request may be answered with it
            return
        try:
            reply = self._parse(at_end=False)
        except ValueError as error:
            self._fail(BrokenAnswer(f"the answer makes no sense: {error}", nothing_came=False))
            return
        if reply is not None:
            self._finish(reply)

    def eof_received(self) -> None:
        """The server sends nothing more; what lives on the other half is of no use."""
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        """It is over; an answer without a length is complete by that."""
        if self._ended and self._answer is None:
            return
        self._ended = True
        try:
            reply = self._parse(at_end=error is None) if self._answer is not None else None
        except ValueError:
            reply = None
        if reply is not None:
            self._finish(reply)
        words = "the server closed the connection" if error is None else f"{type(error).__name__}: {error}"
        self._fail(BrokenAnswer(words, nothing_came=not self._data and self._head is None))
        self.close()

    # Parsing.

    def _finish(self, reply: Reply) -> None:
        connection = reply.headers.get("connection", "").lower()
        if self._data or "close" in connection:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(reply)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _parse(self, *, at_end: bool) -> Reply | None:
        """The answer, once it is complete. Raises ``ValueError`` for bytes that are none."""
        while self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                if len(self._data) > MAX_HEAD_BYTES:
                    raise ValueError(f"a head of more than {MAX_HEAD_BYTES} bytes")
                return None
            status, headers = _parse_head(bytes(self._data[:end]))
            del self._data[: end + 4]
            if status >= FIRST_FINAL:  # an interim answer is followed by the one
                self._head = status, headers
        status, headers = self._head
        body = self._body(status, headers, at_end=at_end)
        if body is None:
            return None
        self._head = None
        return Reply(status, headers, body.decode(errors="replace"))

    def _body(self, status: int, headers: Mapping[str, str], *, at_end: bool) -> bytes | None:
        if self._is_bodiless or status in BODILESS:
            return b""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks()
        if "content-length" in headers:
            length = int(headers["content-length"])
            if len(self._data) < length:
                return None
        elif at_end:
            length = len(self._data)
        else:
            return None
        body = bytes(self._data[:length])
        del self._data[:length]
        return body

    def _chunks(self) -> bytes | None:
        pieces, at = [], 0
        while True:
            end = self._data.find(b"\r\n", at)
            if end < 0:
                return None
            size = int(bytes(self._data[at:end]).partition(b";")[0], 16)
            at = end + 2
            if size == 0:
                break
            if len(self._data) < at + size + 2:
                return None
            pieces.append(bytes(self._data[at : at + size]))
            at += size + 2
        while (end := self._data.find(b"\r\n", at)) > at:  # trailers
            at = end + 2
        if end < 0:
            return None
        del self._data[: end + 2]
        return b"".join(pieces)


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    if (found := STATUS_LINE.fullmatch(first)) is None:
        raise ValueError(f"{first[:80]!r} is no status line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"{line[:80]!r} is no header")
        headers[name.strip().lower()] = value.strip()
    if found[1] == "0":
        headers.setdefault("connection", "close")
    return int(found[2]), headers
