"""What follows the death of an engine: kill what is left of it, and replace it by a new generation.

By the time recovery begins the engine is fenced. Its remains are killed before anything is launched, since they hold
the GPUs and the ports, and that is never cut short. A replacement is launched without the lock of the fleet and is
published under it, like any other engine, so an update that runs meanwhile is not delayed by it and does not see it.

A model that sleeps has lent its GPUs to somebody else: its dead engines are replaced when it wakes.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trimtab.spec import ManagerSpec
    from trimtab_manager.engine.clock import Clock
    from trimtab_manager.fleet.events import Events
    from trimtab_manager.fleet.replica import Replica, Slot


SHORT_LIFE_S = 60.0
"""A replacement that dies sooner was none: it counts as a failed try, so that nothing is started over and over."""


class Recovery:
    """Replaces the dead engines of one model.

    Args:
        replace: Creates and publishes an engine for an empty slot.
        kill: Ends what is left of an incarnation; never raises for it.
        is_enabled: Whether dead engines are replaced at all.
        settings: Backoff and limit of the tries.
        clock: The time.
        events: The log.
    """

    def __init__(
        self,
        *,
        replace: Callable[[Slot], Awaitable[None]],
        kill: Callable[[Replica], Awaitable[None]],
        is_enabled: bool,
        settings: ManagerSpec,
        clock: Clock,
        events: Events,
    ) -> None:
        self._replace = replace
        self._kill_remains = kill
        self._is_enabled = is_enabled
        self._settings = settings
        self._clock = clock
        self._events = events
        self._missing: set[Slot] = set()
        self._failures: dict[Slot, int] = {}
        self._born_s: dict[Slot, float] = {}
        self._killing: dict[Slot, asyncio.Task[None]] = {}
        self._replacing: dict[Slot, asyncio.Task[None]] = {}
        self._stands_down = False
        self._closed = False

    @property
    def busy(self) -> tuple[str, ...]:
        """Ids of the engines that are being killed or replaced."""
        return tuple(sorted({slot.id for slot in (*self._killing, *self._replacing)}))

    def has(self, slot: Slot) -> bool:
        """Whether a slot is being emptied or filled, or will be."""
        return slot in self._missing or slot in self._killing

    def bury(self, slot: Slot, dead: Replica) -> None:
        """Kill what is left of a fenced engine, then replace it."""
        task = asyncio.create_task(self._kill(slot, dead), name=f"trimtab-manager-kill-{slot.id}")
        self._killing[slot] = task
        task.add_done_callback(functools.partial(self._killed, slot))
        lived_s = self._clock.now_s() - self._born_s.pop(slot, float("-inf"))
        self._failures[slot] = self._failures.get(slot, 0) + 1 if lived_s < SHORT_LIFE_S else 0
        if self._is_enabled:
            self._missing.add(slot)

    def request(self, slot: Slot) -> None:
        """Fill an empty slot."""
        self._failures[slot] = 0
        self._missing.add(slot)
        self._begin(slot)

    async def forget(self, slot: Slot) -> None:
        """Stop replacing an engine that is not wanted any more."""
        self._missing.discard(slot)
        self._failures.pop(slot, None)
        self._born_s.pop(slot, None)
        await self._cancel(slot)
        if (killing := self._killing.get(slot)) is not None:
            await asyncio.wait({killing})

    async def stand_down(self) -> None:
        """Launch nothing until ``stand_to``; what is being launched is ended. What is being killed still is."""
        self._stands_down = True
        for slot in list(self._replacing):
            await self._cancel(slot)

    def stand_to(self) -> None:
        """Replace what is missing."""
        self._stands_down = False
        for slot in list(self._missing):
            self._begin(slot)

    async def close(self) -> None:
        """Launch nothing any more, and wait until everything that is being killed is dead."""
        self._closed = True
        await self.stand_down()
        while self._killing:
            await asyncio.wait(set(self._killing.values()))
            await asyncio.sleep(0)

    def _begin(self, slot: Slot) -> None:
        idle = slot not in self._killing and slot not in self._replacing
        if idle and not self._stands_down and not self._closed and slot in self._missing:
            task = asyncio.create_task(self._replace_until_done(slot), name=f"trimtab-manager-replace-{slot.id}")
            self._replacing[slot] = task
            task.add_done_callback(lambda _: self._replacing.pop(slot, None))

    def _killed(self, slot: Slot, _task: asyncio.Task[None]) -> None:
        del self._killing[slot]
        self._begin(slot)

    async def _kill(self, slot: Slot, dead: Replica) -> None:
        await self._kill_remains(dead)
        self._events.info("dead engine is gone", engine=slot.id, generation=dead.generation)

    async def _replace_until_done(self, slot: Slot) -> None:
        limit = self._settings.restart_limit
        while slot in self._missing and (failures := self._failures.get(slot, 0)) < limit:
            if failures:
                await self._clock.sleep(self._settings.restart_backoff_s * 2 ** (failures - 1))
            try:
                await self._replace(slot)
            except TrimtabError as error:
                self._failures[slot] = failures + 1
                slot.absent = f"attempt {failures + 1} of {limit} to replace it failed: {error}"
                self._events.warning(
                    "engine could not be replaced",
                    engine=slot.id,
                    generation=slot.generation,
                    attempt=f"{failures + 1} of {limit}",
                    error=str(error),
                )
            else:
                self._missing.discard(slot)
                self._born_s[slot] = self._clock.now_s()
                return
        if slot not in self._missing:
            return  # it is not wanted any more
        self._missing.discard(slot)
        self._events.warning(
            "engine is given up",
            engine=slot.id,
            why=slot.absent,
            next_step="look why it dies; then activate or scale the model again, or remove the engine",
        )

    async def _cancel(self, slot: Slot) -> None:
        """End a replacement that is under way; it ends what it has launched."""
        limit_s = 2 * self._settings.stop_grace_s + self._settings.control_timeout_s
        while (task := self._replacing.get(slot)) is not None:
            # More than once: before Python 3.12 `asyncio.wait_for` may forget a cancellation, and we may hold the lock
            # that the replacement would then wait for.
            task.cancel()
            await asyncio.wait({task}, timeout=limit_s)
