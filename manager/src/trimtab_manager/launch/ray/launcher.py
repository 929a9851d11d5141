"""The launcher ``ray``: engines as processes of a cluster's nodes, under one actor each."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup

from trimtab_manager.launch.diagnosis import EVIDENCE_LINES, Failure
from trimtab_manager.launch.gpus import Gpu
from trimtab_manager.launch.local.launcher import PORT_ATTEMPTS
from trimtab_manager.launch.local.ports import PORTS
from trimtab_manager.launch.ray.bundles import own_bundles, shares
from trimtab_manager.launch.ray.engine import RayEngine
from trimtab_manager.launch.ray.gpus import assigned_gpus
from trimtab_manager.launch.ray.groups import Group, find_group, given, make_group, remove_group, wait_placed
from trimtab_manager.launch.ray.member import Member
from trimtab_manager.launch.ray.node import StartOrder
from trimtab_manager.launch.ray.run import RayRun
from trimtab_manager.launch.ray.waiting import in_thread, to_its_end
from trimtab_manager.launch.startup import PROGRESS_INTERVAL_S, NotReady, log_progress, wait_ready
from trimtab_manager.launch.types import LaunchError, LaunchRequest, ProgressListener

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayStatistics:
    """A launcher at one moment.

    Attributes:
        run_id: Its run, which its placement groups have in their names.
        engines: Incarnations that are up or not yet gone, as ``policy/0#1``.
        starting: Launches that have not returned.
    """

    run_id: str
    engines: tuple[str, ...]
    starting: int


class RayLauncher:
    """Starts engines on the bundles of a placement group: a given one, or one of its own per engine.

    A given group belongs to whoever made it, and is never removed. An own one is removed with its engine, and on every
    way on which a start can fail.

    Args:
        run: Connection and tag; closed with the launcher.
        log_folder: Where each node writes its logs: ``<engine id>.g<generation>.log``.
        group: A given group, or its name; None: each engine gets one.
        python: Interpreter that has SGLang, on the nodes; None: the one that runs Ray there.
        bind: Address that engines bind on their node.
        router: Host from which they are dialled; None: this one, by the address that the cluster knows.
        advertise: Address under which they are dialled, if it does not follow from ``bind`` and the route to the
            router; fits clusters of one node.
        ports: Ports of a node from which engines get theirs.
        placement_deadline_s: How long a group may wait for resources.
        progress: Called while an engine starts.
        progress_interval_s: Seconds between two such calls, and between two lines about a group that waits.
        stop_grace_s: What ``close`` gives an engine between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        run: RayRun,
        log_folder: Path,
        *,
        group: PlacementGroup | str | None = None,
        python: str | None = None,
        bind: str = "0.0.0.0",  # noqa: S104  # nodes reach each other by any of their addresses
        router: str | None = None,
        advertise: str | None = None,
        ports: range = PORTS,
        placement_deadline_s: float = 600.0,
        progress: ProgressListener = log_progress,
        progress_interval_s: float = PROGRESS_INTERVAL_S,
        stop_grace_s: float = 20.0,
    ) -> None:
        self._run = run
        self._log_folder = log_folder
        self._given = group
        self._python = python
        self._bind = bind
        self._router = router
        self._advertise = advertise
        self._ports = ports
        self._placement_deadline_s = placement_deadline_s
        self._progress = progress
        self._progress_interval_s = progress_interval_s
        self._stop_grace_s = stop_grace_s
        self._engines: set[RayEngine] = set()
        self._launching: set[asyncio.Task[RayEngine]] = set()
        self._closed = False

    async def launch(self, request: LaunchRequest) -> RayEngine:
        """See :class:`~trimtab_manager.launch.types.Launcher`."""
        if self._closed:
            raise LaunchError(f"{request.engine_id}: the launcher is closed")
        task = asyncio.ensure_future(self._launch(replace(request, server_args=_plain(request.server_args))))
        self._launching.add(task)
        task.add_done_callback(self._launching.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await to_its_end(_over(task))
            raise
        if task.cancelled():
            raise LaunchError(f"{request.engine_id}: the launcher was closed during the start")
        return task.result()

    async def close(self) -> None:
        """Ends starts and engines, all at the same time, and the run; launches nothing any more.

        Raises:
            StopError: Something of an engine may be left; the others are stopped.
        """
        self._closed = True
        for task in self._launching:
            task.cancel()
        if self._launching:
            await asyncio.wait(set(self._launching))
        stops = (engine.stop(self._stop_grace_s) for engine in self._engines)
        results = await asyncio.gather(*stops, return_exceptions=True)
        await self._run.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def statistics(self) -> RayStatistics:
        """What it holds now."""
        return RayStatistics(
            run_id=self._run.run_id,
            engines=tuple(sorted(engine.name for engine in self._engines)),
            starting=len(self._launching),
        )

    async def _launch(self, request: LaunchRequest) -> RayEngine:
        name = f"{request.engine_id}#{request.generation}"
        try:
            await self._run.open()
            async with AsyncExitStack() as undo:
                group = await self._group(request, name)
                undo.push_async_callback(remove_group, group)
                await wait_placed(
                    group, deadline_s=self._placement_deadline_s, progress_interval_s=self._progress_interval_s
                )
                members = await self._members(request, name, group, undo)
                engine = await self._serve(request, name, members, group, undo)
                undo.pop_all()
                self._engines.add(engine)
                return engine
        except RayTaskError as error:
            # Raised on a node: what counts is said there; the rest is a traceback through Ray.
            cause = error.cause
            raise LaunchError(f"{name}: {cause if isinstance(cause, LaunchError) else error}") from error
        except RayError as error:
            raise LaunchError(f"{name} was not started, for Ray failed: {error}") from error

    async def _group(self, request: LaunchRequest, name: str) -> Group:
        if self._given is None:
            return await make_group(self._run.run_id, name, *own_bundles(request))
        look = find_group if isinstance(self._given, str) else given
        return await in_thread(look, self._given)

    async def _members(self, request: LaunchRequest, name: str, group: Group, undo: AsyncExitStack) -> list[Member]:
        """An actor per node, which is there and says where."""
        parts = shares(request, await group.nodes())
        planned = _per_node(request)
        gpus = await asyncio.gather(
            *(
                assigned_gpus(request, group, part, planned=planned[rank], deadline_s=self._placement_deadline_s)
                for rank, part in enumerate(parts)
            )
        )
        members = []
        for rank, (part, ids) in enumerate(zip(parts, gpus, strict=True)):
            member = Member(
                self._run.run_id, name, rank,
                several=request.nodes > 1, group=group, share=part, gpus=ids, ports=self._ports,
            )  # fmt: skip
            members.append(member)
            undo.push_async_callback(_end, member)
        router = self._router or ray.util.get_node_ip_address()
        await asyncio.gather(*(member.describe(self._bind, router, self._advertise) for member in members))
        return members

    async def _serve(
        self, request: LaunchRequest, name: str, members: list[Member], group: Group, undo: AsyncExitStack
    ) -> RayEngine:
        """Start the processes until they serve; once more on other ports when one was taken meanwhile."""
        failure: Failure | None = None
        for attempt in range(1, PORT_ATTEMPTS + 1):
            await asyncio.gather(*(member.reserve() for member in members))
            await asyncio.gather(*(member.start(self._order(request, name, member, members[0])) for member in members))
            engine = RayEngine(name, members, group, on_gone=self._forget)
            failure = await self._wait(engine, request)
            if failure is None:
                await asyncio.gather(*(member.serving() for member in members))
                return engine
            if not failure.port_was_taken:
                break
            await asyncio.gather(*(member.halt(0) for member in members))
            log.warning(
                "%s: a port was somebody else's when it started (attempt %d of %d)", name, attempt, PORT_ATTEMPTS
            )
        raise LaunchError(str(failure))

    def _order(self, request: LaunchRequest, name: str, member: Member, head: Member) -> StartOrder:
        assert head.node is not None  # noqa: S101  # described before
        return StartOrder(
            request=request,
            name=name,
            rank=member.rank,
            bind=self._bind,
            rendezvous=(head.node.address, head.ports[2]) if request.nodes > 1 else None,
            gpus=member.gpus,
            python=self._python,
            log_folder=self._log_folder,
        )

    async def _wait(self, engine: RayEngine, request: LaunchRequest) -> Failure | None:
        """Wait until it is ready; None, or why it is not going to be."""
        try:
            elapsed = await wait_ready(
                engine,
                request.engine_id,
                deadline_s=request.deadline_s,
                progress=self._progress,
                progress_interval_s=self._progress_interval_s,
            )
        except NotReady as error:
            tail = engine.log_tail(EVIDENCE_LINES)
            return Failure(request, error.exit, error.elapsed_s, error.health, tail, engine.facts)
        log.info("%s is healthy at %s after %.1f s", request.engine_id, engine.url, elapsed)
        return None

    async def _forget(self, engine: RayEngine) -> None:
        self._engines.discard(engine)
        await remove_group(engine.group)


def _per_node(request: LaunchRequest) -> list[tuple[Gpu, ...]]:
    """The GPUs that the plan assigned on each node."""
    if len(request.gpu_ids) not in (0, request.gpus * request.nodes):
        raise LaunchError(
            f"{request.engine_id}: the plan assigns {len(request.gpu_ids)} GPUs, and it needs "
            f"{request.gpus * request.nodes}"
        )
    return [request.gpu_ids[rank * request.gpus : (rank + 1) * request.gpus] for rank in range(request.nodes)]


async def _end(member: Member) -> None:
    await to_its_end(member.end(0))


async def _over(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})


def _plain(value: Any) -> Any:
    """A value of a specification as plain dictionaries and lists, which pickle."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
