"""The driver's side of one engine node: its actor, watched for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from trimtab_manager.launch.gpus import Gpu
from trimtab_manager.launch.local.engine import KILL_DEADLINE_S
from trimtab_manager.launch.local.orphans import ENGINE_VARIABLE, RUN_VARIABLE, kill_marked
from trimtab_manager.launch.ray.bundles import NodeShare
from trimtab_manager.launch.ray.groups import Group
from trimtab_manager.launch.ray.node import TAIL_LINES, EngineNode, NodeFacts, StartOrder
from trimtab_manager.launch.types import Exit, LaunchError, StopError

log = logging.getLogger(__name__)

START_DEADLINE_S = 120.0
"""For an actor to be there: Ray starts a Python process for it."""
CALL_DEADLINE_S = 30.0
"""For a call that does next to nothing."""
WATCH_S = 5.0
"""How old the log's tail is at most; an end is heard of at once."""
SILENCE_S = 60.0
"""An actor that is silent for so long is taken for dead, though Ray still lists it: its node hangs, or is cut off."""
_RUNTIME = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "false"}}
"""Ray would kill the direct children of an actor that ends: the guard, which then could end nobody. Without that the
guard sees the actor go, and ends the engine with all its descendants."""


class Member:
    """One node of an engine.

    Args:
        run_id: The run.
        name: The incarnation, such as ``policy/0#2``.
        rank: Of the node in the engine.
        several: Whether the engine spans several.
        group: The placement group.
        share: Its part of that.
        gpus: The GPUs of the part.
        ports: Where the node takes ports from.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        rank: int,
        *,
        several: bool,
        group: Group,
        share: NodeShare,
        gpus: tuple[Gpu, ...],
        ports: range,
    ) -> None:
        self.name = name
        self.rank = rank
        self.share = share
        self.gpus = gpus
        self.node: NodeFacts | None = None
        self.ports: range = range(0)
        self.pid: int | None = None
        self.command = ""
        self.log_path = ""
        self.tail = ""
        self.exit: Exit | None = None
        self.ended = asyncio.Event()
        self._run_id = run_id
        self._what = f"actor of node {rank}" if several else "actor"
        self._watching: asyncio.Task[None] | None = None
        strategy = PlacementGroupSchedulingStrategy(group.handle, placement_group_bundle_index=share.bundles[0])
        actor = ray.remote(num_cpus=0, num_gpus=0, max_restarts=0, runtime_env=_RUNTIME)(EngineNode)
        self._actor: Any = actor.options(scheduling_strategy=strategy).remote(run_id, ports)

    async def describe(self, bind: str, router: str, advertise: str | None) -> NodeFacts:
        """Waits for the actor, and learns where it is. Raises LaunchError."""
        try:
            node: NodeFacts = await asyncio.wait_for(
                self._actor.describe.remote(bind, router, advertise), START_DEADLINE_S
            )
        except asyncio.TimeoutError:
            raise LaunchError(
                f"{self.name}: the {self._what} did not start on node {self.share.node_id[:8]} within "
                f"{START_DEADLINE_S:.0f} s; `ray status` and the logs of Ray on that node say why"
            ) from None
        self.node = node
        return node

    async def reserve(self) -> range:
        """Takes a block of ports of the node."""
        self.ports = await asyncio.wait_for(self._actor.reserve.remote(), CALL_DEADLINE_S)
        return self.ports

    async def start(self, order: StartOrder) -> None:
        """Starts the process and the watch over it."""
        self.exit = None
        self.ended.clear()
        self.command, self.log_path = await asyncio.wait_for(self._actor.start.remote(order), CALL_DEADLINE_S)
        self._watching = asyncio.ensure_future(self._watch())

    async def serving(self) -> None:
        """Tells the actor that the server is up."""
        await asyncio.wait_for(self._actor.serving.remote(), CALL_DEADLINE_S)

    def hurry(self, grace_s: float) -> None:
        """Shortens the grace of a stop that runs."""
        self._actor.stop.remote(grace_s)

    async def halt(self, grace_s: float) -> None:
        """Ends the process; the actor stays.

        Raises:
            StopError: Something of it may be left on the node.
        """
        limit_s = grace_s + KILL_DEADLINE_S + CALL_DEADLINE_S
        try:
            await asyncio.wait_for(self._actor.stop.remote(grace_s), limit_s)
        except StopError as error:
            raise StopError(f"node {self.share.node_id[:8]}: {error}") from error
        except (RayActorError, asyncio.TimeoutError):
            await self._sweep()
        if self._watching is not None:
            await asyncio.wait({self._watching}, timeout=CALL_DEADLINE_S)
            self._watching.cancel()

    async def end(self, grace_s: float) -> None:
        """Ends the process and the actor. Idempotent."""
        # It answers, so it was created: an actor killed during its creation can leave the bundle's GPUs taken for ever.
        await self.halt(grace_s)
        await asyncio.to_thread(ray.kill, self._actor)

    async def _watch(self) -> None:
        heard = asyncio.get_running_loop().time()
        while self.exit is None:
            left_s = heard + WATCH_S + SILENCE_S - asyncio.get_running_loop().time()
            try:
                report = await asyncio.wait_for(self._actor.watch.remote(WATCH_S), max(0.0, left_s))
            except ActorUnavailableError:
                await asyncio.sleep(1.0)  # Ray tries to reach it, and says when it gives it up
            except asyncio.TimeoutError:
                self._set_exit(f"it said nothing for {WATCH_S + SILENCE_S:.0f} s")
            except RayError as error:
                self._set_exit(str(error))
            else:
                heard = asyncio.get_running_loop().time()
                self.pid, self.tail, self.exit = report.pid, report.tail, report.exit
        self.ended.set()

    def _set_exit(self, why: str) -> None:
        """The actor's end is the process's: its guard sees to that."""
        pid = None if self.node is None else self.node.actor_pid
        evidence = "\n".join([*self.tail.splitlines(), *why.splitlines()][-TAIL_LINES:])
        self.exit = Exit(self._what, pid=pid, evidence=evidence)

    async def _sweep(self) -> None:
        """Without the actor, another process of the node ends what may be left; on a dead node nothing is."""
        strategy = NodeAffinitySchedulingStrategy(self.share.node_id, soft=False)
        sweep = ray.remote(num_cpus=0, max_retries=0)(kill_marked).options(scheduling_strategy=strategy)
        wanted = {RUN_VARIABLE: self._run_id, ENGINE_VARIABLE: self.name}
        try:
            left = await asyncio.wait_for(sweep.remote(wanted), CALL_DEADLINE_S)
        except (RayError, GetTimeoutError, asyncio.TimeoutError) as error:
            log.warning("%s: node %s cannot be looked at: %s", self.name, self.share.node_id[:8], _line(error))
        else:
            if left:
                raise StopError(f"{self.name}: processes {left} on node {self.share.node_id[:8]} survive SIGKILL")


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
