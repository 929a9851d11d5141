"""What an update of weights needs of the fleet: the engines of one model, their pool, and somebody to tell.

The fleet implements this; tests and benches have small ones of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from trimtab import Backend, Pool
    from trimtab_manager.engine.client import EngineClient
    from trimtab_manager.weights.source import Source


class Member(Protocol):
    """One engine incarnation that serves the model."""

    @property
    def id(self) -> str:
        """Its id, the same as that of its backend."""

    @property
    def backend(self) -> Backend:
        """Its incarnation in the pool."""

    @property
    def client(self) -> EngineClient:
        """Its control calls."""

    @property
    def serves(self) -> bool:
        """Whether it could generate now. One that sleeps with its weights in memory cannot, and must not be asked."""


class UpdateScope(Protocol):
    """One model of one role, as an update sees it."""

    @property
    def role(self) -> str:
        """The role's name."""

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def pool(self) -> Pool:
        """Its routing state."""

    @property
    def static(self) -> bool:
        """Whether its weights never change (``weight_source = "static"``)."""

    def members(self) -> Sequence[Member]:
        """The engines that an update has to reach: all that hold weights in memory, tainted ones included."""

    def exclusive(self, what: str) -> AbstractAsyncContextManager[Any]:
        """Nobody else changes the engines inside the block, and their health is nobody's business."""

    async def condemn(self, engine: str, reason: str) -> None:
        """Take in that nothing more is expected of this incarnation; it is tainted in the pool already.

        Whoever can replace it does so, which also ends the requests that hang in it. Must not wait for that.
        """

    def published(self, version: int, source: Source) -> None:
        """Take in what runs now, so that an engine that comes later can be brought to it."""
