"""A whole model that serves nothing by the will of a controller: paused, or asleep.

The router's latch for that is an update of kind ``pause`` or ``offload``. It fences every engine at once, says why to
whoever asks, and keeps silence from being held against them. The manager holds it from before the first engine is
paused until after the last one is back.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from trimtab.errors import InvalidTransition, PoolClosed, PoolFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trimtab._core import Pool
    from trimtab_manager.fleet.gate import BackendGate
    from trimtab_manager.fleet.suspension import Suspension, Suspensions

HoldKind = Literal["paused", "sleeping"]
_UPDATE_KINDS: Mapping[HoldKind, Literal["pause", "offload"]] = {"paused": "pause", "sleeping": "offload"}
PARKED = "parked"
"""The reason of every gate while an update borrows the router's latch."""


class Hold:
    """The hold of one model, which is on or off.

    Args:
        pool: The model's.
        suspensions: Of its monitor: a held engine is not expected to answer.
        gates: Of its published engines.
        namespace: Makes the ids of its updates this manager's.
    """

    def __init__(
        self, pool: Pool, suspensions: Suspensions, gates: Callable[[], Iterable[BackendGate]], namespace: str
    ) -> None:
        self._pool = pool
        self._suspensions = suspensions
        self._gates = gates
        self._ids = (f"{namespace}-hold-{number}" for number in itertools.count(1))
        self._kind: HoldKind | None = None
        self._update_id = ""
        self._token: Suspension | None = None
        self._is_latched = False
        self._off = asyncio.Event()
        self._off.set()

    @property
    def kind(self) -> HoldKind | None:
        """What it is for; None: it is off."""
        return self._kind

    @property
    def update_id(self) -> str:
        """The router's name for it, or for the last one."""
        return self._update_id

    def fences_all(self) -> bool:
        """Whether the router grants nothing on its account."""
        return self._is_latched

    async def off(self) -> None:
        """Wait until it is off."""
        await self._off.wait()

    def put(self, kind: HoldKind) -> None:
        """Turn it on, or change what it is for. When it has returned, nothing is granted.

        Raises:
            UpdateInProgress, PoolFailed, PoolClosed: The pool refuses.
        """
        if self._kind != kind:
            if self._kind is not None:
                # As in `parked`, the latch for paused servers leaves no gap to serve in.
                self._pool.cancel_update(self._update_id)
            self._latch(kind)
            self._off.clear()
        self._kind = kind
        if self._token is not None:
            self._token.release()
        self._token = self._suspensions.take(kind)

    def lift(self) -> None:
        """Turn it off. Engines with a reason of their own stay out of routing."""
        if self._kind is None:
            return
        self._is_latched = False
        for gate in self._gates():
            gate.apply()
        # A pool that is over grants nothing, and says why by itself.
        with suppress(PoolFailed, PoolClosed):
            self._pool.end_server_pause(self._update_id)
            self._pool.cancel_update(self._update_id)
        self._kind = None
        self._off.set()
        if self._token is not None:
            self._token.release()
            self._token = None

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Leave the router's latch to an update inside the block; every engine is fenced by itself meanwhile.

        Raises:
            InvalidTransition: The model is paused, not asleep.
        """
        kind = self._kind
        if kind is None:
            yield
            return
        if kind == "paused":
            raise InvalidTransition(
                f"{self._pool.name} is paused by a controller; an update pauses its engines by itself: resume it first"
            )
        gates = tuple(self._gates())
        for gate in gates:
            gate.close(PARKED)
        # The latch for paused servers stays with the cancelled id until the update takes it over: no gap to serve in.
        self._is_latched = False
        for gate in gates:
            gate.apply()
        self._pool.cancel_update(self._update_id)
        try:
            yield
        finally:
            with suppress(PoolFailed, PoolClosed):
                self._latch(kind)
            for gate in gates:
                gate.open(PARKED)
            for gate in self._gates():
                gate.apply()

    def _latch(self, kind: HoldKind) -> None:
        self._update_id = next(self._ids)
        self._pool.begin_update(self._update_id, kind=_UPDATE_KINDS[kind])
        self._is_latched = True
