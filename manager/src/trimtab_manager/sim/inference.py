"""What the three inference endpoints share: building executions, and following them to their end."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from trimtab_manager.sim.execution import Execution, LogprobRequest
from trimtab_manager.sim.sampling import RequestError, SamplingParams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

SESSION_HEADER = "x-session-id"


def new_rid() -> str:
    """A request id as SGLang makes them: 32 hex digits."""
    return uuid.uuid4().hex


def request_ids(given: str | list[str] | None, batch: int, *, single: bool, samples: int) -> list[str]:
    """Ids of the executions of a request, in the order of its prompts and, within a prompt, of its samples.

    A string on a batch becomes ``rid_0``, ``rid_1``, ...; with several samples the client's ids are not used at all, so
    that such a request cannot be aborted by id. Raises ``RequestError`` for a list of the wrong length or with repeats.
    """
    if isinstance(given, list):
        if len(given) != (1 if single else batch):
            raise RequestError("The specified rids length mismatch with the batch_size for batch processing.")
        if repeated := [rid for rid in dict.fromkeys(given) if given.count(rid) > 1]:
            raise RequestError(f"Duplicate request IDs detected within the request: {repeated}")
    if samples > 1 or given is None:
        return [new_rid() for _ in range(batch * samples)]
    if isinstance(given, list):
        return given
    return [given] if single else [f"{given}_{position}" for position in range(batch)]


def build(
    prompts: Sequence[str],
    params: Sequence[SamplingParams],
    rids: Sequence[str],
    *,
    stream: bool,
    logprobs: LogprobRequest | None = None,
    session: str | None = None,
) -> list[Execution]:
    """Executions of packed prompts, ``n`` for each; they share one event."""
    changed = asyncio.Event()
    pairs = [(prompt, wanted) for prompt, wanted in zip(prompts, params, strict=True) for _ in range(wanted.n)]
    return [
        Execution(
            rid=rid,
            prompt=prompt,
            params=wanted,
            changed=changed,
            stream=stream,
            logprobs=logprobs,
            session=session,
        )
        for rid, (prompt, wanted) in zip(rids, pairs, strict=True)
    ]


async def finished(executions: Sequence[Execution]) -> None:
    """Wait until all have ended."""
    while any(execution.finish is None for execution in executions):
        await executions[0].changed.wait()
        executions[0].changed.clear()


async def progress(executions: Sequence[Execution]) -> AsyncIterator[tuple[int, Execution]]:
    """Yield ``(index, execution)`` whenever one has more output or has ended, until all have ended.

    Tokens that came while the consumer was busy are one step: events of a stream merge when its reader is slow.
    """
    sent = [-1] * len(executions)
    left = set(range(len(executions)))
    while left:
        await executions[0].changed.wait()
        executions[0].changed.clear()
        for index in sorted(left):
            execution = executions[index]
            ended = execution.finish is not None
            if ended or len(execution.tokens) > max(sent[index], 0):
                sent[index] = len(execution.tokens)
                if ended:
                    left.discard(index)
                yield index, execution


def session_of(headers: Any, body: dict[str, Any]) -> str | None:
    """The session that a request names, in its header or its body."""
    named = headers.get(SESSION_HEADER) or body.get("session_id")
    return named if isinstance(named, str) else None
