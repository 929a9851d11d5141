"""How new weights get to the engines: one module per kind, all behind the same few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from trimtab_manager.weights.source import Distributed, FromDisk, Source, Tensors
from trimtab_manager.weights.transfer.disk import DiskTransfer
from trimtab_manager.weights.transfer.label import LabelTransfer
from trimtab_manager.weights.transfer.tensor import TensorTransfer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import Member

__all__ = ["Transfer", "transfer_of"]


class Transfer(Protocol):
    """One transfer of weights.

    Attributes:
        touches: Whether engines get other weights, so that requests may not run meanwhile and caches are void.
        label_proves: Whether an engine that names the new version has all of it: the label moves with the weights.
        complete: Whether every tensor is replaced, so that an engine in doubt is whole again.
    """

    touches: ClassVar[bool]
    label_proves: ClassVar[bool]

    @property
    def complete(self) -> bool:
        """See above."""

    async def prepare(self, members: Sequence[Member]) -> None:
        """Everything that can be refused before anybody is disturbed.

        Raises:
            TrimtabError: The source does not fit.
        """

    async def send(self, rows: Sequence[Row], version: int, *, flush: bool, deadline_s: float) -> None:
        """Bring ``version`` to the engines whose rows are well, and label them; note in each row what became of it."""

    async def close(self) -> None:
        """Let go of what it holds, on every exit path. Idempotent."""


def transfer_of(source: Source) -> Transfer:
    """The transfer for a source."""
    if isinstance(source, FromDisk):
        return DiskTransfer(source)
    if isinstance(source, Tensors):
        return TensorTransfer(source)
    if isinstance(source, Distributed):
        # Nothing but this kind needs torch's process groups.
        from trimtab_manager.weights.transfer.distributed import DistributedTransfer

        return DistributedTransfer(source)
    return LabelTransfer()
