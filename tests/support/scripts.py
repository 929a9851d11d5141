"""Ready scripts of a :class:`~tests.support.engine.ScriptedEngine`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.engine import JSON_TYPE
from tests.support.http1 import DONE, event_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.engine import Exchange, Script
    from tests.support.http1 import Header


def generation(tokens: int = 3, *, finish: str = "length", text: str = "abc", rid: str = "rid") -> dict[str, Any]:
    """A ``/generate`` answer in SGLang's shape."""
    reason = {"type": finish, "length": tokens} if finish == "length" else {"type": finish}
    meta = {"id": rid, "finish_reason": reason, "prompt_tokens": 3, "weight_version": "default"}
    return {"text": text, "output_ids": [1] * tokens, "meta_info": {**meta, "completion_tokens": tokens}}


def hold() -> Script:
    """Read the request, answer nothing, until the router goes away."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.record.peer_closed.wait()
        exchange.ended = True

    return script


def one(body: bytes = b"", *, status: int = 200, headers: Sequence[Header] = (JSON_TYPE,)) -> Script:
    """Answer with one body and a content-length; without a body, with a generation that echoes the rid."""

    async def script(exchange: Exchange) -> None:
        request = await exchange.read_body()
        answer = body
        if not body and status == 200:
            parsed = exchange.record.json() if request.startswith(b"{") else {}
            answer = event_bytes(generation(rid=parsed.get("rid", "none")))[6:-2]
        await exchange.answer(answer, status, tuple(headers))

    return script


def status(code: int, body: bytes = b'{"error":"scripted"}', *, headers: Sequence[Header] = (JSON_TYPE,)) -> Script:
    """Answer with a status code and a body."""
    return one(body, status=code, headers=headers)


def events(count: int) -> list[bytes]:
    """``count`` cumulative generation events; only the last has a finish reason."""
    made = []
    for i in range(count):
        value = generation(i + 1, text="x" * (i + 1))
        if i + 1 < count:
            value["meta_info"]["finish_reason"] = None
        made.append(event_bytes(value))
    return made


def drip(count: int, dt_s: float = 0.0, *, done: bool = True, stamp: Callable[[int], bytes] | None = None) -> Script:
    """A chunked event stream of ``count`` events ``dt_s`` apart, then ``[DONE]`` and a clean end.

    Args:
        count: Number of events before ``[DONE]``.
        dt_s: Pause between two events, counted from the first one so that it does not add up.
        done: Whether ``[DONE]`` is sent.
        stamp: Makes the bytes of event *k* at the moment it is sent.
    """

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.start_stream()
        loop = asyncio.get_running_loop()
        start = loop.time()
        for i, event in enumerate(events(count)):
            if dt_s:
                await asyncio.sleep(max(0.0, start + i * dt_s - loop.time()))
            await exchange.send_chunk(stamp(i) if stamp else event)
        if done:
            await exchange.send_chunk(DONE)
        await exchange.end_stream()

    return script


def pieces(
    parts: Sequence[bytes],
    *,
    content_type: str = "text/event-stream",
    framing: str = "chunked",
    headers: Sequence[Header] = (),
) -> Script:
    """Send a body in given pieces, one write each; framing is ``chunked``, ``length`` or ``close``."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        lines = [("Content-Type", content_type), *headers]
        if framing == "chunked":
            lines.append(("Transfer-Encoding", "chunked"))
        elif framing == "length":
            lines.append(("Content-Length", str(sum(map(len, parts)))))
        else:
            lines.append(("Connection", "close"))
        await exchange.send_head(200, tuple(lines))
        exchange.record.finished = framing != "chunked" and not parts
        for i, part in enumerate(parts):
            if framing == "chunked":
                await exchange.send_chunk(part)
            else:
                exchange.record.finished = i + 1 == len(parts)
                await exchange.send(part)
        if framing == "chunked":
            await exchange.end_stream()
        elif framing == "close":
            exchange.close()

    return script


class Gate:
    """Lets a test decide when a script goes on: ``await gate.passed()`` in the script, ``gate.open()`` in the test."""

    def __init__(self) -> None:
        self._permits = asyncio.Semaphore(0)

    def open(self, count: int = 1) -> None:
        """Let ``count`` more steps happen."""
        for _ in range(count):
            self._permits.release()

    async def passed(self) -> None:
        """Wait for one permission."""
        await self._permits.acquire()


def gated(gate: Gate, parts: Sequence[bytes], *, done: bool = True) -> Script:
    """A chunked event stream whose every piece, and whose end, waits for the gate; the head does not."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.start_stream()
        for part in parts:
            await gate.passed()
            await exchange.send_chunk(part)
        await gate.passed()
        if done:
            await exchange.send_chunk(DONE)
        await exchange.end_stream()

    return script


def dies_at(
    parts: Sequence[bytes],
    end: str,
    *,
    gate: Gate | None = None,
    framing: str = "chunked",
    content_type: str = "text/event-stream",
) -> Script:
    """Send ``parts``, then end the connection without finishing the body.

    Args:
        parts: Body bytes sent before the end; none at all means that not even the head is sent.
        end: ``"fin"`` or ``"rst"``.
        gate: Waits for it before the end: a reset may destroy bytes that the router has not read yet.
        framing: ``"chunked"``, ``"length"`` (announces 1,000 bytes more than it sends) or ``"close"``.
        content_type: Of the response.
    """

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        if parts:
            lines = [("Content-Type", content_type)]
            if framing == "chunked":
                lines.append(("Transfer-Encoding", "chunked"))
            elif framing == "length":
                lines.append(("Content-Length", str(sum(map(len, parts)) + 1000)))
            await exchange.send_head(200, tuple(lines))
            for part in parts:
                await (exchange.send_chunk(part) if framing == "chunked" else exchange.send(part))
        if gate is not None:
            await gate.passed()
        if end == "rst":
            exchange.reset()
        else:
            exchange.close()

    return script


def rst_at(count: int, body: bytes = b"x" * 64, *, gate: Gate | None = None) -> Script:
    """Send the first ``count`` body bytes of a content-length answer, then a TCP reset."""
    return dies_at([body[:count]] if count else [], "rst", gate=gate, framing="length", content_type="application/json")


def fin_at(count: int, body: bytes = b"x" * 64, *, gate: Gate | None = None) -> Script:
    """Send the first ``count`` body bytes of a content-length answer, then FIN."""
    return dies_at([body[:count]] if count else [], "fin", gate=gate, framing="length", content_type="application/json")


def early(code: int, body: bytes) -> Script:
    """Answer as soon as the head arrived, read the body only then (an engine that refuses before it reads)."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(body, code)
        await exchange.read_body()

    return script


def interim(after: Script) -> Script:
    """Send ``100 Continue`` before the body is read, whether it was asked for or not."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await after(exchange)

    return script


def echo() -> Script:
    """Answer with the bytes of the request body."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(await exchange.read_body())

    return script


def in_turn(*scripts: Script) -> Script:
    """The first script for the first request, the second for the second, and so on; the last one stays."""
    left = list(scripts)

    async def script(exchange: Exchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(exchange)

    return script
