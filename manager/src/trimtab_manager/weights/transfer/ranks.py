"""How many ranks each engine has, which is never guessed.

A server dies of a list of the wrong length, and a group of the wrong size waits for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import Member


async def ranks_of(members: Sequence[Member]) -> dict[str, int]:
    """The tensor-parallel ranks of every engine that says so, by its id."""
    found = await asyncio.gather(*(member.client.server_info() for member in members), return_exceptions=True)
    return {
        member.id: info.tp_size
        for member, info in zip(members, found, strict=True)
        if not isinstance(info, BaseException)
    }


def leave_out_unknown(rows: Sequence[Row], ranks: Mapping[str, int]) -> None:
    """End the part of engines that did not say how many ranks they have; nothing was sent to them."""
    for row in rows:
        if row.id not in ranks:
            row.fail(
                "ranks",
                "error",
                f"{row.id} did not say how many ranks it has (GET /server_info), so nothing was sent to it",
            )
