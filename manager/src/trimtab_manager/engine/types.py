"""What an engine says about itself, typed. Field names that SGLang changed between versions end here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PauseMode = Literal["abort", "in_place", "retract"]

MemoryTag = Literal["weights", "kv_cache", "cuda_graph"]

MEMORY_TAGS: tuple[MemoryTag, ...] = ("weights", "kv_cache", "cuda_graph")
"""Everything an engine can give back, in the order in which it must come back."""


@dataclass(frozen=True)
class ModelInfo:
    """``GET /model_info``: the one place whose path, name and version follow an update.

    Attributes:
        model_path: Where its weights came from; after an update from disk the path of that.
        served_model_name: Its name, which an update from disk replaces by the path.
        weight_version: Its label; ``default`` until somebody set one.
        raw: The whole answer.
    """

    model_path: str
    served_model_name: str
    weight_version: str
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class ServerInfo:
    """``GET /server_info``: values of the start-up, which no update moves. The scheduler answers, or nobody does.

    Attributes:
        version: SGLang's version.
        model_path: What it was started with.
        tp_size: Tensor-parallel ranks.
        pp_size: Pipeline-parallel ranks.
        dp_size: Data-parallel ranks.
        max_running_requests: Most requests that run at once, over all ranks; None when it does not say.
        max_total_tokens: Size of its KV cache in tokens, of one rank; None when it does not say.
        incarnation: Tells this process from any other that ever listened on the port (see ``identity``).
        raw: The whole answer.
    """

    version: str
    model_path: str
    tp_size: int
    pp_size: int
    dp_size: int
    max_running_requests: int | None
    max_total_tokens: int | None
    incarnation: str
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class RankLoad:
    """The load of one data-parallel rank.

    Attributes:
        rank: Its number, as the engine gives it: ranks of one engine need not begin at 0.
        running: Requests in the running batch.
        waiting: Requests in the queue.
        elsewhere: Requests in the scheduler's other queues (grammar, paused, retracted, disaggregation).
        max_running_requests: Most that run at once; None when it does not say.
        published_s: When the scheduler said so, on the engine's clock; None when it was asked for this very answer.
    """

    rank: int
    running: int
    waiting: int
    elsewhere: int = 0
    max_running_requests: int | None = None
    published_s: float | None = None


@dataclass(frozen=True)
class Loads:
    """The load of an engine.

    Attributes:
        ranks: One entry per data-parallel rank.
        age_s: Age of the oldest entry when the engine answered, by the engine's own clock. A scheduler that is paused
            or hangs publishes nothing, and its last words get older.
        raw: The whole answer.
    """

    ranks: tuple[RankLoad, ...]
    age_s: float
    raw: Any = field(repr=False)

    @property
    def running(self) -> int:
        """Requests that run, over all ranks."""
        return sum(rank.running for rank in self.ranks)

    @property
    def waiting(self) -> int:
        """Requests that wait in any queue, over all ranks."""
        return sum(rank.waiting + rank.elsewhere for rank in self.ranks)

    @property
    def idle(self) -> bool:
        """Whether it says that nothing runs or waits; it has to say something for that."""
        return bool(self.ranks) and self.running == 0 and self.waiting == 0

    @property
    def max_running_requests(self) -> int | None:
        """Most requests that run at once, over all ranks; None when any rank does not say."""
        limits = [rank.max_running_requests for rank in self.ranks]
        known = [limit for limit in limits if limit is not None]
        return sum(known) if known and len(known) == len(limits) else None

    @property
    def published_s(self) -> float | None:
        """When the oldest entry was published, on the engine's clock; None when it was asked for this very answer."""
        moments = [rank.published_s for rank in self.ranks if rank.published_s is not None]
        return min(moments) if moments else None
