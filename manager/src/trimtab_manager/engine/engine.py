"""One incarnation of an engine: its state, and the operations that move it.

The problem: SGLang's calls are not idempotent, come back late or not at all, and several kill the server when they are
sent twice or at the wrong time; yet whoever controls a fleet repeats orders after a crash, gives up waiting, and asks
two things at once. So an order here names the state that is wanted, not the step:

==============  =========  ===================  ================  =================  ================  ================
order           Starting   Ready                Draining          Sleeping           Onloading         Dead
==============  =========  ===================  ================  =================  ================  ================
activate        -> Ready   done                 error             -> Ready           -> Ready          error
drain           error      -> Draining          waits on          done               error             error
cancel_drain    error      done                 -> Ready          error              error             error
deactivate      error      -> Sleeping          -> Sleeping       done               error             error
shutdown        -> Dead    -> Dead              -> Dead           -> Dead            -> Dead           done
==============  =========  ===================  ================  =================  ================  ================

"error" is ``InvalidTransition``. ``activate`` with some of the tags stops in Onloading until all are in. An order that
is being carried out is joined by whoever gives it again; another order waits for it, and ``shutdown`` does not.

Going to sleep, the same for every role: close the gate, pause (``abort``), prove that nothing runs (``idle``), flush,
release, and look that the same process still lives. Waking: weights, then ``restore`` (which updates what is stale),
then the rest of the memory, continue, health, and only then the gate.

What failures leave behind: the engine is never in routing and paused, and its state says what is known.

* A refusal, or requests that do not end: the state the order had come to. Give it again, or another one.
* A call whose effect nobody knows and that may not be repeated, or one that failed as often as agreed: quarantined
  (``Dead`` with ``quarantined``), because no later call could be known to be safe. It is replaced, never mended.
* The process ended, or another one has its port: ``Dead``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trimtab.errors import InvalidTransition, TrimtabError
from trimtab_manager.engine.capabilities import Capabilities
from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.clock import SYSTEM, Clock, Until
from trimtab_manager.engine.control import Control
from trimtab_manager.engine.errors import (
    ControlError,
    IdentityChanged,
    MissingCapability,
    Quarantined,
    Refused,
    RestoreFailed,
)
from trimtab_manager.engine.gate import Gate
from trimtab_manager.engine.health import until_well
from trimtab_manager.engine.idle import quiesce
from trimtab_manager.engine.limits import Limits
from trimtab_manager.engine.operations import Operations
from trimtab_manager.engine.states import (
    Dead,
    Draining,
    DrainPolicy,
    Onloading,
    Ready,
    Sleeping,
    Starting,
    State,
    check_transition,
    name_of,
)
from trimtab_manager.engine.stats import EngineStatistics
from trimtab_manager.engine.types import MEMORY_TAGS, MemoryTag, PauseMode
from trimtab_manager.launch.types import EngineHandle

PARTING_TIMEOUT_S = 5.0
"""Of the calls that let a paused engine go before it is stopped; it is stopped without them, too."""


class SGLangEngine:
    """One incarnation of one engine. Made in the state ``Starting``, once its capabilities are known.

    Args:
        engine_id: Its id.
        generation: Number of the incarnation.
        client: Control of it; closed by ``shutdown``.
        capabilities: Found out about this incarnation.
        gate: The router's side of it; closed until it is activated.
        handle: Its processes; None for one that somebody else started.
        restore: Called while it wakes, with its weights' memory back and nothing else: brings the weights up to date.
            Without it, weights must survive a sleep.
        limits: How long and how often.
        clock: Whose time it is.
        on_change: Told of each transition: the state before, and the one after.
    """

    def __init__(
        self,
        engine_id: str,
        generation: int,
        client: EngineClient,
        capabilities: Capabilities,
        *,
        gate: Gate,
        handle: EngineHandle | None = None,
        restore: Callable[[SGLangEngine], Awaitable[None]] | None = None,
        limits: Limits | None = None,
        clock: Clock = SYSTEM,
        on_change: Callable[[State, State], None] | None = None,
    ) -> None:
        self.id = engine_id
        self.generation = generation
        self.client = client
        self.capabilities = capabilities
        self.control = Control(client, capabilities, limits=limits, clock=clock)
        self.handle = handle
        self.gate = gate
        self._restore = restore
        self._limits = self.control.limits
        self._clock = clock
        self._on_change = on_change
        self._operations = Operations(engine_id)
        self._state: State = Starting(clock.now_s())
        self._drain_cancelled = False
        self._closing = False
        gate.close()

    @property
    def state(self) -> State:
        """What it is in."""
        return self._state

    def statistics(self) -> EngineStatistics:
        """A frozen snapshot, for people and tests."""
        state = self._state
        return EngineStatistics(
            id=self.id,
            generation=self.generation,
            state=name_of(state),
            for_s=self._clock.now_s() - state.since_s,
            operation=self._operations.running,
            paused=self.control.paused,
            pause_mode=self.control.pause_mode,
            released=tuple(sorted(self.control.released)),
            unsure=tuple(sorted(self.control.unsure)),
            reason=state.reason if isinstance(state, Dead) else None,
            quarantined=isinstance(state, Dead) and state.quarantined,
        )

    # Orders.

    async def activate(self, tags: Iterable[MemoryTag] | None = None) -> None:
        """Serves, from ``Starting`` or sleep. With some tags only: takes their memory back, and serves once all are in.

        Raises:
            InvalidTransition: It is draining or dead.
            NotReady: It was not well in time; it stays where it is, out of routing.
            RestoreFailed: Its weights are not back; it stays in ``Onloading``.
            Quarantined: Nobody knows any more what it does.
        """
        wanted = frozenset(MEMORY_TAGS if tags is None else tags)
        if unknown := sorted(wanted.difference(MEMORY_TAGS)):
            raise ValueError(f"unknown memory tag {unknown[0]!r}; the tags are {', '.join(MEMORY_TAGS)}")
        name = "activate" if tags is None else f"activate({', '.join(sorted(wanted))})"
        await self._order(name, lambda: self._activate(wanted))

    async def drain(self, deadline_s: float | None = None, policy: DrainPolicy = "wait") -> None:
        """Leaves routing at once, and waits until nothing runs. With the policy ``abort`` what runs is ended.

        Joining a drain that waits with ``abort`` makes that one abort. An engine that was aborted stays paused.

        Raises:
            InvalidTransition: It is in no state to drain, or the drain was cancelled.
            NotIdle: Requests were left at the deadline; it stays ``Draining``.
            Quarantined: It did not answer.
        """
        self._fence(policy)
        await self._order("drain", lambda: self._drain(deadline_s, policy))

    async def cancel_drain(self) -> None:
        """Serves again after a drain, or instead of the rest of one. What was aborted stays aborted.

        Raises:
            InvalidTransition: It does not drain: for instance it went to sleep meanwhile.
            NotReady: It was not well in time; it stays ``Draining``.
            Quarantined: It did not say that it goes on.
        """
        self._drain_cancelled = self._operations.running in {"drain", "deactivate"}
        await self._order("cancel_drain", self._cancel_drain)

    async def deactivate(self, deadline_s: float | None = None) -> None:
        """Goes to sleep; what runs is aborted. Drain first to let it end.

        Args:
            deadline_s: For what runs to be gone.

        Raises:
            InvalidTransition: It starts, wakes, or is dead.
            MissingCapability: Its weights would be lost, or we may not.
            NotIdle: Requests were left at the deadline; it stays ``Draining``, paused, its memory untouched.
            FlushRefused: The same.
            Quarantined: Nobody knows whether it sleeps.
        """
        if self._restore is None and not self.capabilities.weights_survive_release:
            advice = "without it, its weights are lost when it sleeps, and nobody would restore them"
            raise MissingCapability(self.id, ("--enable-weights-cpu-backup",), advice)
        self._fence("abort")
        await self._order("deactivate", lambda: self._deactivate(deadline_s))

    async def shutdown(self, grace_s: float = 20.0) -> None:
        """Leaves routing and ends, from any state; stops the order in progress. Its processes get ``grace_s`` seconds.

        An engine that somebody else started is let go: it continues if we paused it, and goes on running.
        """
        self._closing = True
        self.gate.close()
        await self._operations.preempt("shutdown")
        await self._operations.run("shutdown", lambda: self._shutdown(grace_s))

    async def pause(self, mode: PauseMode) -> None:
        """Pauses it, for an update of its weights. Whoever pauses an engine in ``Ready`` has fenced its pool before.

        Raises:
            InvalidTransition: It sleeps, wakes, or is dead. (``restore`` uses ``control`` itself.)
            Quarantined: It did not say that it is paused.
        """
        await self._order(f"pause({mode})", lambda: self._pause(mode))

    async def resume(self) -> None:
        """Ends such a pause, also while a drain waits: what the pause froze could not end before.

        Raises:
            InvalidTransition: It sleeps, wakes, or is dead.
            Quarantined: It did not say that it goes on.
        """
        if self._operations.running == "drain":
            await self._guarded("resume", self._resume)
        else:
            await self._order("resume", self._resume)

    async def quiesce(self, deadline_s: float) -> None:
        """Waits until nothing runs, without any change to it. Only certain while its gate, or its pool, is closed.

        Raises:
            NotIdle: Requests were left at the deadline.
            ControlError: It did not answer.
        """
        await quiesce(self.control, self.gate, Until.after(deadline_s, self._clock))

    def quarantine(self, reason: str) -> None:
        """Out of routing for good, at once: nobody knows what it does. Its process may still live."""
        self._end(reason, quarantined=True)

    def mark_dead(self, reason: str) -> None:
        """Out of routing for good, at once: it ended."""
        self._end(reason, quarantined=False)

    # How they are carried out.

    async def _activate(self, wanted: frozenset[MemoryTag]) -> None:
        state = self._state
        if isinstance(state, Ready):
            return
        self._only_from("activate", Starting, Sleeping, Onloading)
        await self.control.verify_identity()
        if not isinstance(state, Starting):
            await self._take_memory(wanted)
            if self.control.released:
                return
            await self.control.resume()
        await until_well(self.control, self.handle)
        self._serve()

    async def _take_memory(self, wanted: frozenset[MemoryTag]) -> None:
        control, state = self.control, self._state
        if not isinstance(state, Onloading):
            state = Onloading(self._clock.now_s(), control.released, weights_current=self._restore is None)
            self._go(state)
        for tags in (wanted & {"weights"}, wanted - {"weights"}):
            await control.wake(tags)
            state = replace(state, released=control.released)
            self._go(state)
            if "weights" not in control.released and not state.weights_current:
                await self._restore_weights()
                state = replace(state, weights_current=True)
                self._go(state)

    async def _restore_weights(self) -> None:
        if self._restore is None:
            return
        try:
            await self._restore(self)
        except (IdentityChanged, Quarantined):
            raise
        except TrimtabError as error:
            raise RestoreFailed(self.id, str(error)) from error

    async def _drain(self, deadline_s: float | None, policy: DrainPolicy) -> None:
        if isinstance(self._state, Sleeping):
            return
        if self._close(policy, "drain").confirmed:
            return
        until = Until.after(self._limits.drain_deadline_s if deadline_s is None else deadline_s, self._clock)
        await self._empty(until)

    async def _cancel_drain(self) -> None:
        self._drain_cancelled = False
        if isinstance(self._state, Ready):
            return
        self._only_from("cancel_drain", Draining)
        await self.control.verify_identity()
        if self.control.paused != "no":
            await self.control.resume()
        await until_well(self.control, self.handle)
        self._serve()

    async def _deactivate(self, deadline_s: float | None) -> None:
        if isinstance(self._state, Sleeping):
            return
        self._close("abort", "deactivate")
        until = Until.after(self._limits.drain_deadline_s if deadline_s is None else deadline_s, self._clock)
        await self.control.verify_identity()
        await self.control.pause("abort")
        await self._empty(until)
        await self.control.flush()
        await self.control.release(MEMORY_TAGS)
        await self.control.verify_identity()
        self._go(Sleeping(self._clock.now_s(), self.control.released))

    async def _pause(self, mode: PauseMode) -> None:
        self._only_from("pause", Starting, Ready, Draining)
        await self.control.pause(mode)

    async def _resume(self) -> None:
        self._only_from("resume", Starting, Ready, Draining)
        await self.control.resume()

    async def _shutdown(self, grace_s: float) -> None:
        control = self.control
        alive = self.handle is None or self.handle.exit() is None
        out = control.released | control.unsure
        if alive and control.paused != "no" and not out:
            # A paused SGLang with a request inside never ends on SIGTERM.
            with suppress(ControlError):
                await self.client.resume(timeout_s=PARTING_TIMEOUT_S)
                control.paused, control.pause_mode = "no", None
                if self.handle is not None:
                    await self.client.abort_all(timeout_s=PARTING_TIMEOUT_S)
        if self.handle is not None:
            await self.handle.stop(grace_s)
        await self.client.close()
        if not isinstance(self._state, Dead):
            self._go(Dead(self._clock.now_s(), "it was shut down"))

    def _fence(self, policy: DrainPolicy) -> None:
        """Out of routing before any await, also when the order has to wait for another one; and abort from now on."""
        if not self._closing and isinstance(self._state, Ready | Draining):
            self._close(policy, "drain")

    def _close(self, policy: DrainPolicy, order: str) -> Draining:
        self._only_from(order, Ready, Draining)
        self.gate.close()
        state = self._state if isinstance(self._state, Draining) else Draining(self._clock.now_s(), policy)
        if policy == "abort":
            state = replace(state, policy=policy)
        self._go(state)
        return state

    async def _empty(self, until: Until) -> None:
        await quiesce(self.control, self.gate, until, aborting=self._aborting, check=self._check_drain)
        if isinstance(self._state, Draining):
            self._go(replace(self._state, confirmed=True))

    def _aborting(self) -> bool:
        return isinstance(self._state, Draining) and self._state.policy == "abort"

    def _check_drain(self) -> None:
        if self._drain_cancelled:
            raise InvalidTransition(f"engine {self.id}: the drain was cancelled")
        self._only_from("drain", Draining)

    def _serve(self) -> None:
        self._go(Ready(self._clock.now_s()))
        self.gate.open()

    # States.

    async def _order(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._not_closing(name)
        await self._operations.run(name, lambda: self._guarded(name, body))

    def _not_closing(self, name: str) -> None:
        if self._closing:
            raise InvalidTransition(f"engine {self.id} is shut down: no {name}")

    async def _guarded(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._not_closing(name)
        self._only_from(name, Starting, Ready, Draining, Sleeping, Onloading)
        if self.handle is not None and (end := self.handle.exit()) is not None:
            self.mark_dead(f"{end}, seen before {name}")
            raise Quarantined(self.id, f"{end}, seen before {name}")
        try:
            await body()
        except IdentityChanged as error:
            self.mark_dead(str(error))
            raise
        except Quarantined as error:
            self.quarantine(str(error))
            raise
        except ControlError as error:
            if isinstance(error, Refused) and not error.retryable:
                raise  # it said no: the state is what it was
            raise self._lost(name, error) from error

    def _lost(self, name: str, error: ControlError) -> Quarantined:
        end = None if self.handle is None else self.handle.exit()
        if end is not None:
            self.mark_dead(f"{end} during {name}")
            return Quarantined(self.id, f"{end} during {name}")
        self.quarantine(f"{name}: {error}")
        return Quarantined(self.id, f"{name}: {error}")

    def _only_from(self, order: str, *states: type[State]) -> None:
        if not isinstance(self._state, states):
            why = f": {self._state.reason}" if isinstance(self._state, Dead) else ""
            raise InvalidTransition(f"engine {self.id} is {name_of(self._state)}{why}: no {order}")

    def _end(self, reason: str, *, quarantined: bool) -> None:
        self.gate.close()
        if not isinstance(self._state, Dead):
            self._go(Dead(self._clock.now_s(), reason, quarantined))

    def _go(self, after: State) -> None:
        before = self._state
        check_transition(self.id, before, after)
        self._state = after
        if self._on_change is not None:
            self._on_change(before, after)
