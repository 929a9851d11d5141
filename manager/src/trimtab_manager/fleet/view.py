"""A fleet at one moment, for people and for the gateway: frozen, and made of what the owners of each fact say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.fleet import EngineStanding, ModelStanding
from trimtab_manager.fleet.replica import NOT_STARTED

if TYPE_CHECKING:
    from trimtab_manager.fleet.model_fleet import ModelFleet
    from trimtab_manager.fleet.registry import Topology


@dataclass(frozen=True)
class EngineView:
    """One engine.

    Attributes:
        id: Its id.
        generation: Its incarnation; of an absent engine the last one that was tried.
        url: Where it is; None while it is absent.
        state: Of its state machine; ``starting`` or ``absent`` when nothing is published for the slot.
        capacity: Its weight in the router.
        weight_version: What the router knows of its weights.
        is_pending: Whether it is out of routing until it has the published weights.
        closed_for: Why it is out of routing by somebody's will.
        absent: Why it is absent.
    """

    id: str
    generation: int
    url: str | None
    state: str
    capacity: float | None = None
    weight_version: int | None = None
    is_pending: bool = False
    closed_for: tuple[str, ...] = ()
    absent: str | None = None


@dataclass(frozen=True)
class ModelView:
    """One model.

    Attributes:
        name: Its name.
        hold: ``paused`` or ``sleeping`` by the will of a controller.
        weight_version: What is published; None for weights that never change.
        engines: Every slot.
        recovering: Ids of engines that are being killed or replaced.
        changing: What has the lock of the fleet.
        monitor_suspended_by: Why its health detectors are silent.
    """

    name: str
    hold: str | None
    weight_version: int | None
    engines: tuple[EngineView, ...]
    recovering: tuple[str, ...]
    changing: str | None
    monitor_suspended_by: tuple[str, ...]


@dataclass(frozen=True)
class RoleView:
    """One role.

    Attributes:
        name: Its name.
        topology: What is published, with epoch and revision.
        models: Its models.
    """

    name: str
    topology: Topology
    models: tuple[ModelView, ...]


def view_of(fleet: ModelFleet) -> ModelView:
    """A model at this moment."""
    rows = {row.id: row for row in fleet.pool.statistics().backends}
    published = None if fleet.static else fleet.pool.weight_version
    engines = []
    for slot in fleet.slots.values():
        replica, row = slot.replica, rows.get(slot.id)
        if replica is not None and row is None:
            lost = "somebody else removed it from the router; remove the engine, or let it be replaced"
            engines.append(EngineView(slot.id, replica.generation, replica.url, replica.state, absent=lost))
            continue
        if replica is None or row is None:
            state = "starting" if slot.is_coming else "absent"
            reason = None if slot.is_coming and slot.absent == NOT_STARTED else slot.absent
            engines.append(EngineView(slot.id, slot.generation, slot.url, state, absent=reason))
            continue
        engines.append(
            EngineView(
                slot.id,
                replica.generation,
                replica.url,
                replica.state,
                capacity=replica.capacity,
                weight_version=row.weight_version,
                is_pending=published is not None and not row.weights_fit,
                closed_for=replica.gate.reasons,
            )
        )
    holder = fleet.lock.holder
    return ModelView(
        name=fleet.model,
        hold=fleet.hold.kind,
        weight_version=published,
        engines=tuple(engines),
        recovering=fleet.recovery.busy,
        changing=None if holder is None else holder.what,
        monitor_suspended_by=fleet.monitor.suspensions.owners,
    )


def standing_of(view: ModelView) -> ModelStanding:
    """The part of it that a gateway shows beside what its router knows."""
    return ModelStanding(view.hold, view.changing, view.recovering, tuple(map(_standing, view.engines)))


def _standing(engine: EngineView) -> EngineStanding:
    reason = engine.absent
    if reason is None and engine.closed_for:
        reason = f"out of routing: {', '.join(engine.closed_for)}"
    return EngineStanding(engine.id, engine.generation, engine.state, reason)
