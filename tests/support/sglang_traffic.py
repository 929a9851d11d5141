"""Requests for SGLang with repeatable answers, and what of an answer is not repeatable."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    import aiohttp

T = TypeVar("T")

DONE = b"[DONE]"

LETTERS = {str(token): 100 for token in range(64, 90)}
"""A ``logit_bias`` that leaves the tokens of ``a`` to ``z``. Otherwise the tiny model writes bytes that are no UTF-8,
and SGLang's streams leave out what completes no character: the log-probs of a stream would not repeat."""

# Times, and what follows from them. Everything else in an answer at temperature 0 repeats.
_VOLATILE = (
    "api_server_dispatch_finish_ts|created|decode_throughput|e2e_latency|first_token_latency|forward_entry_time|"
    "prefill_finished_time|queue_time|request_finished_ts|request_received_ts|response_sent_to_client_ts"
)
_VOLATILE_VALUE = re.compile(rb'"(' + _VOLATILE.encode() + rb')":-?[0-9.e+-]+')


def greedy(input_ids: Sequence[int], tokens: int, **fields: Any) -> dict[str, Any]:
    """Return a ``/generate`` body that yields exactly ``tokens`` tokens, the same ones each time."""
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"input_ids": list(input_ids), "sampling_params": sampling, **fields}


def chat(content: str, tokens: int, **fields: Any) -> dict[str, Any]:
    """Return a chat body that yields exactly ``tokens`` tokens, the same ones each time."""
    message = {"role": "user", "content": content}
    return {
        "model": "tiny",
        "messages": [message],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        **fields,
    }


def fresh_id() -> str:
    """Return a request id that was never used. SGLang cuts the text of a request whose id an earlier one had."""
    return uuid.uuid4().hex


def stable(body: bytes, rid: str) -> bytes:
    """Return an answer with its request id blanked and each time-dependent number as 0; no other byte changes."""
    return _VOLATILE_VALUE.sub(rb'"\1":0', body.replace(rid.encode(), b"-"))


async def post(client: aiohttp.ClientSession, url: str, body: Any, session: str | None = None) -> tuple[Any, bytes]:
    """POST ``body`` as JSON; the answer (headers and status) and its whole body."""
    headers = {} if session is None else {"x-trimtab-session": session}
    async with client.post(url, json=body, headers=headers) as answer:
        return answer, await answer.read()


async def next_event(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """Read one event of a stream whose connection stays open."""
    event = await answer.content.readuntil(b"\n\n")
    return cast("dict[str, Any]", json.loads(event.removeprefix(b"data: ")))


def events(stream: bytes) -> list[bytes]:
    """Split an event stream into its data; every event is one ``data:`` line."""
    blocks = [block for block in stream.split(b"\n\n") if block.strip()]
    assert all(block.strip().startswith(b"data: ") for block in blocks), stream
    return [block.strip().removeprefix(b"data: ") for block in blocks]


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, T]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Run ``work`` as tasks while the block runs. What the block did not await is cancelled at its end."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
