"""One turn of a session: a raw ``/generate`` request through the gateway, streamed or whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import orjson

from trimtab.cli.demo.answer import TurnError, TurnResult, read_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["send_turn"]


async def send_turn(
    http: aiohttp.ClientSession, url: str, *, session: str, input_ids: Sequence[int], output_tokens: int, stream: bool
) -> TurnResult:
    """Send one turn and return its answer.

    Args:
        http: The client that holds the connections.
        url: Address of the gateway's ``/generate``.
        session: Key of the session. It goes out as ``x-session-id``, which the gateway hands on, so that the engine too
            keeps a record of it.
        input_ids: The whole context so far.
        output_tokens: Tokens to generate, exactly.
        stream: Whether to ask for an event stream.

    Raises:
        TurnError: No answer came, or not the one that was asked for.
    """
    sampling = {"max_new_tokens": output_tokens, "ignore_eos": True}
    body = orjson.dumps({"input_ids": input_ids, "sampling_params": sampling, "stream": stream})
    headers = {"content-type": "application/json", "x-session-id": session}
    try:
        async with http.post(url, data=body, headers=headers) as response:
            payload = await response.read()
    except aiohttp.ClientError as error:
        raise TurnError(f"{type(error).__name__}: {error}") from error
    backend = response.headers.get("x-trimtab-backend")
    return read_answer(response.status, backend, payload, stream=stream, asked=output_tokens)
