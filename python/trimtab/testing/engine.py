"""An engine for tests: it answers like SGLang, unless its script says otherwise, and remembers what it was asked.

A test of an uncertain end needs an engine that resets a connection at the right byte, which no working engine does.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Answer", "EngineRequest", "ScriptedEngine", "answer", "complete", "cut", "held", "reset"]


@dataclass(frozen=True)
class EngineRequest:
    """One request as it arrived.

    Attributes:
        method: For example ``POST``.
        path: Path and query.
        headers: Values by lower-case name.
        body: As sent.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


Answer: TypeAlias = Callable[[socket.socket, EngineRequest], bool]
"""Writes an answer to the connection; whether the connection goes on."""


_LOOK_S = 0.02
"""How often a held answer looks whether somebody still waits for it."""


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def answer(status: int, body: bytes = b"{}") -> Answer:
    """A complete answer of any status."""

    def write(connection: socket.socket, request: EngineRequest) -> bool:
        del request
        head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return True

    return write


def complete(
    text: str = "ok", *, tokens: int = 1, finish: str = "stop", weight_version: int | str | None = None
) -> Answer:
    """A generation of SGLang: ``finish`` is the type of its finish reason, ``abort`` for an interrupted one."""
    meta = {"finish_reason": {"type": finish}, "completion_tokens": tokens, "weight_version": weight_version}
    return answer(200, json.dumps({"text": text, "meta_info": meta}).encode())


def cut(after: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") -> Answer:
    """An answer that ends early: the bytes of ``after``, and the end of the connection."""

    def write(connection: socket.socket, request: EngineRequest) -> bool:
        del request
        connection.sendall(after)
        return False

    return write


def reset() -> Answer:
    """The request was read, and the connection is reset."""

    def write(connection: socket.socket, request: EngineRequest) -> bool:
        del request
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    return write


def held(until: threading.Event, then: Answer | None = None) -> Answer:
    """Nothing until the event is set, and then another answer, by default a complete one.

    Does nothing more once the caller has left or the engine stops.
    """

    def write(connection: socket.socket, request: EngineRequest) -> bool:
        while not until.wait(_LOOK_S):
            if _has_ended(connection):
                return False
        return (then or complete())(connection, request)

    return write


class ScriptedEngine:
    """An engine on a free port of this machine, as a context manager.

    Example:
        >>> with ScriptedEngine() as engine:
        ...     engine.next(reset(), complete("fine", tokens=3))  # the first request breaks, the second does not
        ...     url = engine.url + "/generate"
    """

    def __init__(self, *, weight_version: int | None = None) -> None:
        """An engine that is not running yet.

        Args:
            weight_version: What it says of its weights.
        """
        self.weight_version = weight_version
        self.requests: list[EngineRequest] = []
        self._script: deque[Answer] = deque()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server: socketserver.ThreadingTCPServer | None = None
        self._authority = ""

    @property
    def authority(self) -> str:
        """``host:port``."""
        return self._authority

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://{self._authority}"

    def next(self, *answers: Answer) -> None:
        """Answers the next ``POST /generate`` requests, in order; without a script they are completed."""
        with self._lock:
            self._script.extend(answers)

    def paths(self) -> list[str]:
        """Paths of the requests so far."""
        return [request.path for request in self.requests]

    def _answer_to(self, request: EngineRequest) -> Answer:
        with self._lock:
            self.requests.append(request)
            if request.path == "/generate":
                if self._script:
                    return self._script.popleft()
                return complete(weight_version=self.weight_version)
        if request.path == "/model_info":
            return answer(200, json.dumps({"weight_version": self.weight_version}).encode())
        return answer(200)

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            with connection.makefile("rb") as stream:
                while (request := _read(stream.readline, stream.read)) is not None:
                    if not self._answer_to(request)(connection, request):
                        return
        except OSError:
            # The caller left, which is its right.
            return
        finally:
            with self._lock:
                self._connections.discard(connection)

    def __enter__(self) -> Self:
        engine = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                engine._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            def shutdown_request(self, request: Any) -> None:
                # Not the inherited one: its orderly end would come before a scripted reset.
                request.close()

        self._server = Server(("127.0.0.1", 0), Handler)
        self._authority = f"127.0.0.1:{self._server.server_address[1]}"
        thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), daemon=True)
        thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        self._server.shutdown()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            # It may be closed already.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._server = None


def _read(readline: Callable[[], bytes], read: Callable[[int], bytes]) -> EngineRequest | None:
    """The next request of a connection; ``None`` at its end."""
    first = readline().split()
    if len(first) != 3:  # noqa: PLR2004 - method, path and protocol
        return None
    headers: dict[str, str] = {}
    while (line := readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = read(int(headers.get("content-length", "0")))
    return EngineRequest(first[0].decode(), first[1].decode(), headers, body)
