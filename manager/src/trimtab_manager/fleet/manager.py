"""The manager: every engine of every role, behind one set of operations.

It is the same for every role; what differs stands in the specs. It shares the routers' pools with whoever serves
requests in this process, and never sees a request.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from trimtab.errors import InvalidRequest, ModelRequired, UnknownModel, UnknownPool
from trimtab.fleet import TopologyCount
from trimtab.spec import ManagerSpec
from trimtab_manager.engine.clock import SYSTEM, Clock
from trimtab_manager.engine.types import MEMORY_TAGS, PauseMode
from trimtab_manager.fleet.lifecycle import Lifecycle
from trimtab_manager.fleet.membership import Membership
from trimtab_manager.fleet.model_fleet import ModelFleet
from trimtab_manager.fleet.registry import Registry
from trimtab_manager.fleet.single_flight import SingleFlight
from trimtab_manager.fleet.view import RoleView, standing_of, view_of
from trimtab_manager.launch.external import ExternalLauncher
from trimtab_manager.weights import FlushPolicy, FromDisk, UpdateDeadlines, WeightUpdates

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from trimtab._core import Pool
    from trimtab.fleet import ModelStanding, OperationResult
    from trimtab.spec import InferenceModelSpec, InferenceRoleSpec
    from trimtab_manager.fleet.catch_up import Resync
    from trimtab_manager.fleet.registry import Topology
    from trimtab_manager.launch.types import Launcher
    from trimtab_manager.weights import Progress, Running, Source

PAUSE_MODES: tuple[PauseMode, ...] = ("abort", "in_place", "retract")
FLUSH_POLICIES: tuple[FlushPolicy, ...] = ("flush", "keep")


class _Served:
    """One model and its operations, each of which runs once at a time."""

    def __init__(self, fleet: ModelFleet, owner_of: Callable[[str], str | None]) -> None:
        self.fleet = fleet
        self.lifecycle = Lifecycle(fleet)
        self.membership = Membership(fleet, owner_of)
        self.updates = WeightUpdates(fleet, _update_deadlines(fleet.settings))
        self.flights = SingleFlight(fleet.pool.name)

    async def shutdown(self) -> OperationResult:
        await self.flights.close()
        return await self.membership.end()


class InferenceManager:
    """The engines of some roles. An async context manager: its exit ends every engine that it started.

    Implements :class:`trimtab.fleet.FleetControl`. Operations are idempotent, and concurrent duplicates join the one
    that runs.

    Args:
        roles: What is served.
        pools: The router's pool of every (role, model).
        launchers: By the names that engine groups use; closed at the end. ``external`` is always there.
        settings: Deadlines and limits.
        api_key: The key that engines ask for.
        resync: By (role, model): how a trainer sends its weights to one engine that comes later.
        clock: The time.
    """

    def __init__(
        self,
        roles: Sequence[InferenceRoleSpec],
        *,
        pools: Mapping[tuple[str, str], Pool],
        launchers: Mapping[str, Launcher],
        settings: ManagerSpec | None = None,
        api_key: str | None = None,
        resync: Mapping[tuple[str, str], Resync] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.roles = tuple(roles)
        self.epoch = uuid.uuid4().hex
        self._launchers = {"external": ExternalLauncher(), **launchers}
        self._registries: dict[str, Registry] = {}
        self._served: dict[tuple[str, str], _Served] = {}
        self._shutdown: asyncio.Task[list[OperationResult]] | None = None
        for role in self.roles:
            registry = Registry([model.name for model in role.models], epoch=self.epoch)
            self._registries[role.name] = registry
            for model in role.models:
                _check_model(role.name, model)
                fleet = ModelFleet(
                    role.name,
                    model,
                    pool=pools[role.name, model.name],
                    registry=registry,
                    launchers=self._launchers,
                    settings=settings or ManagerSpec(),
                    api_key=api_key,
                    resync=(resync or {}).get((role.name, model.name)),
                    clock=clock,
                )
                for slot in fleet.slots.values():
                    if slot.url is not None and (owner := self._owner_of(slot.url)) is not None:
                        raise InvalidRequest(f"{fleet.pool.name}: {slot.url} is refused: it is engine {owner} already")
                self._served[role.name, model.name] = _Served(fleet, self._owner_of)

    async def __aenter__(self) -> InferenceManager:  # noqa: PYI034 -- Self is not in Python 3.10
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # What there is.

    def fleet(self, role: str, model: str | None = None) -> ModelFleet:
        """The engines of a model, or of the role's default one.

        Raises:
            UnknownPool, UnknownModel, ModelRequired: There is none.
        """
        return self._of(role, model).fleet

    def topology(self, role: str) -> Topology:
        """What a role has published: one immutable object.

        Raises:
            UnknownPool: No such role.
        """
        self._role(role)
        return self._registries[role].topology

    def topology_count(self) -> TopologyCount:
        """How often each role's engines changed, for a gateway that shows it."""
        return TopologyCount(
            self.epoch, {name: registry.topology.revision for name, registry in self._registries.items()}
        )

    def standing(self, role: str, model: str) -> ModelStanding | None:
        """Where the engines of a model stand, for a gateway that shows it."""
        served = self._served.get((role, model))
        return None if served is None else standing_of(view_of(served.fleet))

    def view(self) -> tuple[RoleView, ...]:
        """Everything at this moment."""
        return tuple(
            RoleView(
                role.name,
                self.topology(role.name),
                tuple(view_of(self._served[role.name, model.name].fleet) for model in role.models),
            )
            for role in self.roles
        )

    # The life of a fleet.

    async def activate(
        self, role: str | None = None, model: str | None = None, *, tags: Sequence[str] | None = None
    ) -> list[OperationResult]:
        """Bring models to READY from wherever they are: engines that never were are started, sleeping ones are woken.

        Args:
            role: Only this role.
            model: Only this model of it.
            tags: Take back only this memory (``weights``, ``kv_cache``, ``cuda_graph``); None: all of it.

        Raises:
            TrimtabError: Engines did not start, in a model that replaces none.
        """
        return await self._each(role, model, lambda each: self._activate(each, tags))

    async def deactivate(self, role: str | None = None, model: str | None = None) -> list[OperationResult]:
        """Put models to sleep."""
        return await self._each(role, model, self._sleep)

    async def shutdown(self) -> list[OperationResult]:
        """End every engine and every launcher, for good. Operations that run are cancelled. Idempotent; joins."""
        if self._shutdown is None:
            self._shutdown = asyncio.create_task(self._end(), name="trimtab-manager-shutdown")
        return await asyncio.shield(self._shutdown)

    async def kill(self) -> None:
        """End the processes of every engine at once, for somebody who cannot wait for ``shutdown``, which then ends."""
        await asyncio.gather(*(served.fleet.candidates.kill_all() for served in self._served.values()))

    async def scale(
        self, role: str, model: str | None = None, *, replicas: int, group: str | None = None
    ) -> OperationResult:
        """Have that many engines of a group."""
        served = self._of(role, model)
        return await served.flights.run(("scale", replicas, group), lambda: served.membership.scale(replicas, group))

    async def add_engine(
        self, url: str, role: str, model: str | None = None, *, capacity: float | None = None, lifecycle: bool = True
    ) -> OperationResult:
        """Attach to an engine that runs already."""
        served = self._of(role, model)
        return await served.flights.run(
            ("add", url), lambda: served.membership.add(url, capacity=capacity, lifecycle=lifecycle)
        )

    async def remove_engine(self, engine: str, role: str, model: str | None = None) -> OperationResult:
        """Let an engine finish, and stop it."""
        served = self._of(role, model)
        return await served.flights.run(("remove", engine), lambda: served.membership.remove(engine))

    # FleetControl.

    async def pause(self, role: str, model: str | None = None, *, mode: str = "abort") -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        pause_mode = next((known for known in PAUSE_MODES if known == mode), None)
        if pause_mode is None:
            raise InvalidRequest(f"{mode!r} is no pause mode; there are {', '.join(PAUSE_MODES)}")
        served = self._of(role, model)
        return await served.flights.run(("pause", mode), lambda: served.lifecycle.pause(pause_mode))

    async def resume(self, role: str, model: str | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        served = self._of(role, model)
        return await served.flights.run("resume", served.lifecycle.resume)

    async def flush(self, role: str, model: str | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        served = self._of(role, model)
        return await served.flights.run("flush", served.lifecycle.flush)

    async def drain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        served = self._of(role, model)
        return await served.flights.run(("drain", engine), lambda: served.lifecycle.drain(engine))

    async def undrain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        served = self._of(role, model)
        return await served.flights.run(("undrain", engine), lambda: served.lifecycle.undrain(engine))

    async def sleep(self, role: str, model: str | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        return await self._sleep(self._of(role, model))

    async def wake(self, role: str, model: str | None = None, *, tags: Sequence[str] | None = None) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        return await self._wake(self._of(role, model), tags)

    async def update_from_disk(
        self, role: str, model: str | None = None, *, path: str, version: int, flush: str = "flush"
    ) -> OperationResult:
        """See :class:`trimtab.fleet.FleetControl`."""
        policy = next((known for known in FLUSH_POLICIES if known == flush), None)
        if policy is None:
            raise InvalidRequest(f"{flush!r} is no flush policy; there are {', '.join(FLUSH_POLICIES)}")
        served = self._of(role, model)
        return await served.flights.run(
            ("update", path, version, flush), lambda: served.updates.update(FromDisk(path), version, flush=policy)
        )

    async def update_weights(
        self,
        source: Source,
        version: int,
        *,
        role: str,
        model: str | None = None,
        running: Running | None = None,
        flush: FlushPolicy = "flush",
        checksums: bool = False,
        epoch: int | None = None,
        update_id: str | None = None,
    ) -> OperationResult:
        """Replace the weights of a model's engines, from any source.

        Arguments, result and errors are those of ``WeightUpdates.update``.
        """
        served = self._of(role, model)

        async def update() -> OperationResult:
            return await served.updates.update(
                source,
                version,
                running=running,
                flush=flush,
                checksums=checksums,
                epoch=epoch,
                update_id=update_id,
            )

        return await served.flights.run(("update", object()), update)

    def update_progress(self, role: str, model: str | None = None) -> Progress | None:
        """How the update of a model that runs now stands; None: none does."""
        return self._of(role, model).updates.progress

    def cancel_update(self, role: str, model: str | None = None, *, update_id: str) -> None:
        """Break an update off. Whoever asked for it gets ``UpdateCancelled`` once the engines are in order.

        Raises:
            UnknownUpdate: No update of that id runs.
        """
        self._of(role, model).updates.cancel(update_id)

    # How.

    def _owner_of(self, url: str) -> str | None:
        owners = ((served.fleet.pool.name, served.fleet.owner_of(url)) for served in self._served.values())
        return next((f"{engine} of {pool}" for pool, engine in owners if engine is not None), None)

    async def _activate(self, served: _Served, tags: Sequence[str] | None) -> OperationResult:
        if served.fleet.hold.kind is None:
            return await served.flights.run("start", served.membership.start)
        return await self._wake(served, tags)

    async def _wake(self, served: _Served, tags: Sequence[str] | None) -> OperationResult:
        wanted = None if tags is None else tuple(tag for tag in MEMORY_TAGS if tag in tags)
        if unknown := [tag for tag in tags or () if tag not in MEMORY_TAGS]:
            raise InvalidRequest(f"{', '.join(unknown)}: no such memory; there is {', '.join(MEMORY_TAGS)}")
        return await served.flights.run(("wake", wanted), lambda: served.lifecycle.wake(wanted))

    async def _sleep(self, served: _Served) -> OperationResult:
        return await served.flights.run("sleep", served.lifecycle.sleep)

    async def _end(self) -> list[OperationResult]:
        try:
            return await _all_of([served.shutdown() for served in self._served.values()])
        finally:
            await asyncio.gather(*(launcher.close() for launcher in self._launchers.values()))

    async def _each(
        self,
        role: str | None,
        model: str | None,
        operation: Callable[[_Served], Coroutine[Any, Any, OperationResult]],
    ) -> list[OperationResult]:
        if role is None:
            chosen = list(self._served.values())
        elif model is None:
            chosen = [self._served[role, each.name] for each in self._role(role).models]
        else:
            chosen = [self._of(role, model)]
        return await _all_of([operation(served) for served in chosen])

    def _role(self, name: str) -> InferenceRoleSpec:
        role = next((role for role in self.roles if role.name == name), None)
        if role is None:
            raise UnknownPool(f"no role {name!r} here (there are: {', '.join(self._registries)})")
        return role

    def _of(self, role_name: str, model: str | None) -> _Served:
        role = self._role(role_name)
        name = model if model is not None else role.effective_default_model
        known = ", ".join(each.name for each in role.models)
        if name is None:
            raise ModelRequired(f"role {role_name} has no default model: say which one ({known})")
        if (served := self._served.get((role_name, name))) is None:
            raise UnknownModel(f"role {role_name} has no model {name!r} (it has: {known})")
        return served


async def _all_of(operations: Sequence[Coroutine[Any, Any, OperationResult]]) -> list[OperationResult]:
    """The results of all; the first failure is raised when all have ended, so that none is left running."""
    outcomes = await asyncio.gather(*operations, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


def _update_deadlines(settings: ManagerSpec) -> UpdateDeadlines:
    return UpdateDeadlines(
        exclusive_s=settings.exclusive_deadline_s,
        drain_s=settings.drain_deadline_s,
        idle_s=settings.idle_deadline_s,
        pause_s=settings.pause_deadline_s,
        transfer_s=settings.transfer_deadline_s,
        flush_s=settings.flush_deadline_s,
        read_back_s=settings.read_back_deadline_s,
        resume_s=settings.resume_deadline_s,
        verify_s=settings.verify_deadline_s,
    )


def _check_model(role: str, model: InferenceModelSpec) -> None:
    """Refuse what specs allow and this manager cannot run."""
    if model.needs_router:
        raise InvalidRequest(
            f"{role}/{model.name}: route_mode = 'sglang_router' has engines that only that router knows;"
            " the manager runs engines of 'direct' models"
        )
