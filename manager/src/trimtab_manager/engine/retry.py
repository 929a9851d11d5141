"""A control call that fails in passing is sent again, as often as that is harmless and no more often than agreed.

SGLang's calls have no ids, so nothing tells a repetition from a second order. What may be repeated depends on the error
(see ``errors``): a call that was not sent, or that a proxy answered with 429, 502 or 503, did nothing; one without an
answer may have done everything, and is repeated only where doing it twice is the same as doing it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from trimtab_manager.engine.clock import SYSTEM, Clock
from trimtab_manager.engine.errors import ControlError
from trimtab_manager.engine.limits import RetryPolicy

T = TypeVar("T")


async def _nothing() -> None:
    return


async def repeated(
    call: Callable[[], Awaitable[T]],
    *,
    harmless_twice: bool,
    policy: RetryPolicy,
    recheck: Callable[[], Awaitable[None]] = _nothing,
    clock: Clock = SYSTEM,
) -> T:
    """Sends a call until it succeeds.

    Args:
        call: Sends it once.
        harmless_twice: Whether it may be sent again although it may have had its effect.
        policy: How often and when.
        recheck: Reads the state again before each repetition, and raises when the call must not be sent any more.
        clock: Whose time it is.

    Raises:
        ControlError: The last error, when it may not be sent again or was sent often enough.
    """
    attempt = 1
    while True:
        try:
            return await call()
        except ControlError as error:
            again = error.retryable or (harmless_twice and error.effect == "unknown")
            if not again or attempt >= policy.attempts:
                raise
        await clock.sleep(policy.gap_s(attempt))
        await recheck()
        attempt += 1
