"""``POST /update_weights_from_disk``: each engine reads the checkpoint by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trimtab_manager.engine.errors import ControlError, Refused, Unreachable
from trimtab_manager.weights.fan_out import fan_out, left_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.rows import Outcome, Row
    from trimtab_manager.weights.scope import Member
    from trimtab_manager.weights.source import FromDisk

BEFORE_ANY_WEIGHT = ("Failed to get weights iterator:", "Failed to get model loader:")
"""How SGLang begins a refusal before it touched a tensor, such as that of a path that does not exist.

After any other refusal nothing is certain: one in the middle rolls back to the *path* that the model came from last,
which is not what it ran if tensors were sent since.
"""

NOT_FLUSHED = "Weights were updated, but the cache was not flushed"
"""How SGLang begins the refusal of an update that happened, and whose label therefore did not move."""


class DiskTransfer:
    """One call per engine, which also flushes."""

    touches: ClassVar[bool] = True
    label_proves: ClassVar[bool] = True
    complete = True

    def __init__(self, source: FromDisk) -> None:
        self._source = source

    async def prepare(self, members: Sequence[Member]) -> None:
        """Nothing can be asked: the path is the engines'."""

    async def send(self, rows: Sequence[Row], version: int, *, flush: bool, deadline_s: float) -> None:
        """All engines at once. It is never sent twice: a second load would only take as long again."""

        async def load(row: Row, at_s: float) -> None:
            row.transfer = "unknown"
            try:
                await row.member.client.update_from_disk(
                    self._source.path,
                    str(version),
                    flush=flush,
                    abort_all_requests=False,
                    load_format=self._source.load_format,
                    timeout_s=left_s(at_s),
                )
            except ControlError as error:
                row.transfer = _what_became(error)
                raise
            row.transfer = "done"

        await fan_out("transfer", rows, load, deadline_s)

    async def close(self) -> None:
        """It holds nothing."""


def _what_became(error: ControlError) -> Outcome:
    if isinstance(error, Unreachable):
        return "none"
    if not isinstance(error, Refused):
        return "unknown"
    if error.retryable or any(words in error.body for words in BEFORE_ANY_WEIGHT):
        return "none"
    return "refused"
