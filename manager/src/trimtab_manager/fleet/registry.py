"""Which engines a role has published: one immutable topology, swapped whole.

The manager owns two counters. ``epoch`` is new with each manager, ``topology_revision`` grows with every change of the
set of published engines (an engine came, went, or came back as another incarnation) and is comparable within an epoch.
An engine is published when it may get requests as far as the manager is concerned; whether it gets some now is the
router's knowledge, and what it does now is its own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class PublishedEngine:
    """One published incarnation.

    Attributes:
        id: Unique in the role.
        generation: Which incarnation of that id.
        url: Where it is reached.
        capacity: Its weight in the router.
    """

    id: str
    generation: int
    url: str
    capacity: float


@dataclass(frozen=True)
class Topology:
    """What a role has published at one moment.

    Attributes:
        epoch: The manager's.
        revision: ``topology_revision``.
        models: The engines of each model.
    """

    epoch: str
    revision: int
    models: Mapping[str, tuple[PublishedEngine, ...]]

    def engine(self, engine_id: str) -> PublishedEngine | None:
        """The published incarnation of an id."""
        return next((each for engines in self.models.values() for each in engines if each.id == engine_id), None)


class Registry:
    """The topology of one role, and the only place that changes it.

    Args:
        models: The role's models, without engines yet.
        epoch: The manager's; a new one by default.
    """

    def __init__(self, models: Iterable[str], *, epoch: str | None = None) -> None:
        empty: dict[str, tuple[PublishedEngine, ...]] = dict.fromkeys(models, ())
        self._topology = Topology(epoch or uuid.uuid4().hex, 1, MappingProxyType(empty))

    @property
    def topology(self) -> Topology:
        """What is published now. It never changes; the next one is another object."""
        return self._topology

    def publish(self, model: str, *, add: Iterable[PublishedEngine] = (), remove: Iterable[str] = ()) -> Topology:
        """Publish a new topology, in one step.

        Args:
            model: Whose engines come or go.
            add: New ones; one of an id that is published replaces it.
            remove: Ids; one that is not published changes nothing.

        Returns:
            The new topology, or the same one when nothing changed.
        """
        added = {engine.id: engine for engine in add}
        gone = {*remove, *added}
        before = self._topology.models[model]
        after = (*(engine for engine in before if engine.id not in gone), *added.values())
        if after == before:
            return self._topology
        models = MappingProxyType({**self._topology.models, model: after})
        self._topology = replace(self._topology, revision=self._topology.revision + 1, models=models)
        return self._topology
