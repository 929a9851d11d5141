"""A scripted engine: a raw asyncio HTTP/1.1 server that decides over every byte, and records what it saw.

The script of a request is a coroutine over its :class:`Exchange` (see ``scripts.py`` for the ready ones). Control
routes are answered without it: ``GET /model_info`` and ``GET /health`` (kept in ``probes``) and ``POST /abort_request``
(kept in ``aborted``), so that ``requests`` holds generation requests only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from tests.support.http1 import Broken, Head, Header, Wire, chunk_bytes, head_bytes
from tests.support.registry import registry
from tests.support.sockets import reset, tcp_socket

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

JSON_TYPE: Header = ("Content-Type", "application/json")


class Record:
    """One generation request as the engine saw it.

    Attributes:
        head: Request line and headers as sent.
        body: Body with the framing removed; None until the script has read it.
        wire: Every byte of the request, framing included.
        peer_closed: Set when the router closed the connection while the exchange was unfinished.
        finished: The engine sent the whole answer.
    """

    def __init__(self, head: Head, connection: Connection) -> None:
        self.head = head
        self.connection = connection
        self.body: bytes | None = None
        self.wire = head.raw
        self.finished = False
        self.peer_closed = asyncio.Event()

    def json(self) -> Any:
        """The body as JSON."""
        assert self.body is not None, "the engine has not read this body"
        return json.loads(self.body)

    @property
    def rid(self) -> str:
        """The request id in the body."""
        return str(self.json()["rid"])


class Connection:
    """One accepted connection.

    Attributes:
        closed: Set when the connection is over, whoever ended it.
        by_peer: How the router ended it (``"fin"`` or ``"rst"``), None when it did not.
        sent: Bytes handed to the kernel so far.
    """

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.records: list[Record] = []
        self.closed = asyncio.Event()
        self.by_peer: str | None = None
        self.sent = 0
        self.current: Record | None = None

    def peer_gone(self, how: str) -> None:
        """Note that the router ended the connection."""
        self.by_peer = self.by_peer or how
        if self.current is not None:
            self.current.peer_closed.set()


class Exchange:
    """One request and the power to answer it in any way."""

    def __init__(self, record: Record, wire: Wire, writer: asyncio.StreamWriter) -> None:
        self.record = record
        self.wire = wire
        self.writer = writer
        self.keep_alive = True
        self.ended = False

    @property
    def engine(self) -> ScriptedEngine:
        """The engine that received the request."""
        return self.record.connection.engine

    async def read_body(self) -> bytes:
        """Read the body (once; later calls return it again)."""
        if self.record.body is None:
            start = len(self.wire.raw)
            self.record.body = await self.wire.body(self.record.head)
            self.record.wire += bytes(self.wire.raw[start:])
        return self.record.body

    async def send(self, data: bytes) -> None:
        """Send raw bytes; returns when the kernel took them, so a slow router slows the script."""
        self.writer.write(data)
        await self.writer.drain()
        self.record.connection.sent += len(data)

    async def send_head(self, status: int = 200, headers: tuple[Header, ...] = (), reason: str = "OK") -> None:
        """Send a response head with exactly these headers."""
        await self.send(head_bytes(f"HTTP/1.1 {status} {reason}", headers))

    async def start_stream(self, *headers: Header) -> None:
        """Send the head of a chunked event stream."""
        await self.send_head(200, (("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"), *headers))

    async def send_chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body."""
        await self.send(chunk_bytes(data))

    async def end_stream(self) -> None:
        """Send the terminating chunk."""
        self.record.finished = True  # before the bytes leave: who reads them may look here next
        await self.send(chunk_bytes(b""))

    async def answer(self, body: bytes, status: int = 200, headers: tuple[Header, ...] = (JSON_TYPE,)) -> None:
        """Send a whole response with a content-length."""
        self.record.finished = True
        await self.send(head_bytes(f"HTTP/1.1 {status} OK", (*headers, ("Content-Length", str(len(body))))) + body)

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.ended = True
        reset(self.writer)

    def close(self) -> None:
        """End the connection with a FIN after what was sent."""
        self.ended = True
        self.writer.close()


Script = Callable[[Exchange], Awaitable[None]]


class _Protocol(asyncio.StreamReaderProtocol):
    """Stream protocol that notices the peer's end also while nobody reads."""

    def __init__(self, engine: ScriptedEngine) -> None:
        super().__init__(asyncio.StreamReader(limit=2**22), self._begin)
        self._engine = engine
        self.connection = Connection(engine)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        self._engine.accepted(self.connection, reader, writer)

    def eof_received(self) -> bool | None:
        self.connection.peer_gone("fin")
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.connection.peer_gone("rst")
        super().connection_lost(exc)
        self.connection.closed.set()


def _bound(port: int) -> socket.socket:
    """A socket that has the port; one that does not listen shares it with another one, and keeps everybody else off."""
    sock = tcp_socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


