"""One HTTP exchange with an engine, whose failure says whether anything was sent.

A connection is kept for the call that follows at once, as in an update of weights, and not for longer: a kept one that
the server just closed would make the harmless end of an idle connection look like a lost answer, after which a call
such as a release must not be repeated. Servers keep an idle connection for five seconds or more. (A GET whose kept
connection breaks without a byte is repeated once. Reads may be, and everything that acts is a POST.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from trimtab_manager.engine.errors import UNCLEAR, Ambiguous, Deadline, Malformed, Refused, Unreachable
from trimtab_manager.engine.http1 import BrokenAnswer, Connection, Reply, Target

__all__ = ["OK", "Reply", "Transport"]

OK = 200

CONNECT_S = 5.0
CONNECT_SHARE = 0.8
"""A connection takes at most so many seconds, or this share of the call's: so a time-out before anything was sent is
known as one."""

KEPT_S = 1.0
"""How long an idle connection is used again."""


class Transport:
    """HTTP to one engine: no redirects, no proxies, a deadline on everything.

    Args:
        url: Base URL of the engine.
        engine: Its id, for messages.
        api_key: Sent as a bearer token. It is never part of a message.
    """

    def __init__(self, url: str, *, engine: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.engine = engine
        self._target = Target.of(self.url)
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._open: set[Connection] = set()
        self._kept: Connection | None = None
        self._closed = False

    async def exchange(
        self, method: str, path: str, body: object = None, *, timeout_s: float, query: Mapping[str, str] | None = None
    ) -> Reply:
        """Sends a request and reads the answer, whatever its status.

        Raises:
            Unreachable: No connection within the deadline, or the transport is closed; nothing was sent.
            Deadline: No complete answer within it.
            Ambiguous: The connection ended before the answer did.
        """
        call = f"{method} {path}"
        if self._closed:
            raise Unreachable(self.engine, call, "the manager has let go of this incarnation of it")
        headers, data = self._headers, b""
        if body is not None:
            data = orjson.dumps(body)
            headers = {**headers, "Content-Type": "application/json"}
        head = self._target.request(method, path, query, headers, len(data))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        connection = self._take_kept()
        is_kept = connection is not None
        try:
            if connection is not None:
                try:
                    return await connection.exchange(head, data, timeout_s)
                except BrokenAnswer as error:
                    if method != "GET" or not error.nothing_came:
                        raise
                    self._drop(connection)
            is_kept = False
            connection = await self._connect(call, timeout_s)
            return await connection.exchange(head, data, max(0.0, until_s - loop.time()))
        except asyncio.TimeoutError as error:
            raise Deadline(self.engine, call, timeout_s) from error
        except BrokenAnswer as error:
            how = "was sent on a kept connection, which ended" if is_kept else "was sent, and the answer broke off"
            raise Ambiguous(self.engine, call, how, str(error)) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    async def succeed(
        self, method: str, path: str, body: object = None, *, timeout_s: float, query: Mapping[str, str] | None = None
    ) -> str:
        """The text of an answer of status 200.

        Raises:
            Refused: Another status than 200, 500 and 504.
            ControlError: As ``exchange`` does; ``Ambiguous`` also for 500 and 504.
        """
        reply = await self.exchange(method, path, body, timeout_s=timeout_s, query=query)
        if reply.status == OK:
            return reply.text
        call = f"{method} {path}"
        if reply.status in UNCLEAR:
            raise Ambiguous(self.engine, call, f"was answered with {reply.status}", reply.text.strip())
        raise Refused(self.engine, call, reply.status, reply.text)

    def json(self, call: str, text: str) -> Any:
        """The JSON of an answer. Raises ``Malformed``."""
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise Malformed(self.engine, call, "was answered with something that is not JSON", text) from error

    async def close(self) -> None:
        """Ends its connections; calls in progress fail, and so do later ones. May be called twice."""
        self._closed = True
        for connection in tuple(self._open):
            connection.close()
        self._open.clear()
        self._kept = None

    async def _connect(self, call: str, timeout_s: float) -> Connection:
        limit_s = min(CONNECT_S, CONNECT_SHARE * timeout_s)
        opening = asyncio.ensure_future(Connection.open(self._target))
        try:
            # Not `wait_for`: before Python 3.12 it forgets a cancellation that comes together with the connection.
            await asyncio.wait({opening}, timeout=limit_s)
        except asyncio.CancelledError:
            _discard(opening)
            raise
        if not opening.done() or self._closed:
            _discard(opening)
            raise Unreachable(self.engine, call, f"no connection within {limit_s:g} s")
        try:
            connection = opening.result()
        except OSError as error:
            raise Unreachable(self.engine, call, _describe(error)) from error
        self._open.add(connection)
        return connection

    def _take_kept(self) -> Connection | None:
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if kept.usable and asyncio.get_running_loop().time() - kept.idle_since_s < KEPT_S:
            return kept
        self._drop(kept)
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.usable and self._kept is None and connection in self._open:
            self._kept = connection
            asyncio.get_running_loop().call_later(KEPT_S, self._drop_idle, connection)
        elif connection is not self._kept:
            self._drop(connection)

    def _drop_idle(self, connection: Connection) -> None:
        """Close it unless it was used meanwhile."""
        if connection is self._kept and asyncio.get_running_loop().time() - connection.idle_since_s >= KEPT_S:
            self._kept = None
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._open.discard(connection)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _discard(opening: asyncio.Future[Connection]) -> None:
    """Nobody wants the connection any more, whether it comes or has come."""
    opening.add_done_callback(_close_late)
    opening.cancel()


def _close_late(opening: asyncio.Future[Connection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
