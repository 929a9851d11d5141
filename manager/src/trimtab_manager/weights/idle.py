"""Whether an engine itself says that nothing runs and nothing waits.

The router's count is not enough: a client may call the engine directly. One read of ``/v1/loads`` is not enough either:
it is a snapshot that the scheduler published some time ago. Two in a row that agree are taken. That is less than what
an engine has to show before its memory is taken (``engine.idle`` waits for two snapshots that differ, a tenth of a
second in which a fleet would stand still), and enough here: a pause follows, confirmed only once nothing runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab_manager.engine.errors import NotIdle
from trimtab_manager.weights.fan_out import left_s

if TYPE_CHECKING:
    from trimtab_manager.engine.client import EngineClient

READS = 2
FIRST_GAP_S, LONGEST_GAP_S = 0.002, 0.25


async def confirm_idle(client: EngineClient, at_s: float) -> None:
    """Return once two reads in a row say so.

    Args:
        client: The engine.
        at_s: The deadline, on the event loop's clock.

    Raises:
        NotIdle: It has said otherwise until the deadline; the message has the last counts.
        ControlError: It cannot be asked.
    """
    agreed, gap_s = 0, FIRST_GAP_S
    while True:
        loads = await client.loads(timeout_s=left_s(at_s))
        agreed = agreed + 1 if loads.idle else 0
        if agreed == READS:
            return
        if left_s(at_s) <= gap_s:
            raise NotIdle(
                f"engine {client.engine} still says that {loads.running} requests run and {loads.waiting} wait,"
                " though the router has none on it: who else sends requests to it?",
                engine=client.engine,
                outstanding=0,
                running=loads.running,
                waiting=loads.waiting,
            )
        await asyncio.sleep(gap_s)
        gap_s = FIRST_GAP_S if agreed else min(LONGEST_GAP_S, gap_s * 2)
