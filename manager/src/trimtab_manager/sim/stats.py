"""The statistics of an engine: one frozen object for tests, ``/sim/statistics``, metrics and people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class EngineStatistics:
    """A frozen snapshot of one engine.

    Attributes:
        running: Requests in the running batch.
        waiting: Requests in the scheduler's queue.
        at_gate: Requests held before the scheduler by a pause or an update.
        requests_received: Executions since the start (a batch of n counts n).
        requests_finished: Executions that ended, however they ended.
        requests_aborted: Those of them that ended in an abort.
        aborted_rids: Their ids, oldest first; bounded.
        abort_calls: What ``/abort_request`` was asked for, oldest first (``*`` for all); bounded.
        disconnects: Requests whose client went away before the answer was complete.
        prompt_tokens: Prompt tokens of executions that ran.
        cached_tokens: Those of them that the prefix cache had.
        generated_tokens: Output tokens.
        kv_used: Tokens that running requests hold.
        kv_evictable: Tokens that only the prefix cache holds.
        weight_version: Label of the weights, as ``/model_info`` reports it.
        paused: The pause mode, or ``None``.
        sessions: Executions per session id (header ``x-session-id`` or body ``session_id``); bounded.
        crashed: Why the engine died, or ``None``.
    """

    running: int
    waiting: int
    at_gate: int
    requests_received: int
    requests_finished: int
    requests_aborted: int
    aborted_rids: tuple[str, ...]
    abort_calls: tuple[str, ...]
    disconnects: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    kv_used: int
    kv_evictable: int
    weight_version: str
    paused: str | None
    sessions: Mapping[str, int]
    crashed: str | None
