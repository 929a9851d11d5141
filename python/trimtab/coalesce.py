"""Calls that are made in one turn of the event loop, sent as one request.

A step of training begins with hundreds of acquires at once, and an abort ends as many executions in one instant. Each
of them as a request of its own costs a millisecond of the event loop, while a router answers all of them in one. So the
calls of one turn wait for its end, and go out together as ``leases:batch``; a call that is alone goes as it is, and
nobody ever waits for others to come.

Nothing else changes for a caller. Each operation of a batch has its own key and its own answer, so it is repeated,
refused and abandoned alone. A batch never waits, since it would for the longest wait in it: an acquire that may wait
and is not granted at once asks again alone, with the same key. A batch that is refused as a whole, because one of it is
malformed, is sent one by one, so that the one at fault is told, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from trimtab.wire import Batched, Call, Reply, TransportFault

__all__ = ["MAX_BATCH", "Coalescer"]

MAX_BATCH = 1024
"""The most operations that a router takes in one request."""

_OK, _SERVER_ERROR = 200, 500


class _Waiting(NamedTuple):
    """An operation of this turn, and where its answer goes: ``None`` says to send it alone."""

    batched: Batched
    answer: asyncio.Future[Reply | None]


class Coalescer:
    """Sends calls, those of one turn together. Belongs to one event loop, and to one sender.

    Args:
        send: Sends one call; raises ``TransportFault``.
    """

    def __init__(self, send: Callable[[Call], Awaitable[Reply]]) -> None:
        self._send = send
        self._turn: list[_Waiting] = []
        self._batches: set[asyncio.Task[None]] = set()

    async def send(self, call: Call) -> Reply:
        """The answer to ``call``.

        Raises:
            TransportFault: No complete answer arrived.
        """
        reply = None if call.batched is None else await self._together(call.batched)
        if reply is None or (call.wait_s > 0 and reply.status != _OK):
            return await self._send(call)
        return reply

    async def close(self) -> None:
        """Gives up what is under way. Whoever waited for it was cancelled before."""
        for batch in self._batches:
            batch.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)

    async def _together(self, batched: Batched) -> Reply | None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply | None] = loop.create_future()
        self._turn.append(_Waiting(batched, answer))
        if len(self._turn) == 1:
            # Runs after every task that is ready now, each of which may add a call.
            loop.call_soon(self._end_turn)
        return await answer

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, []
        by_path: dict[str, list[_Waiting]] = {}
        for waiting in _unanswered(turn):
            by_path.setdefault(waiting.batched.path, []).append(waiting)
        for wanted in by_path.values():
            if len(wanted) == 1:
                wanted[0].answer.set_result(None)
                continue
            for first in range(0, len(wanted), MAX_BATCH):
                self._begin_batch(wanted[first : first + MAX_BATCH])

    def _begin_batch(self, batch: Sequence[_Waiting]) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(batch))
        self._batches.add(task)
        task.add_done_callback(partial(self._end_batch, batch))

    def _end_batch(self, batch: Sequence[_Waiting], task: asyncio.Task[None]) -> None:
        self._batches.discard(task)
        # Of a client that was closed meanwhile, perhaps before the task began, or by an error of ours, which is logged.
        for waiting in _unanswered(batch):
            waiting.answer.cancel()

    async def _carry_out(self, batch: Sequence[_Waiting]) -> None:
        try:
            reply = await self._send(_batch_call([waiting.batched for waiting in batch]))
        except TransportFault as fault:
            for waiting in _unanswered(batch):
                waiting.answer.set_exception(TransportFault(str(fault)))
        else:
            answers = _answers(reply, len(batch))
            for waiting, answer in zip(batch, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)


def _unanswered(batch: Sequence[_Waiting]) -> list[_Waiting]:
    return [waiting for waiting in batch if not waiting.answer.done()]


def _batch_call(batch: Sequence[Batched]) -> Call:
    # What a sender settled only grows, so the last list says it all; hundreds of long ones would be the bulk of it.
    requests = [{each.operation: {**each.members, "settled": []}} for each in batch[:-1]]
    requests.append({batch[-1].operation: dict(batch[-1].members)})
    return Call("POST", batch[0].path, {"requests": requests})


def _answers(reply: Reply, count: int) -> Sequence[Reply | None]:
    """One answer for each operation of a batch; ``None`` for those that have to be sent alone."""
    if reply.status >= _SERVER_ERROR:
        return [reply] * count
    results: Any = reply.members.get("results") if isinstance(reply.members, dict) else None
    if reply.status != _OK or not isinstance(results, list) or len(results) != count:
        return [None] * count
    return [Reply(result["status"], result["body"]) for result in results]
