"""One HTTP exchange with an engine, whose failure says whether anything was sent.

Every call has its own connection. Control calls are rare, and a kept one that the server just closed would make the
harmless end of an idle connection look like a lost answer, after which a call such as a release must not be repeated.
(A GET whose connection breaks is repeated once by aiohttp. Reads may be, and everything that acts is a POST.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from trimtab_manager.engine.errors import UNCLEAR, Ambiguous, Deadline, Malformed, Refused, Unreachable

OK = 200

CONNECT_S = 5.0
CONNECT_SHARE = 0.8
"""A connection takes at most so many seconds, or this share of the call's: so a time-out before anything was sent is
known as one."""


@dataclass(frozen=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    text: str


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
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._session: aiohttp.ClientSession | None = None
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
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = orjson.dumps(body)
            headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, CONNECT_SHARE * timeout_s))
        try:
            async with self._open().request(
                method,
                self.url + path,
                data=data,
                params=query,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                text = (await response.read()).decode(errors="replace")
                return Reply(response.status, dict(response.headers), text)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(self.engine, call, _describe(error)) from error
        except asyncio.TimeoutError as error:
            raise Deadline(self.engine, call, timeout_s) from error
        except aiohttp.ClientError as error:
            raise Ambiguous(self.engine, call, "was sent, and the answer broke off", _describe(error)) from error

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
        """Ends the session; calls in progress fail, and so do later ones. May be called twice."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:  # made at the first call: a session belongs to the running event loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True), trust_env=False, auto_decompress=True
            )
        return self._session


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
