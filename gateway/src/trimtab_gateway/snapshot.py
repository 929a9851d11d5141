"""What the gateway says about itself: one immutable snapshot, swapped whole.

Every reader (discovery, health, metrics, status, logs) takes the same :class:`Snapshot`, so that two answers of one
moment cannot disagree. A snapshot is rebuilt when the last one is older than :data:`MAX_AGE_S`: the cost of reading is
bounded whatever the number of readers, and a pool is locked for the length of one copy.

Two counters per role tell readers what changed. ``topology_revision`` moves when the set of endpoints does: an engine
came, went, or came back as another incarnation. ``snapshot_seq`` moves with every change of the discovery document.
Both are comparable within one ``epoch``, which is new with each gateway process.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trimtab._core import BackendStatistics, Pool, PoolStatistics

MAX_AGE_S = 0.05


@dataclass(frozen=True)
class ServedRole:
    """A role as it is served.

    Attributes:
        name: First segment of its URLs.
        models: The pool of each model.
        default_model: Serves a request that names no model; None: the request must name one.
        route_keys: The model behind each route key.
        router_urls: The router of each model that is reached through one, never directly.
        lenient_model: Any model name is accepted.
        session_fields: Members of a body that may name the session.
    """

    name: str
    models: Mapping[str, Pool]
    default_model: str | None
    route_keys: Mapping[str, str] = field(default_factory=dict)
    router_urls: Mapping[str, str] = field(default_factory=dict)
    lenient_model: bool = False
    session_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSnapshot:
    """One model and its pool at one moment."""

    name: str
    state: str
    pool: PoolStatistics


@dataclass(frozen=True)
class RoleSnapshot:
    """One role at one moment."""

    served: ServedRole
    name: str
    default_model: str | None
    topology_revision: int
    snapshot_seq: int
    models: tuple[ModelSnapshot, ...]


@dataclass(frozen=True)
class Snapshot:
    """Every role at one moment. ``taken_at`` is a reading of the publisher's clock, in seconds."""

    epoch: str
    taken_at: float
    roles: Mapping[str, RoleSnapshot]

    @property
    def ready(self) -> bool:
        """Whether every model has an engine that may take a request now."""
        return all(model.state == "ready" for role in self.roles.values() for model in role.models)


class Publisher:
    """Builds the snapshots of a set of roles.

    Args:
        roles: The roles to watch.
        clock: Monotonic seconds.
    """

    def __init__(self, roles: tuple[ServedRole, ...], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._served = roles
        self._clock = clock
        self._last = Snapshot(epoch=uuid.uuid4().hex, taken_at=float("-inf"), roles={})

    def current(self) -> Snapshot:
        """The newest snapshot, at most :data:`MAX_AGE_S` old."""
        now = self._clock()
        if now - self._last.taken_at > MAX_AGE_S:
            roles = {role.name: self._observe(role) for role in self._served}
            self._last = Snapshot(epoch=self._last.epoch, taken_at=now, roles=roles)
        return self._last

    def _observe(self, role: ServedRole) -> RoleSnapshot:
        models = tuple(_observe_model(name, pool) for name, pool in role.models.items())
        revision, seq = 1, 1
        if (last := self._last.roles.get(role.name)) is not None:
            revision = last.topology_revision + (_endpoints(models) != _endpoints(last.models))
            seq = last.snapshot_seq + (_document(models) != _document(last.models))
        return RoleSnapshot(role, role.name, role.default_model, revision, seq, models)


def engine_state(backend: BackendStatistics) -> str:
    """Where an engine stands: ``starting`` (not reached yet), ``ready``, ``draining``, ``down`` or ``pending_version``.

    One whose breaker is half open is ``down``: it takes a single trial. ``pending_version`` is an engine that lives and
    has other weights than the published ones.
    """
    if backend.draining:
        return "draining"
    state = {"unproven": "starting", "down": "down", "half_open": "down"}.get(backend.health)
    return state or ("ready" if backend.eligible else "pending_version")


def _observe_model(name: str, pool: Pool) -> ModelSnapshot:
    statistics = pool.statistics()
    return ModelSnapshot(name, _model_state(statistics), statistics)


def _model_state(pool: PoolStatistics) -> str:
    """Whether and why not a pool can serve.

    ``failed`` and ``closed`` pools grant nothing any more, one that awaits its first version nothing yet
    (``starting``). Otherwise ``ready`` when an engine may take a request, else the state all engines share, else
    ``unavailable``. An update in progress changes nothing here: requests wait for its end, and nothing is ill.
    """
    if pool.state in ("failed", "closed"):
        return pool.state
    if pool.state == "init":
        return "starting"
    if any(backend.eligible for backend in pool.backends):
        return "ready"
    states = {engine_state(backend) for backend in pool.backends} - {"ready"}
    return states.pop() if len(states) == 1 else "unavailable"


Endpoint = tuple[str, str, int, str]


def _endpoint(model: ModelSnapshot, backend: BackendStatistics) -> Endpoint:
    return (model.name, backend.id, backend.generation, backend.url)


def _endpoints(models: tuple[ModelSnapshot, ...]) -> frozenset[Endpoint]:
    return frozenset(_endpoint(model, backend) for model in models for backend in model.pool.backends)


def _document(models: tuple[ModelSnapshot, ...]) -> list[object]:
    """Everything that a discovery document says about ``models``."""
    document: list[object] = [(model.name, model.state, model.pool.weight_version) for model in models]
    for model in models:
        document += [
            (_endpoint(model, each), engine_state(each), each.eligible, each.capacity) for each in model.pool.backends
        ]
    return document
