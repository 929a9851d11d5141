"""A replica's place in a fleet, and the incarnation that fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import InvalidTransition
from trimtab_manager.engine.states import name_of
from trimtab_manager.fleet.registry import PublishedEngine

if TYPE_CHECKING:
    from trimtab._core import Backend
    from trimtab.spec import EngineGroupSpec
    from trimtab_manager.engine.client import EngineClient
    from trimtab_manager.engine.engine import SGLangEngine
    from trimtab_manager.fleet.gate import BackendGate
    from trimtab_manager.launch.types import EngineHandle

NOT_STARTED = "not started"
READY = "ready"
DRAINING = "draining"


@dataclass(frozen=True, eq=False)
class Replica:
    """One incarnation of an engine: its processes, its control, its state and its place in the router.

    Attributes:
        id: The slot's.
        generation: Which incarnation.
        capacity: Weight in the router.
        client: Control calls.
        engine: Its state machine.
        gate: Its place in the router.
        handle: Its processes.
        is_ours: Whether the manager may pause, update and put it to sleep.
        is_owned: Whether the manager started it, and ends it.
    """

    id: str
    generation: int
    capacity: float
    client: EngineClient
    engine: SGLangEngine
    gate: BackendGate
    handle: EngineHandle
    is_ours: bool
    is_owned: bool

    @property
    def state(self) -> str:
        """What its state machine says, in a word."""
        return name_of(self.engine.state)

    @property
    def backend(self) -> Backend:
        """Its incarnation in the router.

        Raises:
            InvalidTransition: It was never registered.
        """
        if (backend := self.gate.backend) is None:
            raise InvalidTransition(f"engine {self.id} is not registered yet")
        return backend

    @property
    def holds_weights(self) -> bool:
        """Whether its weights are in memory, as far as anybody knows."""
        control = self.engine.control
        return "weights" not in control.released | control.unsure

    @property
    def serves(self) -> bool:
        """Whether it could generate now: not while it sleeps or wakes, nor while its own control has paused it."""
        return self.state in (READY, DRAINING) and self.engine.control.paused == "no"

    @property
    def url(self) -> str:
        """Where it is reached."""
        return self.client.url

    @property
    def published(self) -> PublishedEngine:
        """What the registry says of it."""
        return PublishedEngine(self.id, self.generation, self.url, self.capacity)


@dataclass(eq=False)
class Slot:
    """What outlives the incarnations of a replica.

    Attributes:
        id: Unique in the role.
        group: What its incarnations are made from.
        url: Where it is, for an engine that somebody else runs.
        generation: The last incarnation that was begun; the first is 1.
        replica: The published incarnation.
        absent: Why there is none, for people.
        is_coming: Whether an incarnation is being made that will fill it.
    """

    id: str
    group: EngineGroupSpec
    url: str | None = None
    generation: int = 0
    replica: Replica | None = None
    absent: str = NOT_STARTED
    is_coming: bool = False

    def next_generation(self) -> int:
        """The number of a new incarnation."""
        self.generation += 1
        return self.generation
