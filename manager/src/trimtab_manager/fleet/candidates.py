"""Making an engine that nobody knows yet, and ending one: launch, ready, probed, known to be the right one.

A candidate that fails on the way leaves nothing behind: its processes are stopped and its connections are closed before
the error goes up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError
from trimtab_manager.engine.capabilities import probe
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.engine import SGLangEngine
from trimtab_manager.engine.limits import Limits
from trimtab_manager.fleet.gate import BackendGate
from trimtab_manager.fleet.replica import Replica
from trimtab_manager.fleet.request import launch_request
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from trimtab._core import Pool
    from trimtab.spec import InferenceModelSpec, ManagerSpec
    from trimtab_manager.engine.clock import Clock
    from trimtab_manager.engine.states import State
    from trimtab_manager.fleet.events import Events
    from trimtab_manager.fleet.replica import Slot
    from trimtab_manager.launch.types import EngineHandle, Launcher

DEFAULT_CAPACITY = 1.0
"""Weight of an engine that does not say how much it can run."""


class Candidates:
    """Makes and ends the engines of one model.

    Args:
        model: What they serve.
        launchers: By the names that groups use.
        settings: Deadlines.
        pool: Where they will be registered.
        is_held: Whether the whole pool is held, for their gates.
        restore: Brings the weights of a waking engine up to date.
        on_change: Told of every new state of an engine.
        api_key: The key they ask for.
        clock: The time.
        events: The log.
    """

    def __init__(
        self,
        model: InferenceModelSpec,
        *,
        launchers: Mapping[str, Launcher],
        settings: ManagerSpec,
        pool: Pool,
        is_held: Callable[[], bool],
        restore: Callable[[Replica], Awaitable[None]],
        on_change: Callable[[Replica, State], None],
        api_key: str | None,
        clock: Clock,
        events: Events,
    ) -> None:
        self._model = model
        self._launchers = launchers
        self._settings = settings
        self._pool = pool
        self._is_held = is_held
        self._restore = restore
        self._on_change = on_change
        self._api_key = api_key
        self._clock = clock
        self._events = events
        self._handles: set[EngineHandle] = set()

    async def create_all(self, slots: Sequence[Slot]) -> list[Replica]:
        """A new incarnation for each slot, or for none: the first failure ends the others.

        Raises:
            TrimtabError: The failure.
        """
        tasks = [asyncio.create_task(self.create(slot), name=f"trimtab-manager-create-{slot.id}") for slot in slots]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            made = await asyncio.gather(*tasks, return_exceptions=True)
            await self.destroy_all([each for each in made if isinstance(each, Replica)])
            raise

    async def create(self, slot: Slot) -> Replica:
        """A new incarnation: launched, ready, probed.

        Raises:
            LaunchError: It did not come up.
            ControlError, MissingCapability, IdentityChanged: It is not what the manager can work with.
        """
        generation = slot.next_generation()
        began_s = self._clock.now_s()
        self._events.info("engine starts", engine=slot.id, generation=generation)
        handle = await self._launch(slot, generation)
        self._handles.add(handle)
        try:
            replica = await self._meet(slot, generation, handle)
        except BaseException:
            await self._within_limit(handle.stop(0.0), handle, slot.id, 0.0)
            raise
        self._events.info(
            "engine is up",
            engine=slot.id,
            generation=generation,
            url=replica.url,
            seconds=round(self._clock.now_s() - began_s, 1),
        )
        return replica

    async def destroy_all(self, replicas: Sequence[Replica]) -> None:
        """End them, all at once. Never raises for one."""
        await asyncio.gather(*(self.destroy(replica) for replica in replicas))

    async def destroy(self, replica: Replica) -> None:
        """End one that lives: what it runs has the grace of a stop to end. Never raises for it."""
        grace_s = self._settings.stop_grace_s
        await self._within_limit(replica.engine.shutdown(grace_s), replica.handle, replica.id, grace_s)

    async def kill(self, replica: Replica) -> None:
        """End what is left of one that is dead, hangs, or is beyond understanding: at once. Never raises for it.

        Its processes first: nothing is said to an engine that may not listen. Somebody else's engine is let go.
        """
        if replica.is_owned:
            await self._within_limit(replica.handle.stop(0.0), replica.handle, replica.id, 0.0)
        await self._within_limit(replica.engine.shutdown(0.0), replica.handle, replica.id, 0.0)

    async def kill_all(self) -> None:
        """End the processes of whatever was made and is not gone, at once; whoever waits for an end gets it then."""
        await asyncio.gather(*(handle.stop(0.0) for handle in self._handles), return_exceptions=True)

    async def _within_limit(
        self, end: Coroutine[Any, Any, None], handle: EngineHandle, engine: str, grace_s: float
    ) -> None:
        # A handle that hangs (its host is gone, say) must not hold up who waits for the others.
        limit_s = grace_s + self._settings.stop_grace_s + self._settings.control_timeout_s
        try:
            await asyncio.wait_for(end, limit_s)
            self._handles.discard(handle)
        except (TrimtabError, asyncio.TimeoutError) as error:
            self._events.warning(
                "engine did not end as it should",
                engine=engine,
                error=str(error) or f"not within {limit_s:g} s",
                facts=dict(handle.facts),
                next_step="look whether its processes are gone, and end them",
            )

    async def _launch(self, slot: Slot, generation: int) -> EngineHandle:
        launcher = self._launchers.get(slot.group.launcher)
        if launcher is None:
            known = ", ".join(sorted(self._launchers)) or "none"
            raise LaunchError(f"engine {slot.id}: there is no launcher {slot.group.launcher!r} here (known: {known})")
        return await launcher.launch(
            launch_request(
                self._model,
                slot.group,
                engine_id=slot.id,
                generation=generation,
                url=slot.url,
                deadline_s=self._settings.start_deadline_s,
                api_key=self._api_key,
            )
        )

    async def _meet(self, slot: Slot, generation: int, handle: EngineHandle) -> Replica:
        settings, is_ours = self._settings, slot.group.lifecycle
        client = EngineClient(
            handle.url,
            engine=slot.id,
            api_key=self._api_key,
            timeout_s=settings.control_timeout_s,
            static=not self._model.needs_weight_update,
        )
        try:
            capabilities = await probe(client, routing_only=not is_ours)
        except BaseException:
            await client.close()
            raise
        capacity = slot.group.capacity or capabilities.max_running_requests or DEFAULT_CAPACITY
        gate = BackendGate(self._pool, self._is_held)
        engine = SGLangEngine(
            slot.id,
            generation,
            client,
            capabilities,
            gate=gate,
            handle=handle if slot.url is None else None,
            restore=lambda _: self._restore(replica),
            limits=_limits(settings),
            clock=self._clock,
            on_change=lambda _, after: self._on_change(replica, after),
        )
        replica = Replica(slot.id, generation, float(capacity), client, engine, gate, handle, is_ours, slot.url is None)
        try:
            await engine.activate()
        except BaseException:
            await self.kill(replica)
            raise
        return replica


def _limits(settings: ManagerSpec) -> Limits:
    return Limits(
        control_timeout_s=settings.control_timeout_s,
        pause_timeout_s=settings.pause_deadline_s,
        memory_timeout_s=max(settings.release_deadline_s, settings.wake_deadline_s),
        drain_deadline_s=settings.drain_deadline_s,
        flush_deadline_s=settings.flush_deadline_s,
        ready_deadline_s=settings.wake_deadline_s,
    )
