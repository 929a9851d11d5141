"""The parts of an engine, one per node: the end of any is the engine's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.launch.types import Exit


class Part(Protocol):
    """What runs on one node.

    Attributes:
        exit: How it ended; None while it lives.
        ended: Set once ``exit`` is.
    """

    exit: Exit | None
    ended: asyncio.Event


def first_exit(parts: Sequence[Part]) -> Exit | None:
    """How the first part that ended did, in their order; None while all live."""
    return next((part.exit for part in parts if part.exit is not None), None)


async def any_ended(parts: Sequence[Part]) -> None:
    """Waits until a part has ended."""
    waits = [asyncio.ensure_future(part.ended.wait()) for part in parts]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
