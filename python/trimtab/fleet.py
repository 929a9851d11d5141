"""Control of a fleet, as gateway and manager share it: operations on a role or model, and a result per engine.

The gateway offers these operations over HTTP and the manager carries them out; neither imports the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["EngineResult", "EngineStanding", "FleetControl", "ModelStanding", "OperationResult", "TopologyCount"]

Status = Literal["ok", "error", "timeout", "skipped"]


@dataclass(frozen=True)
class EngineResult:
    """What became of an operation on one engine.

    Attributes:
        engine: Its id.
        status: ``ok``; ``error``: it said no, or is not there; ``timeout``: nobody knows; ``skipped``: not tried.
        seconds: How long it took.
        error: What was wrong, with the last evidence and the next step.
        state: The state it is in afterwards.
        detail: Facts of the operation, as JSON values.
    """

    engine: str
    status: Status
    seconds: float
    error: str | None = None
    state: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OperationResult:
    """What became of an operation on a model.

    Attributes:
        operation: Its name, such as ``pause``.
        role: The role.
        model: The model.
        engines: One row per engine.
        seconds: How long all of it took.
        weight_version: The published version afterwards.
        detail: Facts of the operation, such as the seconds of each step of an update.
    """

    operation: str
    role: str
    model: str
    engines: Sequence[EngineResult]
    seconds: float
    weight_version: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it worked on every engine."""
        return all(row.status == "ok" for row in self.engines)


@dataclass(frozen=True)
class TopologyCount:
    """How often the engines of each role changed, by the count of whoever changes them.

    Attributes:
        epoch: The counts are comparable within it.
        revisions: ``topology_revision`` by role.
    """

    epoch: str
    revisions: Mapping[str, int]


@dataclass(frozen=True)
class EngineStanding:
    """Where one engine stands for whoever runs it; what the router knows of it stands elsewhere.

    Attributes:
        engine: Its id.
        generation: Which incarnation; of an engine that is not there the last one that was tried.
        state: Of its life, such as ``ready``, ``sleeping``, ``starting``; ``absent``: it is not there, nor coming now.
        reason: Why it is not there, or why it is out of routing by somebody's will.
    """

    engine: str
    generation: int
    state: str
    reason: str | None = None


@dataclass(frozen=True)
class ModelStanding:
    """Where the engines of a model stand for whoever runs them.

    Attributes:
        hold: ``paused`` or ``sleeping`` by somebody's will; None: neither.
        changing: The change of its engines that runs now.
        recovering: Ids of engines that are being killed or replaced.
        engines: All that should be there.
    """

    hold: str | None
    changing: str | None
    recovering: Sequence[str]
    engines: Sequence[EngineStanding]


class FleetControl(Protocol):
    """Whoever can act on the engines of a role.

    Every operation is idempotent, acts on one model (the role's default one when ``model`` is None) and has a deadline.
    Errors of the whole operation (no such model, another update runs) are :class:`trimtab.TrimtabError`.
    """

    def topology_count(self) -> TopologyCount:
        """How often the engines of each role changed. At once, and it cannot fail."""

    def standing(self, role: str, model: str) -> ModelStanding | None:
        """Where the engines of a model stand; None: they are not its own. At once, and it cannot fail."""

    async def pause(self, role: str, model: str | None = None, *, mode: str = "abort") -> OperationResult:
        """Fence the model and pause its engines (``abort``, ``in_place``, ``retract``)."""

    async def resume(self, role: str, model: str | None = None) -> OperationResult:
        """End such a pause: engines go on, then the fence is lifted."""

    async def flush(self, role: str, model: str | None = None) -> OperationResult:
        """Empty the KV caches of its engines."""

    async def drain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """Take one engine, or all, out of routing and wait until nothing runs on it."""

    async def undrain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """Take drained engines back into routing."""

    async def sleep(self, role: str, model: str | None = None) -> OperationResult:
        """Drain, flush and release the memory of its engines."""

    async def wake(self, role: str, model: str | None = None, *, tags: Sequence[str] | None = None) -> OperationResult:
        """Take the memory back: weights, then KV cache; the model serves once all tags are in."""

    async def update_from_disk(
        self, role: str, model: str | None = None, *, path: str, version: int, flush: str = "flush"
    ) -> OperationResult:
        """Replace the weights by those at ``path`` on the engines' hosts and publish ``version``."""

    async def scale(
        self, role: str, model: str | None = None, *, replicas: int, group: str | None = None
    ) -> OperationResult:
        """Have that many engines of a group: all new ones come, or none; the latest leave first, and finish before."""

    async def add_engine(
        self, url: str, role: str, model: str | None = None, *, capacity: float | None = None
    ) -> OperationResult:
        """Take in an engine that runs already; it gets requests once it has the published weights."""

    async def remove_engine(self, engine: str, role: str, model: str | None = None) -> OperationResult:
        """Let an engine finish, and stop it, or let it go when somebody else runs it."""
