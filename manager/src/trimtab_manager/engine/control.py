"""Control calls with a memory: what was sent, what became of it, and therefore what may be sent now.

SGLang dies when memory is released while something runs, when a tag is resumed that is not released, and (with a memory
saver, on a GPU) when a tag is released twice; and it tells neither what is released nor whether it is paused. So both
are kept here:

* **Pause**: ``no``, ``yes`` or ``maybe``. It is ``maybe`` from before a pause or continue is sent until its answer.
  Both calls are repeatable, so ``maybe`` is ended by asking again for whichever is wanted.
* **Memory**: the released tags, and the *unsure* ones: those of a release or resume that was sent and not answered.
  Neither call may then be sent for them: each is fatal in one of the two cases. There is no way back from that but a
  new process, and every later call on memory raises ``Quarantined``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

from trimtab_manager.engine.capabilities import (
    CONTINUE,
    FLUSH,
    PAUSE,
    RELEASE,
    WAKE,
    Capabilities,
)
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.clock import SYSTEM, Clock, Until
from trimtab_manager.engine.errors import ControlError, FlushRefused, MissingCapability, NotIdle, Quarantined, Refused
from trimtab_manager.engine.identity import verify_identity
from trimtab_manager.engine.limits import Limits
from trimtab_manager.engine.retry import repeated
from trimtab_manager.engine.types import MEMORY_TAGS, Loads, MemoryTag, PauseMode

BUSY = 400
"""What a flush is answered with while requests run or wait."""

Paused = Literal["no", "maybe", "yes"]


class Control:
    """The control calls of one incarnation: retried where that is harmless, refused here where they are fatal.

    Args:
        client: Of the engine.
        capabilities: Found out about this incarnation.
        limits: How long and how often.
        clock: Whose time it is.
    """

    def __init__(
        self, client: EngineClient, capabilities: Capabilities, *, limits: Limits | None = None, clock: Clock = SYSTEM
    ) -> None:
        self.client = client
        self.capabilities = capabilities
        self.limits = limits or Limits()
        self.clock = clock
        self.paused: Paused = "no"
        self.pause_mode: PauseMode | None = None
        self.released: frozenset[MemoryTag] = frozenset()
        self.unsure: frozenset[MemoryTag] = frozenset()
        self._pausing = asyncio.Lock()

    @property
    def engine(self) -> str:
        """The engine's id."""
        return self.client.engine

    async def verify_identity(self) -> None:
        """Raises ``IdentityChanged`` when another server answers at the address."""

        async def ask() -> None:
            incarnation = self.capabilities.server.incarnation
            await verify_identity(self.client, incarnation, timeout_s=self.limits.control_timeout_s)

        await repeated(ask, harmless_twice=True, policy=self.limits.retry, clock=self.clock)

    async def loads(self) -> Loads:
        """What the engine says of its load; see ``Loads.age_s``."""
        timeout_s = self.limits.control_timeout_s
        return await repeated(
            lambda: self.client.loads(timeout_s=timeout_s),
            harmless_twice=True,
            policy=self.limits.retry,
            clock=self.clock,
        )

    async def pause(self, mode: PauseMode) -> None:
        """Pauses it. While it is paused in this mode already, nothing is sent.

        A pause of mode ``abort`` on top of one that froze requests would wait for ever for them to end, and every later
        call behind it (seen on 0.5.23); so that one is ended first.

        Raises:
            MissingCapability: It knows no such mode, or we may not.
            ControlError: It did not say that it is paused; ``paused`` is then ``maybe`` unless it refused.
        """
        self._may(PAUSE)
        if mode not in self.capabilities.pause_modes:
            known = ", ".join(sorted(self.capabilities.pause_modes))
            raise MissingCapability(self.engine, (f"pause mode {mode}",), f"it knows {known}")
        async with self._pausing:
            await self._pause(mode)

    async def resume(self) -> None:
        """Ends a pause. Sent also when we know of none: somebody else may have paused it, and it is harmless.

        Raises:
            Quarantined: Memory is out: what goes on then would find none.
            ControlError: It did not say that it goes on.
        """
        self._may(CONTINUE)
        async with self._pausing:
            await self._resume()

    async def _pause(self, mode: PauseMode) -> None:
        if self.paused == "yes" and self.pause_mode == mode:
            return
        if mode == "abort" and self.paused != "no" and self.pause_mode != "abort":
            await self._resume()
        before = self.paused
        self.paused, self.pause_mode = "maybe", mode
        try:
            await repeated(
                lambda: self.client.pause(mode, timeout_s=self.limits.pause_timeout_s),
                harmless_twice=True,
                policy=self.limits.retry,
                clock=self.clock,
            )
        except ControlError as error:
            if error.effect != "unknown" and before == "no" and not error.retryable:
                self.paused, self.pause_mode = "no", None
            raise
        self.paused = "yes"

    async def _resume(self) -> None:
        if self.released or self.unsure:
            out = ", ".join(sorted(self.released | self.unsure))
            raise Quarantined(self.engine, f"it was to continue while its memory is out ({out})")
        self.paused = "maybe"
        await repeated(
            lambda: self.client.resume(timeout_s=self.limits.control_timeout_s),
            harmless_twice=True,
            policy=self.limits.retry,
            clock=self.clock,
        )
        self.paused, self.pause_mode = "no", None

    async def flush(self, deadline_s: float | None = None) -> None:
        """Empties the prefix cache, asking again while it is refused, with growing gaps until the deadline.

        What a pause of mode ``in_place`` froze is never over before it ends: then it is tried once.

        Raises:
            FlushRefused: Requests still ran or waited at the deadline.
            ControlError: Another failure.
        """
        self._may(FLUSH)
        limits, attempt = self.limits, 0
        until = Until.after(limits.flush_deadline_s if deadline_s is None else deadline_s, self.clock)
        while True:
            attempt += 1
            try:
                await repeated(
                    lambda: self.client.flush(timeout_s=limits.control_timeout_s),
                    harmless_twice=True,
                    policy=limits.retry,
                    clock=self.clock,
                )
            except Refused as refusal:
                if refusal.status != BUSY:
                    raise
                frozen = self.paused != "no" and self.pause_mode == "in_place"
                if until.passed or frozen:
                    raise await self._flush_refused(refusal, attempt, frozen=frozen) from refusal
            else:
                return
            await self.clock.sleep(min(limits.retry.gap_s(attempt), until.left_s))

    async def release(self, tags: Iterable[MemoryTag]) -> None:
        """Gives the memory of these tags back; those that are out already are left out of the call.

        The caller has proved that the engine is idle and nothing new comes. Each repetition looks at that again.

        Raises:
            Quarantined: An earlier call on memory was never answered.
            NotIdle: Something runs or waits; nothing was sent.
            ControlError: It did not say so. When it may have happened, the tags are ``unsure`` from now on.
        """
        self._may(RELEASE)
        self._sure()
        wanted = _ordered(frozenset(tags) - self.released)
        if not wanted:
            return
        await self._still_idle()
        await self._change_memory(RELEASE, wanted)
        self.released |= frozenset(wanted)

    async def wake(self, tags: Iterable[MemoryTag]) -> None:
        """Takes the memory of these tags back; those that are in are left out of the call.

        Raises:
            Quarantined: An earlier call on memory was never answered.
            ControlError: It did not say so. When it may have happened, the tags are ``unsure`` from now on.
        """
        self._may(WAKE)
        self._sure()
        wanted = _ordered(frozenset(tags) & self.released)
        if not wanted:
            return
        await self._change_memory(WAKE, wanted)
        self.released -= frozenset(wanted)

    async def _change_memory(self, endpoint: str, tags: tuple[MemoryTag, ...]) -> None:
        releasing = endpoint == RELEASE
        send = self.client.release if releasing else self.client.wake

        async def recheck() -> None:
            await self.verify_identity()
            if releasing:
                await self._still_idle()

        self.unsure = frozenset(tags)  # also when we are cancelled in the middle
        try:
            await repeated(
                lambda: send(tags, timeout_s=self.limits.memory_timeout_s),
                harmless_twice=False,
                policy=self.limits.retry,
                recheck=recheck,
                clock=self.clock,
            )
        except ControlError as error:
            if error.effect != "unknown" or error.call != endpoint:
                self.unsure = frozenset()  # the last call on memory was not sent, or refused
            raise
        except NotIdle:
            self.unsure = frozenset()
            raise
        self.unsure = frozenset()

    async def _still_idle(self) -> None:
        loads = await self.loads()
        if not loads.idle:
            raise NotIdle(
                f"engine {self.engine}: its memory is not released: it says that {loads.running} requests run and "
                f"{loads.waiting} wait, and a release would kill it",
                engine=self.engine,
                outstanding=0,
                running=loads.running,
                waiting=loads.waiting,
            )

    async def _flush_refused(self, refusal: Refused, attempts: int, *, frozen: bool) -> FlushRefused:
        loads = await self.loads()
        advice = "continue it, or abort what is frozen" if frozen else "wait longer, or abort what runs and flush again"
        return FlushRefused(
            f"engine {self.engine}: the cache was not flushed in {attempts} attempts ({refusal.evidence}); it says "
            f"that {loads.running} requests run and {loads.waiting} wait; {advice}",
            engine=self.engine,
            running=loads.running,
            waiting=loads.waiting,
        )

    def _sure(self) -> None:
        if self.unsure:
            unknown = ", ".join(sorted(self.unsure))
            raise Quarantined(self.engine, f"a call on its memory ({unknown}) was never answered")

    def _may(self, endpoint: str) -> None:
        if not self.capabilities.lifecycle:
            advice = "it is attached without lifecycle rights; set `lifecycle = true` for its group to control it"
            raise MissingCapability(self.engine, (endpoint,), advice)
        self.capabilities.require(endpoint, why="use another version of SGLang")


def _ordered(tags: frozenset[MemoryTag]) -> tuple[MemoryTag, ...]:
    return tuple(tag for tag in MEMORY_TAGS if tag in tags)