async def _close(server: asyncio.Server) -> None:
    """Close a server that may have taken a connection from the kernel and not handed it over yet.

    One whose server is closed in between fails an assertion of asyncio's, and its socket stays open.
    """
    loop = asyncio.get_running_loop()
    for sock in server.sockets:
        loop.remove_reader(sock.fileno())
    try:
        await asyncio.sleep(0)  # what was taken is handed over
    finally:
        server.close()


class ScriptedEngine:
    """An engine on an ephemeral loopback port that follows a script.

    ``abort_status`` is the status code of ``POST /abort_request``; None accepts it and says nothing.

    Args:
        script: What to do with a generation request; may be replaced at any time.
        keep_alive_s: Idle connections are closed after this long; None keeps them.
        model_info: Status code of ``GET /model_info``, or None to accept the probe and say nothing.
        unix: Listen on this Unix socket instead of a port: the control app in the tests of the relay to it.
        tls: Speak TLS with this certificate.
    """

    def __init__(
        self,
        script: Script,
        *,
        keep_alive_s: float | None = None,
        model_info: int | None = 200,
        unix: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = script
        self.keep_alive_s = keep_alive_s
        self.model_info = model_info
        self.unix = unix
        self._tls = tls
        self.requests: list[Record] = []
        self.probes: list[Head] = []
        self.aborted: list[str] = []
        self.aborts: list[Record] = []
        self.abort_status: int | None = 200
        self.failures: list[BaseException] = []
        self.connections: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    @property
    def authority(self) -> str:
        """``host:port``, the default backend id."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{'http' if self._tls is None else 'https'}://{self.authority}"

    @property
    def open_connections(self) -> int:
        """Connections that neither side has ended."""
        return sum(not connection.closed.is_set() for connection in self.connections)

    @property
    def disconnects(self) -> int:
        """Unfinished exchanges whose connection the router closed."""
        return sum(record.peer_closed.is_set() and not record.finished for record in self.requests)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # In two steps, so that a server whose start is cancelled is known to kill().
        if self.unix is not None:
            self._server = await loop.create_unix_server(lambda: _Protocol(self), self.unix, start_serving=False)
            await self._server.start_serving()
            return self
        if self._reserved is None:
            self._reserved = _bound(self.port)
            self.port = int(self._reserved.getsockname()[1])
        sock = _bound(self.port)
        self._server = await loop.create_server(
            lambda: _Protocol(self), sock=sock, backlog=4096, ssl=self._tls, start_serving=False
        )
        registry.engine(self)
        await self._server.start_serving()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if kind is None and self.failures:
            raise AssertionError(f"engine script failed: {self.failures[0]!r}") from self.failures[0]

    async def kill(self) -> None:
        """Die as a process does: no listener, every connection reset. The port stays reserved for a second start."""
        server, self._server = self._server, None
        tasks = list(self._tasks.items())
        for task, writer in tasks:
            reset(writer)
            task.cancel()
        if server is not None:
            await _close(server)
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)

    def accepted(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start serving a new connection."""
        if self._server is None:  # asyncio had taken it from the kernel before kill(), and hands it over only now
            reset(writer)
            return
        self.connections.append(connection)
        task = asyncio.get_running_loop().create_task(self._serve(connection, Wire(reader), writer))
        self._tasks[task] = writer
        task.add_done_callback(lambda done: self._tasks.pop(done, None) and None)

    async def _serve(self, connection: Connection, wire: Wire, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await self._next_head(wire)) is not None:
                wire.raw.clear()
                record = Record(head, connection)
                exchange = Exchange(record, wire, writer)
                if not await self._control(exchange):
                    await self._generate(connection, record, exchange)
                if exchange.ended or not exchange.keep_alive:
                    break
        except (Broken, ConnectionError):
            pass  # the router ended the connection: that is recorded on the connection, and often the test's point
        except Exception as error:  # noqa: BLE001 - a failing script must fail the test, see __aexit__
            self.failures.append(error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _next_head(self, wire: Wire) -> Head | None:
        try:
            return await asyncio.wait_for(wire.head(), self.keep_alive_s)
        except asyncio.TimeoutError:
            return None

    async def _generate(self, connection: Connection, record: Record, exchange: Exchange) -> None:
        connection.records.append(record)
        connection.current = record
        self.requests.append(record)
        try:
            await self.script(exchange)
            await exchange.read_body() if not exchange.ended and exchange.keep_alive else None
        finally:
            connection.current = None

    async def _control(self, exchange: Exchange) -> bool:
        if self.unix is not None:
            return False
        head = exchange.record.head
        path = head.target.partition("?")[0]
        if head.method == "GET" and path in {"/model_info", "/health"}:
            self.probes.append(head)
            if self.model_info is None:
                await exchange.record.connection.closed.wait()
            else:
                await exchange.answer(b'{"model_path":"tiny","weight_version":"default"}', self.model_info)
            return True
        if path == "/abort_request":
            await exchange.read_body()
            self.aborts.append(exchange.record)
            self.aborted.append(cast("str", exchange.record.json()["rid"]))
            if self.abort_status is None:
                await exchange.record.connection.closed.wait()
            else:
                await exchange.answer(b"", self.abort_status, ())
            return True
        return False
