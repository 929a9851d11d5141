"""When silence of an engine is nobody's fault: tokens that suspend the health detectors of a model.

An update pauses engines, a sleep takes their memory: an engine that answers no health check then is as it should be.
Whoever does such a thing holds a token with its name on it for as long as it does, so that a monitor that stays silent
can say why, and every exit path gives the token back.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Suspensions:
    """The tokens that are out."""

    def __init__(self) -> None:
        self._owners: dict[object, str] = {}
        self._stamp = 0

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose tokens are out, in the order in which they were taken."""
        return tuple(self._owners.values())

    @property
    def active(self) -> bool:
        """Whether any is out."""
        return bool(self._owners)

    @property
    def stamp(self) -> int:
        """Another number after each suspension: evidence from before one says nothing after it."""
        return self._stamp

    def take(self, owner: str) -> Suspension:
        """A token, for an owner whose reason outlives a block, such as a sleeping model."""
        token = Suspension(self)
        self._owners[token] = owner
        self._stamp += 1
        return token

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """A token inside the block."""
        token = self.take(owner)
        try:
            yield
        finally:
            token.release()

    def _give_back(self, token: Suspension) -> None:
        self._owners.pop(token, None)


class Suspension:
    """A token. Giving it back twice is giving it back."""

    def __init__(self, suspensions: Suspensions) -> None:
        self._suspensions = suspensions

    def release(self) -> None:
        """Let the detectors work again, as far as this token is concerned."""
        self._suspensions._give_back(self)
