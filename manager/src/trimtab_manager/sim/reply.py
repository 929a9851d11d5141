"""Bodies on their way out, where faults cut, slow or withhold them."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn

from aiohttp import web

from trimtab_manager.sim.bodies import engine_of, json_response
from trimtab_manager.sim.faults import CUTTING, Fault

_OUTGOING = CUTTING | {"drip"}


@dataclass
class Exchange:
    """What the middleware knows about the request that its task handles now.

    Attributes:
        fault: The fault that it meets.
        cut: This server ended the connection on purpose: the client did not disconnect.
    """

    fault: Fault | None = None
    cut: bool = False


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")


class Body:
    """The body of one answer. ``write`` and ``end`` apply the request's fault, if it has one."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response
        self._fault = EXCHANGE.get().fault
        self._sent = 0

    async def write(self, data: bytes) -> None:
        """Send bytes, or as many of them as the fault lets through."""
        fault = self._fault
        if fault is None or fault.kind not in _OUTGOING:
            await self._response.write(data)
        elif fault.kind == "drip":
            for start in range(0, len(data), fault.chunk_bytes):
                await self._response.write(data[start : start + fault.chunk_bytes])
                await asyncio.sleep(fault.delay_s)
        else:
            room = fault.at_bytes - self._sent
            await self._response.write(data[:room])
            self._sent += len(data)
            if self._sent >= fault.at_bytes:
                await cut(self._request, fault)

    async def end(self) -> web.StreamResponse:
        """Complete the body. One that is shorter than the fault's ``at_bytes`` is cut here."""
        if self._fault is not None and self._fault.kind in CUTTING:
            await cut(self._request, self._fault)
        await self._response.write_eof()
        return self._response


async def start_stream(request: web.Request) -> Body:
    """Send the head of an event stream; events follow."""
    response = web.StreamResponse()
    response.content_type, response.charset = "text/event-stream", "utf-8"
    await response.prepare(request)
    return Body(request, response)


async def send_whole(request: web.Request, response: web.Response) -> web.StreamResponse:
    """Send a complete answer through the request's fault; without one it is returned as it is."""
    fault = EXCHANGE.get().fault
    if fault is None or fault.kind not in _OUTGOING or not isinstance(response.body, bytes) or not response.body:
        return response
    out = web.StreamResponse(status=response.status, headers=response.headers)
    out.content_length = len(response.body)
    await out.prepare(request)
    body = Body(request, out)
    await body.write(response.body)
    return await body.end()


async def meet(request: web.Request, fault: Fault) -> web.Response | None:
    """What a fault does before the request is handled; an answer when it is answered here."""
    if fault.kind == "hold":
        await engine_of(request).faults.until_cleared()
    elif fault.kind == "delay":
        await asyncio.sleep(fault.delay_s)
    elif fault.kind == "status":
        return json_response({"error": {"message": f"injected fault: status {fault.status}"}}, fault.status)
    elif fault.kind in CUTTING and fault.at_bytes == 0:
        await cut(request, fault)
    return None


async def cut(request: web.Request, fault: Fault) -> NoReturn:
    """End the connection as the fault says. The handler is cancelled when the connection is gone."""
    EXCHANGE.get().cut = True
    if fault.kind == "crash":
        engine_of(request).crash(f"injected fault: crash at byte {fault.at_bytes} of {request.path}")
    elif (transport := request.transport) is not None:
        # A reset drops what the kernel has not taken yet, and the bytes before it are part of the fault.
        while transport.get_write_buffer_size():  # noqa: ASYNC110 - a transport has no event for an empty buffer
            await asyncio.sleep(0.001)
        if fault.kind == "reset":
            reset(transport)
        else:
            transport.close()
    await asyncio.Event().wait()
    raise RuntimeError("unreachable: the handler of a closed connection is cancelled")


def reset(transport: asyncio.Transport) -> None:
    """Close a connection with RST: linger 0 makes the kernel drop it."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class IdleCloser:
    """Closes connections that stay idle after an answer (fault ``fin_idle``)."""

    def __init__(self) -> None:
        self._timers: dict[object, asyncio.TimerHandle] = {}

    def begin(self, request: web.Request) -> None:
        """A request begins on its connection: it is not idle."""
        if (timer := self._timers.pop(request.protocol, None)) is not None:
            timer.cancel()

    def schedule(self, request: web.Request, after_s: float) -> None:
        """Close the connection ``after_s`` from now unless another request begins on it."""
        protocol, transport = request.protocol, request.transport

        def close() -> None:
            del self._timers[protocol]
            if transport is not None:
                transport.close()

        self._timers[protocol] = asyncio.get_running_loop().call_later(after_s, close)

    def stop(self) -> None:
        """Forget every connection."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
