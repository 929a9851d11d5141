"""Who builds the snapshots, and who is told of a new one.

A snapshot is rebuilt when the last one is older than :data:`MAX_AGE_S`: the cost of reading is bounded whatever the
number of readers, and a pool is locked for the length of one copy.

What is served is asked of a :data:`Source`. Today that is the configuration, which cannot fail; a manager in another
process is a source that can, and then the last snapshot stays, marked ``stale``: what it says of engines may be over,
so no direct client may rely on it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from trimtab_gateway.discovery import discovery_content
from trimtab_gateway.snapshot import Fleet, ModelSnapshot, RoleSnapshot, ServedRole, Snapshot

if TYPE_CHECKING:
    from trimtab._core import Pool

MAX_AGE_S = 0.05
_FULL_LOOK_S = 1.0

Source: TypeAlias = Callable[[], Fleet]
"""Says what is served, at once; raises :class:`SourceSilentError` when it has not heard from who knows."""


class SourceSilentError(Exception):
    """Whoever knows what is served does not answer."""


class Publisher:
    """Builds the snapshots.

    Args:
        source: Says what is served. Its first call must not fail.
        clock: Monotonic seconds.
    """

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._fleet = source()
        self._own_epoch = uuid.uuid4().hex
        self._last = Snapshot(epoch=self._own_epoch, taken_at=float("-inf"), roles={})

    def current(self) -> Snapshot:
        """The newest snapshot, at most :data:`MAX_AGE_S` old."""
        if self._clock() - self._last.taken_at > MAX_AGE_S:
            self.renew()
        return self._last

    def renew(self) -> None:
        """Publish a snapshot of this moment."""
        now = self._clock()
        stale = self._ask_source()
        epoch = self._fleet.epoch or self._own_epoch
        roles = {role.name: self._observe(role, epoch, stale=stale) for role in self._fleet.roles}
        self._last = Snapshot(epoch=epoch, taken_at=now, roles=roles, stale=stale)

    def revision(self) -> int:
        """A number that is another one when engines or pools changed; cheap to look at, and it may miss the rest."""
        return sum(pool.revision for role in self._fleet.roles for pool in role.models.values())

    def _ask_source(self) -> bool:
        """Take over what is served; whether the source is silent."""
        try:
            self._fleet = self._source()
        except SourceSilentError:
            return True
        return False

    def _observe(self, role: ServedRole, epoch: str, *, stale: bool) -> RoleSnapshot:
        models = tuple(_observe_model(role, name, pool) for name, pool in role.models.items())
        content = discovery_content(role, models, phase=self._fleet.phase, stale=stale)
        topology = _topology(role, models)
        revision, seq = 1, 1
        if (last := self._last.roles.get(role.name)) is not None:
            revision = last.topology_revision + (topology != last.topology)
            seq = last.snapshot_seq + (content != last.content or epoch != last.epoch)
        if role.topology_revision is not None:
            # One owner per fact: who makes the changes counts them.
            revision = role.topology_revision
        return RoleSnapshot(
            name=role.name,
            epoch=epoch,
            topology_revision=revision,
            snapshot_seq=seq,
            default_model=role.default_model,
            models=models,
            content=content,
            topology=topology,
        )


class Watch:
    """Lets readers wait for a newer snapshot. It looks only while somebody waits, once for all of them."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._pulse = asyncio.Event()
        self._waiting = 0
        self._looker: asyncio.Task[None] | None = None
        self._closed = False

    async def changed(self, is_news: Callable[[Snapshot], bool], wait_s: float) -> Snapshot:
        """The newest snapshot, as soon as it is news; after ``wait_s`` seconds, whatever it is."""
        if wait_s > 0 and not self._closed and not is_news(self._publisher.current()):
            self._waiting += 1
            if self._looker is None or self._looker.done():
                self._looker = asyncio.create_task(self._look(), name="trimtab-gateway-watch")
            try:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._until(is_news), wait_s)
            finally:
                self._waiting -= 1
        return self._publisher.current()

    def close(self) -> None:
        """Answer everybody who waits, and let nobody wait any more: the gateway ends."""
        self._closed = True
        self._beat()

    async def _until(self, is_news: Callable[[Snapshot], bool]) -> None:
        while not self._closed and not is_news(self._publisher.current()):
            await self._pulse.wait()

    async def _look(self) -> None:
        clock = asyncio.get_running_loop().time
        seen, looked_at = None, float("-inf")
        while self._waiting and not self._closed:
            # A look at a thousand engines costs milliseconds; whether it is worth it costs microseconds.
            revision = self._publisher.revision()
            if revision != seen or clock() - looked_at > _FULL_LOOK_S:
                seen, looked_at = revision, clock()
                self._publisher.renew()
                self._beat()
            await asyncio.sleep(MAX_AGE_S)

    def _beat(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()


def _observe_model(role: ServedRole, name: str, pool: Pool) -> ModelSnapshot:
    statistics = pool.statistics()
    return ModelSnapshot(name, statistics.model_state, statistics, role.router_urls.get(name))


def _topology(role: ServedRole, models: tuple[ModelSnapshot, ...]) -> frozenset[tuple[object, ...]]:
    endpoints = {(model.name, each.id, each.generation, each.url) for model in models for each in model.pool.backends}
    routers = {(model.name, model.router_url) for model in models}
    return frozenset({*endpoints, *routers, *role.route_keys.items(), (role.default_model,)})
