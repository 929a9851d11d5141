"""The engines of one model: its router pool, its slots, and everything that makes, watches, replaces and ends them.

Where things are decided:

* who is published, and how that changes: ``publication`` and ``registry``;
* who is dead: ``monitor``; what follows from it: ``recovery``;
* whether the model serves at all: ``hold``; whether one engine does: its ``gate``;
* who may change engines now: ``lock``.

This class wires them, and is what an update of weights sees of a fleet (``weights.scope.UpdateScope``).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from trimtab._core import normalize_address
from trimtab.errors import InvalidTransition, UnknownBackend
from trimtab.fleet import OperationResult
from trimtab_manager.engine.clock import SYSTEM, Clock
from trimtab_manager.engine.states import Dead
from trimtab_manager.fleet.candidates import Candidates
from trimtab_manager.fleet.catch_up import CatchUp, CatchUpError, Resync
from trimtab_manager.fleet.events import Events
from trimtab_manager.fleet.hold import Hold
from trimtab_manager.fleet.lock import FleetLock
from trimtab_manager.fleet.monitor import Death, HealthRule, Monitor
from trimtab_manager.fleet.publication import Newcomer, Publication
from trimtab_manager.fleet.recovery import Recovery
from trimtab_manager.fleet.replica import Slot
from trimtab_manager.weights.transfer import transfer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from typing import Any

    from trimtab._core import Pool
    from trimtab.fleet import EngineResult
    from trimtab.spec import EngineGroupSpec, InferenceModelSpec, ManagerSpec
    from trimtab_manager.engine.states import State
    from trimtab_manager.fleet.registry import Registry
    from trimtab_manager.fleet.replica import Replica
    from trimtab_manager.launch.types import Launcher
    from trimtab_manager.weights.source import Source


class ModelFleet:
    """The engines of one model. Nothing is launched by making one.

    Args:
        role: The role's name.
        model: What is served, and by which engines.
        pool: The router's state of it.
        registry: The role's.
        launchers: By the names that groups use.
        settings: Deadlines and limits.
        api_key: The key that the engines ask for.
        resync: See ``catch_up``.
        clock: The time.
    """

    def __init__(
        self,
        role: str,
        model: InferenceModelSpec,
        *,
        pool: Pool,
        registry: Registry,
        launchers: Mapping[str, Launcher],
        settings: ManagerSpec,
        api_key: str | None = None,
        resync: Resync | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.role = role
        self.spec = model
        self.pool = pool
        self.settings = settings
        self.clock = clock
        self.events = Events(pool.name)
        self._current: set[Replica] = set()
        self.slots: dict[str, Slot] = {slot.id: slot for slot in _slots(model)}
        self.lock = FleetLock(pool.name, clock=clock)
        rule = HealthRule(settings.health_interval_s, settings.health_timeout_s, settings.health_failures)
        self.monitor = Monitor(
            rule,
            self.on_death,
            is_paused=lambda: pool.statistics().server_paused,
            events=self.events,
            clock=clock,
        )
        epoch = registry.topology.epoch
        self.hold = Hold(
            pool, self.monitor.suspensions, lambda: [each.gate for each in self.replicas], f"{model.name}-{epoch[:8]}"
        )
        self.publication = Publication(
            model.name, pool=pool, registry=registry, monitor=self.monitor, events=self.events
        )
        self.catch_up = CatchUp(pool, model.model_path, resync=resync, timeout_s=settings.transfer_deadline_s)
        self.candidates = Candidates(
            model,
            launchers=launchers,
            settings=settings,
            pool=pool,
            is_held=self.hold.fences_all,
            restore=self._restore,
            on_change=self._on_change,
            api_key=api_key,
            clock=clock,
            events=self.events,
        )
        self.recovery = Recovery(
            replace=self._replace,
            kill=self.candidates.kill,
            is_enabled=model.fault_tolerance_enabled,
            settings=settings,
            clock=clock,
            events=self.events,
        )

    # What there is.

    @property
    def model(self) -> str:
        """The model's name."""
        return self.spec.name

    @property
    def static(self) -> bool:
        """Whether its weights never change."""
        return not self.spec.needs_weight_update

    @property
    def replicas(self) -> list[Replica]:
        """The published engines."""
        return [slot.replica for slot in self.slots.values() if slot.replica is not None]

    def owner_of(self, url: str) -> str | None:
        """The id of the engine that has this (normalised) address, or is to have it."""
        for slot in self.slots.values():
            if url in (slot.url, None if slot.replica is None else normalize_address(slot.replica.url)[1]):
                return slot.id
        return None

    def slot(self, engine: str) -> Slot:
        """The place of an engine.

        Raises:
            UnknownBackend: There is none of that id.
        """
        if (slot := self.slots.get(engine)) is None:
            known = ", ".join(self.slots) or "none"
            raise UnknownBackend(f"{self.pool.name} has no engine {engine!r} (it has: {known})")
        return slot

    def result(
        self, operation: str, rows: Sequence[EngineResult], began_s: float, detail: Mapping[str, Any] | None = None
    ) -> OperationResult:
        """The result of an operation that began at ``began_s`` of the clock."""
        return OperationResult(
            operation=operation,
            role=self.role,
            model=self.model,
            engines=tuple(rows),
            seconds=self.clock.now_s() - began_s,
            weight_version=None if self.static else self.pool.weight_version,
            detail=detail or {},
        )

    # How engines come.

    async def bring_up(self, slots: Sequence[Slot], why: str) -> None:
        """Create an engine for each of these empty slots and publish all of them in one step, or none.

        Raises:
            TrimtabError: What failed; nothing is published, and nothing of the engines is left.
        """
        if not slots:
            return
        with _coming(slots):
            replicas = await self.candidates.create_all(slots)
            try:
                async with self.lock.held(why):
                    self._refuse_while_held(why)
                    versions = await asyncio.gather(*(self.catch_up.bring(replica) for replica in replicas))
                    newcomers = [Newcomer(*parts) for parts in zip(slots, replicas, versions, strict=True)]
                    self._refuse_unwanted(slots)
                    self.publication.publish(newcomers, why)
            except BaseException:
                await self.candidates.destroy_all(replicas)
                raise

    async def _replace(self, slot: Slot) -> None:
        """Like ``bring_up`` of one engine, but it waits for the end of a pause, and may come in without the weights."""
        why = f"replacement of engine {slot.id}"
        with _coming([slot]):
            replica = await self.candidates.create(slot)
            try:
                while slot.replica is None:
                    await self.hold.off()
                    async with self.lock.held(why):
                        if self.hold.kind is None:
                            version = await self._caught_up(replica)
                            self._refuse_unwanted([slot])
                            self.publication.publish([Newcomer(slot, replica, version)], why)
            except BaseException:
                await self.candidates.destroy_all([replica])
                raise

    async def _restore(self, replica: Replica) -> None:
        # An update that came between the weights' memory and the rest has brought what was lost.
        if replica not in self._current:
            await self.catch_up.restore(replica)
        self._current.discard(replica)

    async def _caught_up(self, replica: Replica) -> int | None:
        try:
            return await self.catch_up.bring(replica)
        except CatchUpError as error:
            # An engine that lives is worth more than one that has to be launched again: the next update reaches it.
            self.events.warning(
                "engine did not get the published weights",
                engine=replica.id,
                generation=replica.generation,
                error=str(error),
            )
            return None

    # How engines go.

    def on_death(self, replica: Replica, death: Death) -> None:
        """Take in that an engine is dead: fenced when this returns, killed and replaced after that. Never waits."""
        slot = self.slots.get(replica.id)
        if slot is None or slot.replica is not replica:
            return
        self.events.warning(
            "engine died",
            engine=replica.id,
            generation=replica.generation,
            detector=death.detector,
            what=death.what,
            evidence=death.evidence,
        )
        if death.detector != "control" or replica.handle.exit() is not None:
            # Before the fence, which the router's memory of what ran there does not survive.
            self.pool.report_death(replica.backend, death.what)
        self.publication.fence(slot, f"generation {replica.generation} died: {death.what}")
        replica.engine.mark_dead(death.what)
        self.recovery.bury(slot, replica)

    def _on_change(self, replica: Replica, after: State) -> None:
        """An engine that its own control found dead, or in a state that nobody knows, is dead for the fleet, too."""
        if isinstance(after, Dead):
            self.on_death(replica, Death("control", after.reason))

    # What an update of weights sees.

    def members(self) -> list[Replica]:
        """The engines that an update has to reach."""
        return [replica for replica in self.replicas if replica.is_ours and replica.holds_weights]

    @asynccontextmanager
    async def exclusive(self, what: str) -> AsyncIterator[None]:
        """Nobody else changes the engines inside the block, and no health detector says a word.

        Raises:
            UpdateInProgress: Another update is.
            InvalidTransition: The model is paused, or the weights of an engine are not in memory.
        """
        async with self.lock.held_for_update(what):
            if asleep := [replica.id for replica in self.replicas if not replica.holds_weights]:
                raise InvalidTransition(
                    f"{self.pool.name}: {what} is refused: the weights of {', '.join(asleep)} are not in memory;"
                    " wake the tag 'weights' first"
                )
            with self.monitor.suspensions.held(what), self.hold.parked():
                yield

    async def condemn(self, engine: str, reason: str) -> None:
        """Take in that an update gave an engine up; it is tainted already."""
        slot = self.slots.get(engine)
        if slot is not None and slot.replica is not None:
            slot.replica.engine.quarantine(reason)

    def published(self, version: int, source: Source) -> None:
        """Take in what runs now."""
        self.catch_up.note(version, source)
        self._current = self._made_whole() if transfer_of(source).complete else set()
        self.events.info("weights are published", version=version)

    def _refuse_unwanted(self, slots: Sequence[Slot]) -> None:
        """An engine that was removed while it came would serve with nobody to update or end it.

        Its making is cancelled, and a cancellation may be forgotten (``asyncio.wait_for`` before Python 3.12).
        """
        if gone := [slot.id for slot in slots if self.slots.get(slot.id) is not slot]:
            raise InvalidTransition(f"{self.pool.name}: {', '.join(gone)} was removed while it started")

    def _made_whole(self) -> set[Replica]:
        """Waking engines that the update reached: what a sleep took from their weights, it has brought."""
        tainted = {row.id for row in self.pool.statistics().backends if row.tainted}
        return {each for each in self.members() if each.state == "onloading" and each.id not in tainted}

    def _refuse_while_held(self, what: str) -> None:
        if self.hold.kind is not None:
            way_out = "resume" if self.hold.kind == "paused" else "wake"
            raise InvalidTransition(f"{self.pool.name} is {self.hold.kind}: {what} is refused; {way_out} it first")


@contextmanager
def _coming(slots: Sequence[Slot]) -> Iterator[None]:
    """Incarnations for these slots are being made inside the block."""
    for slot in slots:
        slot.is_coming = True
    try:
        yield
    finally:
        for slot in slots:
            slot.is_coming = False


def _slots(model: InferenceModelSpec) -> list[Slot]:
    places: list[tuple[EngineGroupSpec, str | None]] = []
    for group in model.engine_groups:
        urls: Sequence[str | None] = group.urls or (None,) * group.replicas
        places += [(group, url) for url in urls]
    return [Slot(model.engine_id(number), group, url) for number, (group, url) in enumerate(places)]
