"""The HTTP of control calls, against servers that say one thing, byte by byte."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_until
from trimtab_manager.engine.errors import Ambiguous, Deadline, Unreachable
from trimtab_manager.engine.http1 import Target
from trimtab_manager.engine.transport import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers the n-th request with the n-th script, a list of pieces; then closes the connection if it says so."""

    def __init__(self, scripts: list[list[bytes]], *, close: bool) -> None:
        self.scripts = scripts
        self.close = close
        self.requests: list[bytes] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                if self.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*scripts: list[bytes], close: bool = False) -> AsyncIterator[tuple[Server, Transport]]:
    """A server and a transport to it."""
    server = Server(list(scripts), close=close)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        transport = Transport(f"http://127.0.0.1:{port}/base", engine="e", api_key="sek")
        try:
            yield server, transport
        finally:
            await transport.close()
            for writer in server.writers:
                writer.close()


@pytest.mark.parametrize(
    ("script", "close", "text"),
    [
        ([OK + b"Content-Length: 4\r\n\r\nabcd"], False, "abcd"),
        ([OK + b"content-length:4\r\n\r\n", b"ab", b"cd"], False, "abcd"),
        ([bytes([byte]) for byte in OK + b"Content-Length: 2\r\n\r\nxy"], False, "xy"),
        ([OK + b"Content-Length: 0\r\n\r\n"], False, ""),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"1;x=y\r\nd\r\n0\r\n\r\n"], False, "abcd"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n\r\n\r\n0\r\nT: 1\r\n", b"U: 2\r\n\r\n"], False, "\r\n"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na"], False, "a"),
        ([OK + b"\r\nall of ", b"it"], True, "all of it"),
        ([b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\na"], True, "a"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], False, ""),
    ],
)
async def test_an_answer_is_read_to_its_end(script: list[bytes], close: bool, text: str) -> None:
    """However its end is told, and in whatever pieces it comes."""
    async with scripted(script, close=close) as (server, transport):
        for _ in range(2):
            reply = await transport.exchange("POST", "/x", {"a": 1}, timeout_s=5, query={"q": "a b"})
            assert (reply.status // 100, reply.text) == (2, text)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /base/x?q=a+b HTTP/1.1\r\n")
        assert b"authorization: bearer sek" in head.lower()
        assert b"content-type: application/json" in head.lower()
        assert body == b'{"a":1}'


@pytest.mark.parametrize(
    "script",
    [
        [b"HELLO\r\n\r\n"],
        [OK + b"no header\r\n\r\n"],
        [OK + b"Content-Length: x\r\n\r\n"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000],
    ],
)
async def test_what_is_no_answer_is_ambiguous(script: list[bytes]) -> None:
    """The call was sent, so nobody knows what became of it."""
    async with scripted(script) as (_, transport):
        with pytest.raises(Ambiguous, match="the answer makes no sense"):
            await transport.exchange("POST", "/x", {}, timeout_s=5)


@pytest.mark.parametrize("script", [[], [OK], [OK + b"Content-Length: 9\r\n\r\nabc"]])
async def test_an_answer_that_breaks_off_is_ambiguous(script: list[bytes]) -> None:
    """Also when not a byte of it came."""
    async with scripted(script, close=True) as (_, transport):
        with pytest.raises(Ambiguous, match="was sent, and the answer broke off"):
            await transport.exchange("POST", "/x", {}, timeout_s=5)


async def test_a_late_answer_is_not_taken_for_that_of_the_next_call() -> None:
    """Its connection is closed at the deadline."""
    late = [OK + b"Content-Length: 4\r\n\r\n", b"", b"", b"late"]
    async with scripted(late, [OK + b"Content-Length: 4\r\n\r\nnext"]) as (server, transport):
        with pytest.raises(Deadline):
            await transport.exchange("POST", "/x", {}, timeout_s=0.001)
        assert (await transport.exchange("POST", "/x", {}, timeout_s=5)).text == "next"
        assert server.connections == 2


async def test_calls_that_follow_at_once_share_a_connection() -> None:
    """Concurrent ones do not."""
    async with scripted([OK + b"Content-Length: 1\r\n\r\na"]) as (server, transport):
        for _ in range(3):
            await transport.exchange("GET", "/x", timeout_s=5)
        assert server.connections == 1
        await asyncio.gather(*(transport.exchange("GET", "/x", timeout_s=5) for _ in range(3)))
        assert server.connections == 3


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """The end of an idle connection is seen, so that the next call is not lost."""
    async with scripted([OK + b"Content-Length: 1\r\n\r\na"], close=True) as (server, transport):
        for count in range(1, 4):
            await transport.exchange("POST", "/x", {}, timeout_s=5)
            assert server.connections == count
            kept = transport._kept
            await wait_until(lambda kept=kept: kept is None or not kept.usable, "the end is seen")  # type: ignore[misc]


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    """They must not become the answer to the next call."""
    twice = OK + b"Content-Length: 1\r\n\r\na"
    async with scripted([twice + twice], [OK + b"Content-Length: 1\r\n\r\nb"]) as (server, transport):
        assert (await transport.exchange("POST", "/x", {}, timeout_s=5)).text == "a"
        assert (await transport.exchange("POST", "/x", {}, timeout_s=5)).text == "b"
        assert server.connections == 2


async def test_nothing_listens() -> None:
    """Nothing was sent."""
    transport = Transport("http://127.0.0.1:1", engine="e")
    with pytest.raises(Unreachable, match="no connection"):
        await transport.exchange("POST", "/x", {}, timeout_s=5)
    await transport.close()


def test_targets() -> None:
    """Ports by scheme, brackets of IPv6, and what is no address."""
    assert (Target.of("http://a").port, Target.of("https://a").port) == (80, 443)
    target = Target.of("http://[::1]:8/p/")
    assert (target.host, target.port, target.authority, target.prefix) == ("::1", 8, "[::1]:8", "/p")
    for bad in ("a:1", "ftp://a", "http://"):
        with pytest.raises(ValueError, match="URL with a host"):
            Target.of(bad)
