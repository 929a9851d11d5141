"""``torch.distributed``: this process is rank 0 of a group with every rank of every engine, and broadcasts to them.

The group forms once all of its ranks have called, and a broadcast ends once all have received. One engine that dies or
hangs therefore stops all, and none of them can tell which tensors it has: the update fails on every engine that is in
the group. What must not happen is that anybody waits for ever. Rank 0 hosts the rendezvous and holds a connection to
every rank, so tearing down its side makes the calls of the engines fail at once, instead of after SGLang's half hour.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from trimtab_manager.engine.errors import ControlError
from trimtab_manager.weights import payload
from trimtab_manager.weights.broadcast import Broadcaster, BroadcastError
from trimtab_manager.weights.fan_out import fan_out, left_s
from trimtab_manager.weights.transfer import session
from trimtab_manager.weights.transfer.checked import checked_tensors
from trimtab_manager.weights.transfer.ranks import leave_out_unknown, ranks_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trimtab_manager.weights.manifest import Manifest
    from trimtab_manager.weights.rows import Row
    from trimtab_manager.weights.scope import Member
    from trimtab_manager.weights.source import Distributed

DESTROY_S = 5.0


class DistributedTransfer:
    """init → begin → per bucket: receive and broadcast → end → destroy."""

    touches: ClassVar[bool] = True
    label_proves: ClassVar[bool] = False

    def __init__(self, source: Distributed) -> None:
        self._source = source
        self._tensors: list[payload.Pair] = []
        self._ranks: dict[str, int] = {}
        self._broadcaster: Broadcaster | None = None
        self._joined: list[Row] = []
        self._in_session: set[str] = set()

    @property
    def complete(self) -> bool:
        """Whether every tensor is replaced."""
        return not self._source.partial

    async def prepare(self, members: Sequence[Member]) -> None:
        """Compare the tensors with what the engines expect, and count the ranks of each engine."""
        self._tensors = await checked_tensors(self._source, members)
        self._ranks = await ranks_of(members)

    async def send(self, rows: Sequence[Row], version: int, *, flush: bool, deadline_s: float) -> None:
        """All or none: what fails on one engine fails on all that are in the group."""
        at_s = asyncio.get_running_loop().time() + deadline_s
        leave_out_unknown(rows, self._ranks)
        if not (group := [row for row in rows if row.well]):
            return
        try:
            await self._form(group, at_s)
            if not await self._begin(group, at_s):
                return
            await self._stream(group, version, flush, at_s)
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave the group on both sides. The trainer's side first: it frees engines that wait in it."""
        broadcaster, self._broadcaster = self._broadcaster, None
        joined, self._joined = self._joined, []
        if broadcaster is None:
            return
        broadcaster.abort()

        async def destroy(row: Row) -> None:
            try:
                await row.member.client.destroy_group(self._source.group_name, timeout_s=DESTROY_S)
            except ControlError as error:
                row.detail["destroy"] = str(error)

        await asyncio.gather(*(destroy(row) for row in joined))
        await broadcaster.closed()
        self._tensors = []

    async def _form(self, group: list[Row], at_s: float) -> None:
        offsets, world = {}, 1
        for row in group:
            offsets[row.id] = world
            world += self._ranks[row.id]
        source = self._source
        broadcaster = Broadcaster(source.master_address, source.master_port, source.backend, source.group_name)
        self._broadcaster = broadcaster
        self._joined = list(group)
        port = await broadcaster.listen(world, left_s(at_s))

        async def join(row: Row, at_s: float) -> None:
            await row.member.client.init_group(
                master_address=source.master_address,
                master_port=port,
                rank_offset=offsets[row.id],
                world_size=world,
                group_name=source.group_name,
                backend=source.backend,
                timeout_s=left_s(at_s),
            )

        await self._together("init", group, join, broadcaster.form, at_s)

    async def _begin(self, group: list[Row], at_s: float) -> bool:
        """Open the sessions; whether all did."""
        if any(not row.well for row in group):
            return False

        async def begin(row: Row, at_s: float) -> None:
            row.transfer = "unknown"
            if await session.begin(row.member.client, at_s):
                self._in_session.add(row.id)

        await fan_out("begin", group, begin, left_s(at_s))
        self._give_up_together(group, "begin")
        return all(row.well for row in group)

    async def _stream(self, group: list[Row], version: int, flush: bool, at_s: float) -> None:
        pending = list(payload.buckets(self._tensors, self._source.bucket_bytes))
        for number, bucket in enumerate(pending):
            is_last = number == len(pending) - 1
            shapes = payload.specs(bucket)

            async def receive(row: Row, at_s: float, shapes: Manifest = shapes, is_last: bool = is_last) -> None:
                await row.member.client.update_from_distributed(
                    names=list(shapes),
                    dtypes=[spec.dtype for spec in shapes.values()],
                    shapes=[spec.shape for spec in shapes.values()],
                    group_name=self._source.group_name,
                    version=str(version) if is_last else None,
                    flush=flush and is_last,
                    abort_all_requests=False,
                    timeout_s=left_s(at_s),
                )

            await self._together("transfer", group, receive, partial(self._send, bucket, at_s), at_s)
            if any(not row.well for row in group):
                return

        async def end(row: Row, at_s: float) -> None:
            if row.id in self._in_session:
                await session.end(row.member.client, at_s)
            row.transfer = "done"

        await fan_out("end", group, end, left_s(at_s))

    async def _together(
        self,
        step: str,
        group: list[Row],
        theirs: Callable[[Row, float], Awaitable[None]],
        ours: Callable[[], Awaitable[None]],
        at_s: float,
    ) -> None:
        """Both sides of a collective. Whoever fails first ends it for all: our side is torn down, theirs then fails."""
        broadcaster = self._sender()

        async def call(row: Row, at_s: float) -> None:
            try:
                await theirs(row, at_s)
            except BaseException:
                broadcaster.abort()
                raise

        engines = asyncio.ensure_future(fan_out(step, group, call, left_s(at_s)))
        try:
            await ours()
        except BroadcastError as error:
            broadcaster.abort()
            await engines
            for row in group:
                row.fail(step, "error", f"engine {row.id}: {error}")
        except BaseException:
            broadcaster.abort()
            engines.cancel()
            await asyncio.gather(engines, return_exceptions=True)
            raise
        await engines
        self._give_up_together(group, step)

    async def _send(self, bucket: Sequence[payload.Pair], at_s: float) -> None:
        await self._sender().send(bucket, left_s(at_s))

    def _sender(self) -> Broadcaster:
        if self._broadcaster is None:
            raise BroadcastError(f"group {self._source.group_name} was torn down")
        return self._broadcaster

    @staticmethod
    def _give_up_together(group: list[Row], step: str) -> None:
        if lost := [row for row in group if not row.well]:
            for row in group:
                row.fail(step, "error", f"engine {row.id}: the group broke at {lost[0].id}: {lost[0].error}")
