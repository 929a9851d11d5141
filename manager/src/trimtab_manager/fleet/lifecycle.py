"""Operations on all engines of a model: pause, flush, drain, sleep, wake, and what is undone by each.

They exclude each other and updates by the fleet's lock, hold the router's latch for as long as the model must serve
nothing, and leave a row for each engine. An engine that fails in a way after which nobody knows what it does is
quarantined (by its own state machine, which ends in ``on_death`` of the fleet), and the others go on.

A drain is another matter: it changes nothing inside an engine, so it takes no lock, and an update still reaches the
engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab.errors import InvalidTransition
from trimtab.fleet import EngineResult
from trimtab_manager.fleet.fan_out import fan_out
from trimtab_manager.fleet.gate import DRAINED
from trimtab_manager.fleet.replica import DRAINING, READY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trimtab.fleet import OperationResult
    from trimtab_manager.engine.types import MemoryTag, PauseMode
    from trimtab_manager.fleet.model_fleet import ModelFleet
    from trimtab_manager.fleet.replica import Replica

    Call = Callable[[Replica], Awaitable[Mapping[str, Any] | None]]


class Lifecycle:
    """The operations of one model."""

    def __init__(self, fleet: ModelFleet) -> None:
        self._fleet = fleet

    async def pause(self, mode: PauseMode) -> OperationResult:
        """Fence the model and pause its engines. On a paused model the mode is changed.

        Raises:
            InvalidTransition: It sleeps.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        async with fleet.lock.held(f"pause ({mode})"):
            self._refuse("sleeping", "a pause")
            fleet.hold.put("paused")

            async def pause(replica: Replica) -> None:
                # A drain that waits for requests must not keep the engine from being paused: it goes on beside it.
                await (replica.engine.control if replica.state == DRAINING else replica.engine).pause(mode)

            rows = await self._control(pause, fleet.settings.pause_deadline_s)
            fleet.events.info("model is paused", mode=mode)
        return fleet.result("pause", rows, began_s)

    async def resume(self) -> OperationResult:
        """End a pause: engines go on, then the fence is lifted. Changes nothing on a model that serves.

        Raises:
            InvalidTransition: It sleeps.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        async with fleet.lock.held("resume"):
            self._refuse("sleeping", "a resume")

            async def resume(replica: Replica) -> None:
                if replica.state != DRAINING:
                    await replica.engine.resume()
                elif DRAINED in replica.gate.reasons:
                    await replica.engine.control.resume()
                else:
                    # It was taken back while the model was paused.
                    await replica.engine.cancel_drain()

            # Whoever does not say that it goes on may be paused, and must not be in routing.
            rows = await self._control(resume, fleet.settings.pause_deadline_s, is_lost=lambda _: True)
            fleet.hold.lift()
            fleet.events.info("model goes on")
        return fleet.result("resume", rows, began_s)

    async def flush(self) -> OperationResult:
        """Empty the KV caches. An engine that runs something says no, and is none the worse for it."""
        fleet, settings = self._fleet, self._fleet.settings
        began_s = fleet.clock.now_s()
        async with fleet.lock.held("flush"):
            self._refuse("sleeping", "a flush")
            deadline_s = settings.flush_deadline_s
            rows = await self._control(
                lambda replica: replica.engine.control.flush(deadline_s), deadline_s + settings.control_timeout_s
            )
        return fleet.result("flush", rows, began_s)

    async def drain(self, engine: str | None, deadline_s: float | None = None) -> OperationResult:
        """Take one engine, or all, out of routing, and wait until nothing runs on it.

        Raises:
            UnknownBackend: No such engine.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        deadline_s = fleet.settings.drain_deadline_s if deadline_s is None else deadline_s
        replicas = self._chosen(engine)
        for replica in replicas:
            replica.gate.close(DRAINED)

        async def drain(replica: Replica) -> None:
            await replica.engine.drain(deadline_s, policy="wait")

        awake = [replica for replica in replicas if replica.state in (READY, DRAINING)]
        rows = await self._rows(awake, drain, deadline_s + fleet.settings.control_timeout_s)
        idle = [EngineResult(each.id, "ok", 0.0, None, each.state) for each in replicas if each not in awake]
        for row in rows:
            fleet.events.info("engine is drained", engine=row.engine, status=row.status, error=row.error)
        return fleet.result("drain", (*rows, *idle), began_s)

    async def undrain(self, engine: str | None) -> OperationResult:
        """Take drained engines back into routing; those of a model that is paused or asleep with the model.

        Raises:
            UnknownBackend: No such engine.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()

        async def undrain(replica: Replica) -> None:
            if replica.state == DRAINING and fleet.hold.kind is None:
                await replica.engine.cancel_drain()
            replica.gate.open(DRAINED)

        # A drain that runs may be in the middle of a call, and the engine has to be well again after that.
        deadline_s = fleet.settings.control_timeout_s + fleet.settings.wake_deadline_s
        rows = await self._rows(self._chosen(engine), undrain, deadline_s)
        for row in rows:
            fleet.events.info("engine is taken back", engine=row.engine, status=row.status, error=row.error)
        return fleet.result("undrain", rows, began_s)

    async def sleep(self) -> OperationResult:
        """Drain, flush and release the memory of all engines. What they run is aborted."""
        fleet = self._fleet
        settings = fleet.settings
        began_s = fleet.clock.now_s()
        async with fleet.lock.held("sleep"):
            fleet.hold.put("sleeping")
            # Nothing may take a GPU that is about to be lent to somebody else.
            await fleet.recovery.stand_down()
            deadline_s = (
                settings.pause_deadline_s
                + settings.drain_deadline_s
                + settings.flush_deadline_s
                + settings.release_deadline_s
            )

            async def sleep(replica: Replica) -> None:
                if replica.state == DRAINING:
                    # What a drain waits for is aborted like everything else.
                    await replica.engine.drain(settings.drain_deadline_s, policy="abort")
                await replica.engine.deactivate(settings.drain_deadline_s)

            rows = await self._control(sleep, deadline_s)
            fleet.events.info("model sleeps")
        return fleet.result("sleep", rows, began_s)

    async def wake(self, tags: Sequence[MemoryTag] | None) -> OperationResult:
        """Take the memory back, all of it or some; the model serves once everything is in.

        Raises:
            InvalidTransition: It is paused.
        """
        fleet = self._fleet
        began_s = fleet.clock.now_s()
        async with fleet.lock.held("wake"):
            self._refuse("paused", "a wake")

            async def wake(replica: Replica) -> None:
                if replica.state != DRAINING:
                    await replica.engine.activate(tags)
                elif replica.engine.control.paused != "no" or DRAINED not in replica.gate.reasons:
                    # It did not get to sleep. If somebody had drained it before, its gate stays closed.
                    await replica.engine.cancel_drain()

            # The engine's own limits are the deadlines of its steps; this one is for what has none.
            deadline_s = 2 * fleet.settings.wake_deadline_s + fleet.settings.transfer_deadline_s
            # One that fails without its memory waits for weights, which an update brings; one that has it all does not.
            rows = await self._control(wake, deadline_s, is_lost=lambda replica: not replica.engine.control.released)
            if fleet.hold.kind is not None and self._is_awake(rows):
                fleet.hold.lift()
                fleet.recovery.stand_to()
                fleet.events.info("model is awake")
        return fleet.result("wake", rows, began_s)

    # How.

    def _refuse(self, kind: str, what: str) -> None:
        fleet = self._fleet
        if fleet.hold.kind == kind:
            way_out = "resume" if kind == "paused" else "wake"
            raise InvalidTransition(f"{fleet.pool.name} is {kind}: {what} is refused; {way_out} it first")

    def _is_awake(self, rows: Sequence[EngineResult]) -> bool:
        """Whether what could be woken is: an engine that failed stays out by its own gate, and holds up nobody."""
        failed = {row.engine for row in rows if row.status != "ok"}
        states = [replica.state for replica in self._fleet.replicas if replica.id not in failed]
        return all(state in (READY, DRAINING) for state in states) and (READY in states or not failed)

    def _chosen(self, engine: str | None) -> list[Replica]:
        fleet = self._fleet
        if engine is None:
            return fleet.replicas
        slot = fleet.slot(engine)
        if slot.replica is None:
            raise InvalidTransition(f"engine {engine} is not there: {slot.absent}")
        return [slot.replica]

    async def _rows(self, replicas: Sequence[Replica], call: Call, deadline_s: float) -> tuple[EngineResult, ...]:
        return await fan_out(replicas, call, deadline_s=deadline_s, clock=self._fleet.clock)

    async def _control(
        self, call: Call, deadline_s: float, *, is_lost: Callable[[Replica], bool] = lambda _: False
    ) -> tuple[EngineResult, ...]:
        """A call on every engine that the manager may act on.

        Args:
            call: What to do.
            deadline_s: For each.
            is_lost: Whether an engine that failed is to be given up, where its own state machine has not done so.

        An engine that is late is given up in any case: the call may yet have its effect, when nobody expects it.
        """
        replicas = self._fleet.replicas
        ours = [replica for replica in replicas if replica.is_ours]
        foreign = [
            EngineResult(each.id, "skipped", 0.0, "it is attached without lifecycle rights", each.state)
            for each in replicas
            if not each.is_ours
        ]
        rows = await self._rows(ours, call, deadline_s)
        for replica, row in zip(ours, rows, strict=True):
            if row.status == "timeout" or (row.status == "error" and is_lost(replica)):
                replica.engine.quarantine(row.error or row.status)
        return (*rows, *foreign)
