"""One engine's place in the router: closed for a set of reasons, open when none is left.

A reason is a word (``lifecycle``, ``drained``, ``leaving``): the same one twice is lifted once, and an engine that
an operator drained does not come back because an update of it went well.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from trimtab.errors import UnknownBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab._core import Backend, Pool

LIFECYCLE = "lifecycle"
"""The engine's own reason: it drains, sleeps or wakes."""
DRAINED = "drained"
"""Somebody wants it out of routing."""
LEAVING = "leaving"
"""It is being removed."""


class BackendGate:
    """The gate of one incarnation.

    Args:
        pool: Where it is registered, or will be.
        is_held: Whether the whole pool grants nothing for the sake of the manager: then the engine's own reason needs
            no fence of its own.
    """

    def __init__(self, pool: Pool, is_held: Callable[[], bool] = lambda: False) -> None:
        self._pool = pool
        self._is_held = is_held
        self._backend: Backend | None = None
        self._is_registered = False
        self._reasons: set[str] = set()
        self._drained = False

    @property
    def backend(self) -> Backend | None:
        """The backend it stands for, also when that was removed; None: it was never registered."""
        return self._backend

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is closed, sorted."""
        return tuple(sorted(self._reasons))

    def attach(self, backend: Backend) -> None:
        """The engine was registered as ``backend``; what closed the gate before holds from now on."""
        self._backend = backend
        self._is_registered = True
        self._drained = False
        self.apply()

    def remove(self) -> None:
        """Take the incarnation out of the pool at once and for good. Leases on it stay valid until they are settled."""
        if self._backend is not None and self._is_registered:
            self._is_registered = False
            with suppress(UnknownBackend):
                self._pool.remove_backend(self._backend.id)

    def close(self, reason: str = LIFECYCLE) -> None:
        """Grant nothing on the engine. When it has returned, nothing is."""
        self._reasons.add(reason)
        self.apply()

    def open(self, reason: str = LIFECYCLE) -> None:
        """Take a reason away."""
        self._reasons.discard(reason)
        self.apply()

    def outstanding(self) -> int:
        """Leases that are open on the incarnation; 0 when it is not registered."""
        if self._backend is None or not self._is_registered:
            return 0
        if self._drained:
            with suppress(UnknownBackend):
                return self._pool.drain_backend(self._backend.id)
        rows = self._pool.statistics().backends
        return next((row.outstanding for row in rows if row.id == self._backend.id), 0)

    def apply(self) -> None:
        """Make the router do what the reasons ask for; called again when the whole pool is held, or is no more."""
        if self._backend is None or not self._is_registered:
            return
        needed = self._reasons - {LIFECYCLE} if self._is_held() else self._reasons
        # Whoever has the admin key can remove a backend past the manager: then it is out for good.
        with suppress(UnknownBackend):
            if needed and not self._drained:
                self._drained = True
                self._pool.drain_backend(self._backend.id)
            elif not needed and self._drained:
                self._drained = False
                self._pool.resume_backend(self._backend.id)
