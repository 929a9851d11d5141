"""What the gateway says about itself: one immutable snapshot, swapped whole.

Every reader (discovery, health, metrics, status, logs) takes the same :class:`Snapshot`, so that two answers of one
moment cannot disagree.

Two counters per role tell readers what changed. ``topology_revision`` moves when the set of endpoints does: an engine
came, went, or came back as another incarnation, or a model is reached in another way. ``snapshot_seq`` moves with every
change of the discovery document. Both are comparable within one ``epoch``, which is new with each gateway process.

Where a manager runs the engines, epoch and ``topology_revision`` are its own: it makes the changes, so it counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from trimtab._core import BackendStatistics, Pool, PoolStatistics

SCHEMA_VERSION = 1
BY_WILL = ("updating", "draining", "sleeping", "paused")
"""States into which a controller brings a model: nothing is granted now, and nothing is ill."""


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
        expose_engine_urls: Whether discovery says where engines are.
        topology_revision: The count of whoever runs the engines, within ``Fleet.epoch``; None: the publisher counts.
    """

    name: str
    models: Mapping[str, Pool]
    default_model: str | None
    route_keys: Mapping[str, str] = field(default_factory=dict)
    router_urls: Mapping[str, str] = field(default_factory=dict)
    lenient_model: bool = False
    session_fields: tuple[str, ...] = ()
    expose_engine_urls: bool = True
    topology_revision: int | None = None


@dataclass(frozen=True)
class Fleet:
    """What is served at this moment.

    Attributes:
        roles: The roles.
        phase: Of a schedule; None without one.
        epoch: Of whoever counts the topology revisions of the roles; None: the publisher's own.
    """

    roles: tuple[ServedRole, ...]
    phase: str | None = None
    epoch: str | None = None


@dataclass(frozen=True)
class ModelSnapshot:
    """One model and its pool at one moment.

    Attributes:
        router_url: Where it is reached instead of its engines.
    """

    name: str
    state: str
    pool: PoolStatistics
    router_url: str | None = None


@dataclass(frozen=True)
class RoleSnapshot:
    """One role at one moment.

    Attributes:
        epoch: As of the whole snapshot.
        content: What the discovery document says beside the counters.
        topology: What ``topology_revision`` counts the changes of.
    """

    name: str
    epoch: str
    topology_revision: int
    snapshot_seq: int
    default_model: str | None
    models: tuple[ModelSnapshot, ...]
    content: Mapping[str, Any]
    topology: frozenset[tuple[object, ...]]

    @property
    def document(self) -> dict[str, Any]:
        """The discovery document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "role": self.name,
            "epoch": self.epoch,
            "topology_revision": self.topology_revision,
            "snapshot_seq": self.snapshot_seq,
            **self.content,
        }

    @cached_property
    def body(self) -> bytes:
        """The discovery document as JSON, made once."""
        return orjson.dumps(self.document)


@dataclass(frozen=True)
class Snapshot:
    """Every role at one moment. ``taken_at`` is a reading of the publisher's clock, in seconds."""

    epoch: str
    taken_at: float
    roles: Mapping[str, RoleSnapshot]
    stale: bool = False

    @property
    def ready(self) -> bool:
        """Whether every model has an engine that may take a request now, or after an update that runs."""
        return all(model.state in ("ready", "updating") for role in self.roles.values() for model in role.models)


def engine_state(backend: BackendStatistics, model: str = "ready") -> str:
    """Where an engine of a model in the state ``model`` stands.

    ``starting`` (not reached yet), ``down``, ``draining``, ``tainted`` (an update of it failed), the state of a model
    that a controller holds, ``ready``, or ``pending_version``: it lives and has other weights than the published ones.
    One whose breaker is half open is ``down``: it takes a single trial.
    """
    if backend.draining:
        return "draining"
    state = {"unproven": "starting", "down": "down", "half_open": "down"}.get(backend.health)
    if state is not None:
        return state
    if backend.tainted:
        return "tainted"
    if model in BY_WILL:
        return model
    return "ready" if backend.eligible else "pending_version"
