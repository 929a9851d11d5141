"""HTTP/1.1 on the wire, for both ends of a proxy under test.

Ready-made libraries normalise what they read: header order and case, chunk borders, early ends. A test of a proxy that
promises "bytes in, bytes out" needs exactly those, so the kit reads and writes the protocol itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

Header = tuple[str, str]


class Broken(Exception):
    """The peer ended the connection inside a message.

    Attributes:
        partial: Bytes of the current element that did arrive.
    """

    def __init__(self, why: str, partial: bytes = b"") -> None:
        super().__init__(why)
        self.partial = partial


@dataclass(frozen=True)
class Head:
    """Start line and headers as they stood on the wire: order, case and duplicates kept."""

    start_line: str
    headers: tuple[Header, ...]
    raw: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """Parse one head that ends with an empty line."""
        lines = raw.decode("latin-1").split("\r\n")
        headers = []
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            headers.append((name, value.strip(" \t")))
        return cls(lines[0], tuple(headers), raw)

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order; the name is matched without regard to case."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The only value of a header; a header sent twice fails the test that asks for it."""
        values = self.all(name)
        assert len(values) <= 1, f"header {name} was sent {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def names(self) -> list[str]:
        """Header names in lower case, in order."""
        return [key.lower() for key, _ in self.headers]

    @property
    def status(self) -> int:
        """Status code of a response head."""
        return int(self.start_line.split(" ", 2)[1])

    @property
    def method(self) -> str:
        """Method of a request head."""
        return self.start_line.split(" ", 2)[0]

    @property
    def target(self) -> str:
        """Request target, query included."""
        return self.start_line.split(" ", 2)[1]


@dataclass(frozen=True)
class Response:
    """A response that arrived whole."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        """Status code."""
        return self.head.status

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """``error.code`` of a JSON error, checked to be equal to ``x-trimtab-error``."""
        code = self.json()["error"]["code"]
        assert self.head.get("x-trimtab-error") == code, f"body says {code}, headers say {self.head.headers}"
        return str(code)


class Wire:
    """Reads protocol elements from a stream and keeps every byte it consumed in ``raw``."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self.raw = bytearray()

    async def _fill(self) -> bool:
        try:
            data = await self._reader.read(256 * 1024)
        except ConnectionError as error:
            raise Broken(f"{type(error).__name__} inside a message", bytes(self._buffer)) from error
        self._buffer += data
        return bool(data)

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        self.raw += data
        return data

    async def until(self, mark: bytes) -> bytes:
        """Bytes up to and including ``mark``; empty at a clean end of the stream."""
        start = 0
        while (found := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark) + 1)
            if not await self._fill():
                if not self._buffer:
                    return b""
                raise Broken(f"end of stream before {mark!r}", self._take(len(self._buffer)))
        return self._take(found + len(mark))

    async def exactly(self, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        while len(self._buffer) < count:
            if not await self._fill():
                have = len(self._buffer)
                raise Broken(f"end of stream after {have} of {count} bytes", self._take(have))
        return self._take(count)

    async def some(self) -> bytes:
        """Whatever arrived, at least one byte; empty at the end of the stream."""
        if not self._buffer and not await self._fill():
            return b""
        return self._take(len(self._buffer))

    async def head(self) -> Head | None:
        """The next head, or None at a clean end of the stream."""
        raw = await self.until(b"\r\n\r\n")
        return Head.parse(raw) if raw else None

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty for the terminating one."""
        line = await self.until(b"\r\n")
        if not line:
            raise Broken("end of stream before the terminating chunk")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while await self.until(b"\r\n") != b"\r\n":
                pass  # trailers
            return b""
        data = await self.exactly(size + 2)
        return data[:-2]

    async def body(self, head: Head) -> bytes:
        """The whole body that ``head`` announces; a response without framing ends with the connection."""
        if "chunked" in (head.get("transfer-encoding") or "").lower():
            parts = []
            while data := await self.chunk():
                parts.append(data)
            return b"".join(parts)
        if (length := head.get("content-length")) is not None:
            return await self.exactly(int(length))
        if head.start_line.startswith("HTTP/") and head.status not in {204, 304}:
            parts = []
            while data := await self.some():
                parts.append(data)
            return b"".join(parts)
        return b""


def head_bytes(start_line: str, headers: Iterable[Header]) -> bytes:
    """A head as bytes, exactly in the order given."""
    return "\r\n".join([start_line, *(f"{name}: {value}" for name, value in headers), "", ""]).encode("latin-1")


def chunk_bytes(data: bytes) -> bytes:
    """One chunk of a chunked body. Empty data makes the terminating chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def request_bytes(
    path: str,
    body: bytes | None = b"{}",
    headers: Iterable[Header] = (),
    *,
    method: str = "POST",
    host: str = "gateway.test",
) -> bytes:
    """A request with a content-length; ``body=None`` sends neither a body nor a length."""
    lines: list[Header] = [("Host", host), *headers]
    if body is not None:
        lines.append(("Content-Length", str(len(body))))
    return head_bytes(f"{method} {path} HTTP/1.1", lines) + (body or b"")


def event_bytes(value: Any) -> bytes:
    """One server-sent event with a JSON payload, as SGLang writes it."""
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
