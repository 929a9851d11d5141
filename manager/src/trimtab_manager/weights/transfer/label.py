"""``POST /update_weight_version``: the label alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trimtab_manager.weights.fan_out import fan_out, repeat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import Member


class LabelTransfer:
    """One call per engine, which aborts nothing: SGLang's default would abort every request."""

    touches: ClassVar[bool] = False
    label_proves: ClassVar[bool] = True
    complete = False

    async def prepare(self, members: Sequence[Member]) -> None:
        """Nothing can be wrong with a number."""

    async def send(self, rows: Sequence[Row], version: int, *, flush: bool, deadline_s: float) -> None:
        """All engines at once; the same label twice is harmless."""

        async def label(row: Row, at_s: float) -> None:
            row.transfer = "unknown"
            client = row.member.client
            await repeat(
                lambda limit_s: client.update_version(str(version), abort_all_requests=False, timeout_s=limit_s), at_s
            )
            row.transfer = "done"

        await fan_out("transfer", rows, label, deadline_s)

    async def close(self) -> None:
        """It holds nothing."""
