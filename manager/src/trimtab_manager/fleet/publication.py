"""How engines come into the router and the registry, and how they leave: all of a batch in one step, or none.

Nothing here waits, so whoever reads in the same event loop sees the topology before or after, and never a half of it.
The router is told first when engines come (a request that arrives is a request that can be served) and when they die
(nothing may be sent to the dead), and the topology follows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import InvalidTransition
from trimtab_manager.fleet.gate import LEAVING
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab._core import Pool
    from trimtab_manager.fleet.events import Events
    from trimtab_manager.fleet.monitor import Monitor
    from trimtab_manager.fleet.registry import Registry
    from trimtab_manager.fleet.replica import Replica, Slot


@dataclass(frozen=True)
class Newcomer:
    """An engine that is ready to be published.

    Attributes:
        slot: Its place, empty until then.
        replica: The engine.
        version: The weight version that it confirmed; None: none, so that it is pending where one is published.
    """

    slot: Slot
    replica: Replica
    version: int | None


class Publication:
    """The published engines of one model.

    Args:
        model: Its name.
        pool: The router.
        registry: The topology of the role.
        monitor: Watches what is published.
        events: The log.
    """

    def __init__(self, model: str, *, pool: Pool, registry: Registry, monitor: Monitor, events: Events) -> None:
        self._model = model
        self._pool = pool
        self._registry = registry
        self._monitor = monitor
        self._events = events

    def publish(self, newcomers: Sequence[Newcomer], why: str) -> None:
        """Register all of them and publish the topology; on any failure nothing is registered and nothing changed.

        Raises:
            LaunchError: One of them died meanwhile.
            InvalidAddress, InvalidCapacity, InvalidRequest: The router refuses one.
        """
        registered: list[Replica] = []
        try:
            for newcomer in newcomers:
                self._register(newcomer)
                registered.append(newcomer.replica)
            topology = self._registry.publish(self._model, add=[replica.published for replica in registered])
        except BaseException:
            for replica in registered:
                replica.gate.remove()
            raise
        for newcomer in newcomers:
            newcomer.slot.replica = newcomer.replica
            self._monitor.watch(newcomer.replica)
            self._log(newcomer)
        self._events.published(
            topology, "engines are published", engines=[newcomer.slot.id for newcomer in newcomers], why=why
        )

    def unpublish(self, slots: Sequence[Slot], why: str) -> list[Replica]:
        """Stop new requests to engines that are to leave, and publish a topology without them. What runs runs on.

        Returns:
            Those that were published.
        """
        present = [slot for slot in slots if slot.replica is not None]
        leaving = [self._taken_out(slot, why) for slot in present]
        topology = self._registry.publish(self._model, remove=[replica.id for replica in leaving])
        for replica in leaving:
            replica.gate.close(LEAVING)
        if leaving:
            self._events.published(topology, "engines leave", engines=[replica.id for replica in leaving], why=why)
        return leaving

    def fence(self, slot: Slot, why: str) -> Replica:
        """Take a dead engine out of the router at once, and publish a topology without it.

        Raises:
            InvalidTransition: It is not published.
        """
        replica = self._taken_out(slot, why)
        replica.gate.remove()
        topology = self._registry.publish(self._model, remove=[slot.id])
        self._events.published(topology, "engine is fenced", engines=[slot.id], why=why)
        return replica

    def _taken_out(self, slot: Slot, why: str) -> Replica:
        if (replica := slot.replica) is None:
            raise InvalidTransition(f"engine {slot.id} is not published: {slot.absent}")
        slot.replica, slot.absent = None, why
        self._monitor.unwatch(replica)
        return replica

    def _register(self, newcomer: Newcomer) -> None:
        replica = newcomer.replica
        if (exit_ := replica.handle.exit()) is not None:
            raise LaunchError(f"engine {replica.id} died before it could be published: {exit_}\n{exit_.evidence}")
        backend = self._pool.add_backend(replica.url, replica.capacity, id=replica.id, weight_version=newcomer.version)
        replica.gate.attach(backend)

    def _log(self, newcomer: Newcomer) -> None:
        replica, published = newcomer.replica, self._pool.weight_version
        if published is not None and newcomer.version != published:
            self._events.warning(
                "engine is out of routing until it has the published weights",
                engine=replica.id,
                generation=replica.generation,
                needs_version=published,
                next_step="the next update of the model brings it in",
            )
            return
        self._events.info(
            "engine serves",
            engine=replica.id,
            generation=replica.generation,
            url=replica.url,
            capacity=replica.capacity,
            weight_version=newcomer.version,
        )
