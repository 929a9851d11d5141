"""Engines that come and go while a model is served: its start, its scale, single engines, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab._core import normalize_address
from trimtab.errors import InvalidRequest, InvalidTransition, TrimtabError
from trimtab.fleet import EngineResult
from trimtab.spec import EngineGroupSpec
from trimtab_manager.fleet.fan_out import fan_out
from trimtab_manager.fleet.replica import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.fleet import OperationResult
    from trimtab.spec import InferenceModelSpec
    from trimtab_manager.fleet.model_fleet import ModelFleet
    from trimtab_manager.fleet.replica import Replica


class Membership:
    """The comings and goings of one model. What makes engines is done one after another: it counts what is there.

    Args:
        fleet: Its engines.
        owner_of: Which engine of any model of the manager has an address, in words; None: none has.
    """

    def __init__(self, fleet: ModelFleet, owner_of: Callable[[str], str | None]) -> None:
        self._fleet = fleet
        self._owner_of = owner_of
        self._making = asyncio.Lock()

    async def start(self) -> OperationResult:
        """Bring up every engine that should be there, is not, and is not being replaced.

        Where dead engines are replaced, each is published as it comes, and one that fails is tried again; the row says
        so. Where they are not, all are published in one step, or none.

        Raises:
            TrimtabError: What failed, where nothing is replaced.
        """
        async with self._making:
            return await self._start()

    async def _start(self) -> OperationResult:
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        slots = list(fleet.slots.values())
        present = [slot for slot in slots if slot.replica is not None]
        rows = await self._start_absent(slots)
        return fleet.result("start", [*(_row(slot) for slot in present), *rows], began_s)

    async def _start_absent(self, slots: Sequence[Slot]) -> list[EngineResult]:
        fleet = self._fleet
        absent = [slot for slot in slots if slot.replica is None and not fleet.recovery.has(slot)]
        if fleet.spec.fault_tolerance_enabled:
            return await asyncio.gather(*(self._start_one(slot) for slot in absent))
        await fleet.bring_up(absent, "start")
        return [_row(slot) for slot in absent]

    async def scale(self, replicas: int, group: str | None) -> OperationResult:
        """Have that many engines of a group: new ones are published in one step, or none; the latest leave first.

        One that was given up is started again.

        Raises:
            InvalidRequest: No such group, or it cannot be scaled.
            TrimtabError: A new engine did not come up; nothing changed.
        """
        async with self._making:
            return await self._scale(replicas, group)

    async def _scale(self, replicas: int, group: str | None) -> OperationResult:
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        if replicas < 0:
            raise InvalidRequest(f"replicas must be at least 0, got {replicas}")
        spec = self._group(group)
        present = [slot for slot in fleet.slots.values() if slot.group is spec and slot.url is None]
        missing = replicas - len(present)
        if missing > 0:
            self._refuse_late_engines("scaling up")
            slots = [Slot(self._free_id(offset), spec) for offset in range(missing)]
            await self._add(slots, f"scale of {spec.name} to {replicas}")
            rows = [_row(slot) for slot in slots]
        else:
            rows = await self._leave(present[replicas:], f"scale of {spec.name} to {replicas}")
        return fleet.result("scale", [*rows, *await self._start_absent(present[:replicas])], began_s)

    async def add(self, url: str, *, capacity: float | None, lifecycle: bool) -> OperationResult:
        """Attach to an engine that runs already.

        Raises:
            InvalidAddress, InvalidRequest: It cannot be one.
            TrimtabError: It is not what the manager can work with; nothing changed.
        """
        async with self._making:
            return await self._attach(url, capacity, lifecycle=lifecycle)

    async def _attach(self, url: str, capacity: float | None, *, lifecycle: bool) -> OperationResult:
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        self._refuse_late_engines("adding an engine")
        check_rights(fleet.pool.name, fleet.spec, lifecycle)
        normal = normalize_address(url)[1]
        if (same := next((slot for slot in fleet.slots.values() if slot.url == normal), None)) is not None:
            return fleet.result("add_engine", [_row(same)], began_s)
        if (owner := self._owner_of(normal)) is not None:
            # Two models that update, pause or put to sleep one engine would not know what it does.
            raise InvalidRequest(f"{normal} is refused: it is engine {owner} already; remove it there first")
        group = EngineGroupSpec(
            name="added", launcher="external", urls=(normal,), capacity=capacity, lifecycle=lifecycle
        )
        slot = Slot(self._free_id(0), group, normal)
        await self._add([slot], f"addition of {normal}")
        return fleet.result("add_engine", [_row(slot)], began_s)

    async def remove(self, engine: str) -> OperationResult:
        """Unpublish an engine, fence it, let it finish, and stop it.

        Raises:
            UnknownBackend: No such engine.
            InvalidTransition: It is just being started.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        slot = fleet.slot(engine)
        if slot.replica is None and self._making.locked() and not fleet.recovery.has(slot):
            raise InvalidTransition(f"engine {engine} is being started: remove it when that is over")
        rows = await self._leave([slot], "removal")
        return fleet.result("remove_engine", rows, began_s)

    async def end(self) -> OperationResult:
        """Fence every engine, and stop them: what they run has the grace of a stop to end."""
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        leaving = fleet.publication.unpublish(list(fleet.slots.values()), "shutdown")
        await fleet.monitor.close()
        await fleet.recovery.close()

        async def end(replica: Replica) -> None:
            await fleet.candidates.destroy(replica)
            replica.gate.remove()

        settings = fleet.settings
        deadline_s = 2 * settings.stop_grace_s + 2 * settings.control_timeout_s
        rows = await fan_out(leaving, end, deadline_s=deadline_s, clock=fleet.clock)
        for replica in leaving:
            replica.gate.remove()
        fleet.hold.lift()
        return fleet.result("shutdown", rows, began_s)

    async def _start_one(self, slot: Slot) -> EngineResult:
        fleet = self._fleet
        try:
            await fleet.bring_up([slot], f"start of engine {slot.id}")
        except TrimtabError as error:
            slot.absent = f"it did not start, and is tried again: {error}"
            fleet.events.warning("engine did not start", engine=slot.id, generation=slot.generation, error=str(error))
            fleet.recovery.request(slot)
        return _row(slot)

    async def _add(self, slots: Sequence[Slot], why: str) -> None:
        fleet = self._fleet
        fleet.slots.update({slot.id: slot for slot in slots})
        try:
            await fleet.bring_up(slots, why)
        except BaseException:
            for slot in slots:
                del fleet.slots[slot.id]
            raise

    async def _leave(self, slots: Sequence[Slot], why: str) -> list[EngineResult]:
        fleet = self._fleet
        absent = [slot for slot in slots if slot.replica is None]
        leaving = fleet.publication.unpublish(slots, why)
        for slot in slots:
            del fleet.slots[slot.id]
        await asyncio.gather(*(fleet.recovery.forget(slot) for slot in absent))
        settings = fleet.settings

        async def leave(replica: Replica) -> None:
            try:
                await replica.engine.drain(settings.drain_deadline_s, policy="wait")
            finally:
                # What has not finished by the deadline is aborted by the end of the engine.
                await fleet.candidates.destroy(replica)
                replica.gate.remove()

        deadline_s = settings.drain_deadline_s + 2 * settings.stop_grace_s + 2 * settings.control_timeout_s
        rows = await fan_out(leaving, leave, deadline_s=deadline_s, clock=fleet.clock)
        for row in rows:
            fleet.events.info("engine has left", engine=row.engine, why=why, status=row.status, error=row.error)
        return [*rows, *(EngineResult(slot.id, "ok", 0.0, None, "gone") for slot in absent)]

    def _group(self, name: str | None) -> EngineGroupSpec:
        groups = self._fleet.spec.engine_groups
        known = ", ".join(group.name for group in groups)
        if name is None and len(groups) > 1:
            raise InvalidRequest(f"{self._fleet.pool.name} has several engine groups: say which one ({known})")
        group = next((group for group in groups if name in (None, group.name)), None)
        if group is None:
            raise InvalidRequest(f"{self._fleet.pool.name} has no engine group {name!r} (it has: {known})")
        if group.launcher == "external":
            raise InvalidRequest(
                f"engine group {group.name!r} cannot be scaled: others run its engines; add or remove them"
            )
        return group

    def _refuse_late_engines(self, what: str) -> None:
        spec = self._fleet.spec
        if spec.needs_weight_update and not spec.elastic_enabled:
            raise InvalidRequest(
                f"{self._fleet.pool.name}: {what} is refused: engines that come later need the trainer's weights, and"
                " elastic_enabled is off"
            )

    def _free_id(self, offset: int) -> str:
        """The id of the ``offset``-th new engine: above all that are taken, so that none is used twice at a time."""
        taken = [int(engine.rpartition("/")[2]) for engine in self._fleet.slots]
        return self._fleet.spec.engine_id(max(taken, default=-1) + 1 + offset)


def check_rights(pool: str, model: InferenceModelSpec, lifecycle: bool) -> None:
    """An engine that may not be updated would go on with old weights, under the label of the new ones.

    Raises:
        InvalidRequest: It would.
    """
    if model.needs_weight_update and not lifecycle:
        raise InvalidRequest(
            f"{pool}: an engine without lifecycle rights (lifecycle = false) is refused: the model's weights are"
            " updated, and its own would not be"
        )


def _row(slot: Slot) -> EngineResult:
    if slot.replica is None:
        return EngineResult(slot.id, "error", 0.0, slot.absent, "absent")
    return EngineResult(slot.id, "ok", 0.0, None, slot.replica.state, {"generation": slot.replica.generation})
