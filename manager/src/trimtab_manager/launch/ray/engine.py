"""The handle of an engine on Ray: one member per node; the end of any is the engine's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from trimtab_manager.launch.addresses import url_of
from trimtab_manager.launch.parts import any_ended, first_exit
from trimtab_manager.launch.ray.groups import Group
from trimtab_manager.launch.ray.member import Member
from trimtab_manager.launch.types import Exit


class RayEngine:
    """The handle. Its processes are running when it is made.

    Args:
        name: The incarnation, such as ``policy/0#2``.
        members: One per node; the first is the head.
        group: On which they run.
        on_gone: Awaited with this once nothing is left: frees the group, if it is ours.
    """

    def __init__(
        self, name: str, members: Sequence[Member], group: Group, *, on_gone: Callable[[RayEngine], Awaitable[None]]
    ) -> None:
        self.name = name
        self._members = tuple(members)
        self.group = group
        self._on_gone = on_gone
        self._exit: Exit | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """``http://host:port`` of the head, as the router reaches it."""
        head = self._members[0]
        assert head.node is not None  # noqa: S101  # described before anything was started on it
        return url_of(head.node.advertised, head.ports[0])

    @property
    def facts(self) -> Mapping[str, Any]:
        """Placement group, and per node: ids, addresses, GPUs, ports, process ids, log."""
        return {
            "launcher": "ray",
            "placement_group": self.group.name,
            "placement_group_owned": self.group.owned,
            "command": [member.command for member in self._members],
            "pids": [member.pid for member in self._members],
            "nodes": [_facts(member) for member in self._members],
            "logs": [member.log_path for member in self._members],
        }

    def exit(self) -> Exit | None:
        """How the first member that ended did."""
        if self._exit is None:
            self._exit = first_exit(self._members)
        return self._exit

    async def exited(self) -> Exit:
        """Waits for that."""
        await any_ended(self._members)
        ended = self.exit()
        assert ended is not None  # noqa: S101  # `ended` is set after the exit
        return ended

    def log_tail(self, lines: int = 50) -> str:
        """The end of the head's log, a few seconds old; of several nodes the end of each, under its name."""
        if len(self._members) == 1:
            return _last(self._members[0].tail, lines)
        return "\n".join(f"--- node {member.rank}\n{_last(member.tail, lines)}" for member in self._members)

    async def stop(self, grace_s: float) -> None:
        """See :class:`~trimtab_manager.launch.types.EngineHandle`."""
        if self._stopping is None or (self._stopping.done() and self._stopping.exception() is not None):
            self._stopping = asyncio.ensure_future(self._stop(grace_s))
        elif not self._stopping.done():
            for member in self._members:
                member.hurry(grace_s)
        await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> None:
        results = await asyncio.gather(*(member.end(grace_s) for member in self._members), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await self._on_gone(self)


def _facts(member: Member) -> dict[str, Any]:
    node = member.node
    return {
        "rank": member.rank,
        "node_id": member.share.node_id,
        "host": node.host if node else None,
        "address": node.address if node else None,
        "bundles": list(member.share.bundles),
        "gpus": list(member.gpus),
        "visible_gpus": node.visible if node else None,
        "ports": f"{member.ports.start}-{member.ports.stop - 1}",
        "pid": member.pid,
        "actor_pid": node.actor_pid if node else None,
    }


def _last(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])
