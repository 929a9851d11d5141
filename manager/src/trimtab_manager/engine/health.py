"""Whether an engine is well: it says that it takes requests, and it generates a token."""

from __future__ import annotations

from trimtab_manager.engine.client import HEALTH_TIMEOUT_S
from trimtab_manager.engine.clock import Until
from trimtab_manager.engine.control import Control
from trimtab_manager.engine.errors import ControlError, NotReady
from trimtab_manager.launch.types import EngineHandle

LEAST_TIMEOUT_S = 0.1
"""A health check that begins at the deadline still gets a moment."""


async def until_well(control: Control, handle: EngineHandle | None) -> None:
    """Waits for it, as long as ``ready_deadline_s`` says.

    ``/ready`` comes first: it is free, and says no while the engine is paused, which ``/health`` takes 20 s to find.

    Raises:
        NotReady: It was not well in time; the message has what was seen last.
        ControlError: Its process ended.
    """
    client, limits = control.client, control.limits
    until = Until.after(limits.ready_deadline_s, control.clock)
    while True:
        try:
            if not await client.ready(timeout_s=limits.control_timeout_s):
                seen = "it says that it is not ready: it is paused, or failed its last health check"
            elif not await client.health(timeout_s=min(HEALTH_TIMEOUT_S, max(until.left_s, LEAST_TIMEOUT_S))):
                seen = "its health check failed"
            else:
                return
        except ControlError as error:
            if handle is not None and handle.exit() is not None:
                raise
            seen = str(error)
        if until.passed:
            raise NotReady(
                f"engine {client.engine} was not well within {limits.ready_deadline_s:g} s: {seen}. Continue it, if "
                "somebody else paused it, and give the order again; or replace it"
            )
        await control.clock.sleep(min(limits.poll_s, until.left_s))
