"""``POST /update_weights_from_tensor``: the numbers travel in the calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from trimtab_manager.weights import payload
from trimtab_manager.weights.fan_out import fan_out, left_s
from trimtab_manager.weights.transfer import session
from trimtab_manager.weights.transfer.checked import checked_tensors
from trimtab_manager.weights.transfer.ranks import leave_out_unknown, ranks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import Member
    from trimtab_manager.weights.source import Tensors


class TensorTransfer:
    """Bucket after bucket to all engines at once; only the last one carries the label."""

    touches: ClassVar[bool] = True
    label_proves: ClassVar[bool] = False

    def __init__(self, source: Tensors) -> None:
        self._source = source
        self._tensors: list[payload.Pair] = []
        self._ranks: dict[str, int] = {}

    @property
    def complete(self) -> bool:
        """Whether every tensor is replaced."""
        return not self._source.partial

    async def prepare(self, members: Sequence[Member]) -> None:
        """Compare the tensors with what the engines expect. Raises ``InvalidRequest`` naming the differences."""
        self._tensors = await checked_tensors(self._source, members)
        self._ranks = await ranks_of(members)

    async def send(self, rows: Sequence[Row], version: int, *, flush: bool, deadline_s: float) -> None:
        """All engines get a bucket before the next one is serialized, so that two are in memory at most."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + deadline_s
        sessions: dict[str, bool] = {}
        leave_out_unknown(rows, self._ranks)

        async def begin(row: Row, at_s: float) -> None:
            row.transfer = "unknown"  # opening a session already takes packed weights apart
            sessions[row.id] = await session.begin(row.member.client, at_s)

        await fan_out("begin", rows, begin, left_s(at_s))
        pending = list(payload.buckets(self._tensors, self._source.bucket_bytes))
        for number, bucket in enumerate(pending):
            is_last = number == len(pending) - 1
            text = await loop.run_in_executor(None, payload.serialize, bucket)

            async def load(row: Row, at_s: float, text: str = text, is_last: bool = is_last) -> None:
                # A server of more ranks takes a list with one entry for each; every rank picks its share of the whole.
                await row.member.client.update_from_tensor(
                    [text] * self._ranks[row.id],
                    str(version) if is_last else None,
                    flush=flush and is_last,
                    abort_all_requests=False,
                    timeout_s=left_s(at_s),
                )
                if is_last:
                    row.transfer = "done"

            await fan_out("transfer", rows, load, left_s(at_s))

        async def end(row: Row, at_s: float) -> None:
            await session.end(row.member.client, at_s)

        await fan_out("end", [row for row in rows if sessions.get(row.id)], end, left_s(at_s))

    async def close(self) -> None:
        """Forget the tensors."""
        self._tensors = []
