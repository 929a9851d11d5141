"""How an engine that comes later gets the weights that its fleet has published.

A new incarnation starts with the weights of the model's path. Until it has the published version the router keeps it
out. What was loaded from disk can be loaded again; what a trainer sent is gone with the message, so such an engine
waits for the next update, unless whoever sends the weights has left a way to ask for them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from trimtab.errors import TrimtabError
from trimtab_manager.weights.source import FromDisk

if TYPE_CHECKING:
    from trimtab._core import Pool
    from trimtab_manager.fleet.replica import Replica
    from trimtab_manager.weights.source import Source

Resync: TypeAlias = "Callable[[Replica, int], Awaitable[None]]"
"""Brings one engine, which serves nothing yet, to a version: an update of it alone."""


class CatchUpError(TrimtabError):
    """An engine could not be given the published weights; it is out of routing."""

    code: ClassVar[str] = "catch_up_failed"


class CatchUp:
    """The published weights of one model, as far as newcomers are concerned.

    Args:
        pool: Knows the published version.
        model_path: What engines of the model start with.
        resync: The trainer's way to send its weights to one engine; None: there is none.
        timeout_s: Deadline of a load from disk.
    """

    def __init__(self, pool: Pool, model_path: str, *, resync: Resync | None, timeout_s: float) -> None:
        self._pool = pool
        self._model_path = model_path
        self._resync = resync
        self._timeout_s = timeout_s
        self._on_disk: tuple[FromDisk, int] | None = None

    def note(self, version: int, source: Source) -> None:
        """An update was published: its weights can be loaded again, or nowhere."""
        self._on_disk = (source, version) if isinstance(source, FromDisk) else None

    async def restore(self, replica: Replica) -> None:
        """Bring the weights of a waking engine up to date, after a sleep in which they were lost or became old.

        Raises:
            CatchUpError: There is no way, or it failed; the message has the way out.
        """
        survived = replica.engine.capabilities.weights_survive_release
        version = self._pool.weight_version
        try:
            if survived and (version is None or await _runs(replica, version)):
                return
            if version is None:
                await self._reload_first(replica)
                return
            was_sent = await self._send(replica, version)
            confirmed = was_sent and await _runs(replica, version)
        except TrimtabError as error:
            raise CatchUpError(f"engine {replica.id}: its weights could not be restored: {error}") from error
        if not was_sent:
            raise CatchUpError(
                f"engine {replica.id}: nobody here can send it version {version}; update the model now, with only the"
                " weights awake, and wake the rest after that"
            )
        if not confirmed:
            raise CatchUpError(f"engine {replica.id}: it was given version {version} and does not say that it runs it")

    async def bring(self, replica: Replica) -> int | None:
        """Give an engine that serves nothing yet the published weights.

        Returns:
            The version that it confirmed; None: none is published, or there is no way to get it.

        Raises:
            CatchUpError: There is a way, and it failed; the message has the last evidence.
        """
        version = self._pool.weight_version
        if version is None:
            return None
        try:
            if await _runs(replica, version):
                return version
            if not await self._send(replica, version):
                return None
            confirmed = await _runs(replica, version)
        except TrimtabError as error:
            raise CatchUpError(f"engine {replica.id}: version {version} could not be loaded: {error}") from error
        if not confirmed:
            raise CatchUpError(f"engine {replica.id}: it was given version {version} and does not say that it runs it")
        return version

    async def _send(self, replica: Replica, version: int) -> bool:
        if self._resync is not None:
            await self._resync(replica, version)
            return True
        if self._on_disk is None or self._on_disk[1] != version:
            return False
        source = self._on_disk[0]
        await replica.client.update_from_disk(
            source.path, str(version), flush=True, load_format=source.load_format, timeout_s=self._timeout_s
        )
        return True

    async def _reload_first(self, replica: Replica) -> None:
        """The weights that it was started with, under the label that it has."""
        label = (await replica.client.model_info()).weight_version
        await replica.client.update_from_disk(self._model_path, label, flush=True, timeout_s=self._timeout_s)


async def _runs(replica: Replica, version: int) -> bool:
    return (await replica.client.model_info()).weight_version == str(version)
