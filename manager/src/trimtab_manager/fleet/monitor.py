"""Two detectors for the death of an engine, and when they are to be believed.

The *process* detector waits for the end of any process of the engine, on any of its nodes. It is never wrong, so it
works in every state, also while the engine sleeps, and no suspension stops it. The *health* detector asks the engine to
generate a token, which finds a scheduler that hangs behind a server that answers. A paused, sleeping or draining engine
is as it should be and generates nothing, so it asks only engines that are ready, while nobody holds a suspension, and
what it began to ask before either of these changed counts for nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trimtab.errors import TrimtabError
from trimtab_manager.fleet.events import logger
from trimtab_manager.fleet.replica import READY
from trimtab_manager.fleet.suspension import Suspensions

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab_manager.engine.clock import Clock
    from trimtab_manager.fleet.events import Events
    from trimtab_manager.fleet.replica import Replica


@dataclass(frozen=True)
class Death:
    """Why an engine counts as dead.

    Attributes:
        detector: Who says so: ``process``, ``health``, or ``control`` for a control call that found it dead.
        what: What was seen, in words.
        evidence: The end of its log, where there is one.
    """

    detector: Literal["process", "health", "control"]
    what: str
    evidence: str = ""


@dataclass(frozen=True)
class HealthRule:
    """When an engine that does not answer is dead.

    Attributes:
        interval_s: Seconds between two questions.
        timeout_s: Seconds after which a question counts as failed.
        failures: Failures in a row that make it dead.
    """

    interval_s: float
    timeout_s: float
    failures: int


class Monitor:
    """Watches the engines of one model.

    Args:
        rule: The health detector's.
        on_death: Told at once, from the event loop, and once per engine; must not block.
        is_paused: Whether somebody who talks to the router alone has the engines paused; asked when one is silent.
        events: The log.
        clock: The time.
    """

    def __init__(
        self,
        rule: HealthRule,
        on_death: Callable[[Replica, Death], None],
        *,
        is_paused: Callable[[], bool],
        events: Events,
        clock: Clock,
    ) -> None:
        self.suspensions = Suspensions()
        self._rule = rule
        self._on_death = on_death
        self._is_paused = is_paused
        self._events = events
        self._clock = clock
        self._watches: dict[Replica, tuple[asyncio.Task[None], ...]] = {}

    def watch(self, replica: Replica) -> None:
        """Watch an engine from now on."""
        detectors = (self._watch_health(replica), self._watch_process(replica))
        tasks = tuple(
            asyncio.create_task(detector, name=f"trimtab-manager-watch-{replica.id}") for detector in detectors
        )
        for task in tasks:
            task.add_done_callback(_tell_of_a_bug)
        self._watches[replica] = tasks

    def unwatch(self, replica: Replica) -> None:
        """Watch it no more: whatever ends from now on is meant to."""
        current = asyncio.current_task()
        for task in self._watches.pop(replica, ()):
            if task is not current:
                task.cancel()

    async def close(self) -> None:
        """Watch nothing any more."""
        tasks = [task for watch in self._watches.values() for task in watch]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_process(self, replica: Replica) -> None:
        exit_ = await replica.handle.exited()
        self._report(replica, Death("process", str(exit_), exit_.evidence))

    async def _watch_health(self, replica: Replica) -> None:
        failures = 0
        while True:
            await self._clock.sleep(self._rule.interval_s)
            seen = await self._ask(replica)
            if seen is None:
                failures = 0
                continue
            failures += 1
            self._events.warning(
                "engine failed a health check",
                engine=replica.id,
                generation=replica.generation,
                failures=f"{failures} of {self._rule.failures}",
                seen=seen,
            )
            if failures >= self._rule.failures:
                what = f"{failures} health checks failed in a row, the last one: {seen}"
                self._report(replica, Death("health", what))
                return

    async def _ask(self, replica: Replica) -> str | None:
        """What was wrong; None: nothing, or the question is none now."""
        stamp = self.suspensions.stamp
        if not self._is_expected_to_answer(replica, stamp):
            return None
        try:
            alive = await replica.client.health(timeout_s=self._rule.timeout_s)
            seen = None if alive else "it says that it generates nothing"
        except TrimtabError as error:
            seen = str(error)
        if seen is None or self._is_paused() or not self._is_expected_to_answer(replica, stamp):
            return None
        return seen

    def _is_expected_to_answer(self, replica: Replica, stamp: int) -> bool:
        suspensions = self.suspensions
        return replica.state == READY and not suspensions.active and suspensions.stamp == stamp

    def _report(self, replica: Replica, death: Death) -> None:
        if replica in self._watches:
            self._on_death(replica, death)


def _tell_of_a_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a detector failed, its engine is not watched any more", exc_info=error)
