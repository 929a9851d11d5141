"""The same call on many engines at once: a row for each, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from trimtab.errors import TrimtabError
from trimtab.fleet import EngineResult
from trimtab_manager.engine.errors import Ambiguous
from trimtab_manager.fleet.events import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trimtab_manager.engine.clock import Clock
    from trimtab_manager.fleet.replica import Replica


async def fan_out(
    replicas: Sequence[Replica],
    call: Callable[[Replica], Awaitable[Mapping[str, Any] | None]],
    *,
    deadline_s: float,
    clock: Clock,
) -> tuple[EngineResult, ...]:
    """Call every engine at once, each until the deadline.

    Args:
        replicas: The engines.
        call: What to do with one; what it returns is the detail of its row.
        deadline_s: Seconds after which an engine's row says ``timeout``; its call is cancelled.
        clock: The time.

    Returns:
        One row per engine, in their order. Cancelling this call cancels every one that runs, and waits for them.
    """
    tasks = [
        asyncio.create_task(_row(replica, call, deadline_s, clock), name=f"trimtab-manager-call-{replica.id}")
        for replica in replicas
    ]
    try:
        return tuple([await task for task in tasks])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _row(
    replica: Replica,
    call: Callable[[Replica], Awaitable[Mapping[str, Any] | None]],
    deadline_s: float,
    clock: Clock,
) -> EngineResult:
    began = clock.now_s()

    def row(status: Any, error: str | None = None, detail: Mapping[str, Any] | None = None) -> EngineResult:
        return EngineResult(replica.id, status, clock.now_s() - began, error, replica.state, detail or {})

    try:
        detail = await asyncio.wait_for(call(replica), deadline_s)
    except Ambiguous as error:
        return row("timeout", str(error))
    except TrimtabError as error:
        return row("error", str(error))
    except asyncio.TimeoutError:
        return row("timeout", f"engine {replica.id}: not done within {deadline_s:g} s, and nobody knows how far it got")
    except Exception as error:  # noqa: BLE001 -- one engine's surprise must not take the others' rows away
        logger.exception("a control call raised what it should not", extra={"engine": replica.id})
        return row("error", f"engine {replica.id}: {type(error).__name__}: {error}")
    return row("ok", detail=detail)
