"""Reading a raw ``/generate`` answer, streamed or whole."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["TurnError", "TurnResult", "read_answer"]

STATUS_OK = 200
EXCERPT_BYTES = 200  # of a body quoted in a message


class TurnError(Exception):
    """A turn did not end as planned; the message says what came instead."""


@dataclass(frozen=True)
class TurnResult:
    """What a client learns from one answer; counts are tokens as the engine reported them.

    Attributes:
        backend: Id of the engine that answered, from ``x-trimtab-backend``.
        output_ids: The generated tokens.
        prompt_tokens: Length of the prompt.
        cached_tokens: Part of the prompt that was in the engine's prefix cache.
    """

    backend: str
    output_ids: list[int]
    prompt_tokens: int
    cached_tokens: int

    @property
    def output_tokens(self) -> int:
        """Tokens generated in this turn."""
        return len(self.output_ids)


def read_answer(status: int, backend: str | None, payload: bytes, *, stream: bool, asked: int) -> TurnResult:
    """Check an answer against what was asked for and return what the demo counts.

    Args:
        status: HTTP status.
        backend: Value of ``x-trimtab-backend``.
        payload: The whole body.
        stream: Whether an event stream was asked for.
        asked: Tokens asked for; the request ignores the end-of-sequence token, so exactly so many must come.

    Raises:
        TurnError: The answer is an error, broke off, or has another length.
    """
    if status != STATUS_OK:
        raise TurnError(f"HTTP {status}: {_excerpt(payload)}")
    if backend is None:
        raise TurnError("the answer has no x-trimtab-backend header")
    answer = json.loads(_last_event(payload) if stream else payload)
    if "error" in answer:
        raise TurnError(f"{backend} answered an error: {answer['error']}")
    meta = answer["meta_info"]
    result = TurnResult(backend, answer["output_ids"], meta["prompt_tokens"], meta["cached_tokens"])
    if not result.output_tokens == meta["completion_tokens"] == asked:
        raise TurnError(
            f"{backend} sent {result.output_tokens} tokens and counted {meta['completion_tokens']} where {asked} were"
            f" asked for; finish reason {meta['finish_reason']}"
        )
    return result


def _last_event(payload: bytes) -> bytes:
    """Return the data of the event before ``[DONE]``: SGLang's events are cumulative, so it holds the whole answer."""
    events = payload.rstrip(b"\n").rsplit(b"\n\n", 2)[-2:]
    if events[-1] != b"data: [DONE]":
        raise TurnError(f"the stream broke off; its last event: {_excerpt(events[-1])}")
    if len(events) == 1:
        raise TurnError("the stream held no event")
    return events[0].removeprefix(b"data: ")


def _excerpt(payload: bytes) -> str:
    """Return the start of a body as text."""
    return payload[:EXCERPT_BYTES].decode(errors="replace")
