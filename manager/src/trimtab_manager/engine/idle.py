"""Proof that nothing runs on an engine: the router says so, and the engine says so twice.

``/v1/loads`` is what the scheduler published last, so an answer alone proves nothing. Seen on SGLang 0.5.23:

=====================  ==============================================  ================================================
state                  age of the snapshot                             what it means
=====================  ==============================================  ================================================
serving, idle          under 0.1 s                                     current
serving, busy          under 0.1 s                                     current to a step
paused by ``abort``    under 0.1 s: only admission is closed, the      current. Requests at the pause gate are in no
                       scheduler goes on                               count, nor in the way of a release
paused otherwise       grows: the scheduler publishes nothing          the moment before the pause: proves nothing
scheduler hangs        grows                                           proves nothing
=====================  ==============================================  ================================================

The proof: no lease is open, and two reads say 0 running and 0 waiting whose snapshots are younger than ``fresh_s`` by
the engine's own clock and *different*. The second was then published after the first was read, hence after the fence.
(Older servers ask the scheduler for each answer; two answers are enough.) ``/metrics`` also counts what waits at the
pause gate, but only where ``--enable-metrics`` is on, so nothing here relies on it. An engine without any report of its
load, which only one that is merely routed to may be, is taken at the router's word.

A lease can stay open on a paused engine that is idle: its request came after the pause and waits at the pause gate,
where no abort reaches it. The engine is then let go for a moment and paused again, which ends such requests as aborted.
"""

from __future__ import annotations

from collections.abc import Callable

from trimtab_manager.engine.clock import Until
from trimtab_manager.engine.control import Control
from trimtab_manager.engine.errors import NotIdle
from trimtab_manager.engine.gate import Gate
from trimtab_manager.engine.types import Loads, RankLoad


async def quiesce(
    control: Control,
    gate: Gate,
    until: Until,
    *,
    aborting: Callable[[], bool] = lambda: False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Waits for the proof.

    Args:
        control: Of the engine.
        gate: Of the engine; closed by the caller.
        until: The deadline.
        aborting: Whether what runs is to be ended, asked at each look.
        check: Called at each look; raises to end the wait.

    Raises:
        NotIdle: Not proved at the deadline; the message has the last evidence.
        ControlError: The engine did not answer.
    """
    limits, clock = control.limits, control.clock
    first: Loads | None = None
    pulse = Until.after(limits.pulse_s, clock)
    while True:
        check()
        if aborting() and (control.paused != "yes" or control.pause_mode != "abort"):
            await control.pause("abort")
            pulse = Until.after(limits.pulse_s, clock)
        outstanding, loads = gate.outstanding(), await _loads(control)
        if outstanding == 0 and loads.idle and loads.age_s <= limits.fresh_s:
            if first is not None and _published_later(first, loads) and gate.outstanding() == 0:
                return
            first = first or loads
        else:
            first = None
        if until.passed:
            raise _not_idle(control, outstanding, loads)
        if aborting() and outstanding > 0 and loads.idle and pulse.passed:
            await control.resume()
        await clock.sleep(min(limits.poll_s, until.left_s))


async def _loads(control: Control) -> Loads:
    ranks = control.capabilities.ranks
    return await control.loads() if ranks else Loads((RankLoad(rank=0, running=0, waiting=0),), 0.0, None)


def _published_later(first: Loads, second: Loads) -> bool:
    if first.published_s is None or second.published_s is None:
        return True
    return second.published_s > first.published_s


def _not_idle(control: Control, outstanding: int, loads: Loads) -> NotIdle:
    age = (
        f", {loads.age_s:.1f} s ago (its scheduler is paused or hangs)" if loads.age_s > control.limits.fresh_s else ""
    )
    return NotIdle(
        f"engine {control.engine} is not idle at the deadline: {outstanding} leases are open on it, and it said{age} "
        f"that {loads.running} requests run and {loads.waiting} wait; wait longer, or drain with the policy `abort`",
        engine=control.engine,
        outstanding=outstanding,
        running=loads.running,
        waiting=loads.waiting,
    )
