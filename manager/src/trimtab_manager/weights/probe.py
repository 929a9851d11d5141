"""A prompt that shows whether the KV cache of the old weights is gone.

It is sent once before the transfer, on an idle engine, and again after it: what the second answer calls cached was
computed by the old weights. A flush that answers 200 and does nothing is found out that way. The prompt is another one
for each update, so that nobody else can have warmed it, and long enough to fill whole pages of a paged cache.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from trimtab_manager.engine.errors import ControlError, Malformed

if TYPE_CHECKING:
    from trimtab_manager.engine.client import EngineClient

LENGTH = 256
"""Tokens: two pages of the largest size that is usual (128)."""

LOWEST_ID, DIGITS = 10, 100
"""Token ids are taken from 10 to 109, which every vocabulary has: one beyond it would kill the server."""


def probe_prompt(update_id: str) -> list[int]:
    """The token ids for an update."""
    seed = b"".join(hashlib.sha256(f"{update_id}/{block}".encode()).digest() for block in range(LENGTH // 32))
    return [LOWEST_ID + byte % DIGITS for byte in seed]


async def ask(client: EngineClient, prompt: list[int], rid: str, *, timeout_s: float) -> dict[str, Any]:
    """``meta_info`` of one token on ``prompt``.

    Raises:
        ControlError: As the client does.
        Malformed: The answer has no ``meta_info``.
    """
    body = {
        "input_ids": prompt,
        "rid": rid,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
    }
    call = "POST /generate"
    text = await client.transport.succeed("POST", "/generate", body, timeout_s=timeout_s)
    answer = client.transport.json(call, text)
    meta = answer.get("meta_info") if isinstance(answer, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get("cached_tokens"), int):
        raise Malformed(client.engine, call, "was answered without meta_info.cached_tokens", text)
    if meta.get("finish_reason", {}).get("type") == "abort":
        raise ControlError(client.engine, call, "was aborted, though nothing else may run", str(meta["finish_reason"]))
    return meta


class StaleCache(ControlError):
    """The engine still has KV cache that the old weights computed."""

    code = "stale_cache"
