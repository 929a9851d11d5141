"""The launcher ``local``: engines as processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from trimtab_manager.launch.addresses import advertised_address, is_wildcard, url_of
from trimtab_manager.launch.command import Place
from trimtab_manager.launch.diagnosis import EVIDENCE_LINES, Failure
from trimtab_manager.launch.gpus import bind_gpus, node_gpus
from trimtab_manager.launch.keys import flag_name
from trimtab_manager.launch.local.engine import LocalEngine
from trimtab_manager.launch.local.gpu_pool import GpuPool
from trimtab_manager.launch.local.guard import descendants
from trimtab_manager.launch.local.leftovers import Leftovers
from trimtab_manager.launch.local.orphans import owners
from trimtab_manager.launch.local.ports import PORTS, PortAllocator, PortBlock
from trimtab_manager.launch.local.process import GuardedProcess
from trimtab_manager.launch.local.start import start_process
from trimtab_manager.launch.startup import PROGRESS_INTERVAL_S, NotReady, log_progress, wait_ready
from trimtab_manager.launch.types import Exit, LaunchError, LaunchRequest, ProgressListener

log = logging.getLogger(__name__)

PORT_ATTEMPTS = 5
"""Blocks that are tried when an engine ends because a port was taken between hand-over and its own bind."""
SURVIVES_PARTS = frozenset({"elastic-ep-backend"})
"""Flags with which a server goes on when one of its schedulers ends."""


@dataclass(frozen=True)
class LauncherStatistics:
    """A launcher at one moment.

    Attributes:
        run_id: Its run, which marks its processes.
        engines: Incarnations whose processes are not gone, as ``policy/0#1``.
        gpus_taken: Who has which GPU of its pool.
    """

    run_id: str
    engines: tuple[str, ...]
    gpus_taken: Mapping[str, str]


class LocalLauncher:
    """Starts engines under guards, on blocks of ports, with a log file each. Nothing outlives this process.

    Args:
        log_folder: Where the logs go: ``<engine id>.g<generation>.log``.
        python: Interpreter that has SGLang.
        run_id: Name of this run. What an earlier manager of the same run left on this host is ended before the first
            launch; by default the run is a new one and nothing is looked for.
        bind: Address that engines bind.
        router: Host of the router, which must reach the engines.
        advertise: Address under which it does, if it does not follow from ``bind`` and the route to the router.
        progress: Called while an engine starts.
        progress_interval_s: Seconds between two such calls.
        stop_grace_s: What ``close`` gives an engine between SIGTERM and SIGKILL.
        ports: What blocks of ports may be made of.

    Raises:
        LaunchError: The router could not reach what would be advertised.
    """

    def __init__(
        self,
        log_folder: Path,
        *,
        python: str = sys.executable,
        run_id: str | None = None,
        bind: str = "127.0.0.1",
        router: str = "127.0.0.1",
        advertise: str | None = None,
        progress: ProgressListener = log_progress,
        progress_interval_s: float = PROGRESS_INTERVAL_S,
        stop_grace_s: float = 20.0,
        ports: range = PORTS,
    ) -> None:
        self._log_folder = log_folder
        self._python = python
        self._run_id = run_id or uuid.uuid4().hex
        self._bind = bind
        self._advertised = advertised_address(bind, router, advertise=advertise)
        self._progress = progress
        self._progress_interval_s = progress_interval_s
        self._stop_grace_s = stop_grace_s
        self._leftovers = Leftovers(self._run_id, are_possible=run_id is not None)
        self._ports = PortAllocator(within=ports, on_taken=self._leftovers.free)
        self._gpus = GpuPool(node_gpus())
        self._engines: set[LocalEngine] = set()
        # One at a time: a block holds a descriptor per port until its engine is started.
        self._starting = asyncio.Lock()
        self._closed = False

    async def launch(self, request: LaunchRequest) -> LocalEngine:
        """See :class:`~trimtab_manager.launch.types.Launcher`."""
        await self._leftovers.end()
        failure: Failure | None = None
        ends_s = time.monotonic() + request.deadline_s
        for attempt in range(1, PORT_ATTEMPTS + 1):
            async with self._starting:
                blocks = await self._allocate(request.nodes)
                engine = self._start(request, blocks)
            try:
                failure = await self._wait(engine, request, blocks, ends_s - time.monotonic())
            except BaseException:
                await engine.stop(0)
                raise
            if failure is None:
                engine.serving()
                if not any(flag_name(name) in SURVIVES_PARTS for name in request.server_args):
                    engine.watch()
                return engine
            await engine.stop(0)
            if self._closed:
                raise LaunchError(f"{request.engine_id}: the launcher was closed while the engine started")
            if not failure.port_was_taken:
                break
            log.warning(
                "%s: a port of %s was somebody else's when it started (attempt %d of %d); another block is tried",
                request.engine_id, ", ".join(map(str, blocks)), attempt, PORT_ATTEMPTS,
            )  # fmt: skip
        raise LaunchError(str(failure))

    async def close(self) -> None:
        """Stops all engines at the same time, those that start included; launches nothing any more.

        Raises:
            StopError: A process survives SIGKILL.
        """
        self._closed = True
        results = await asyncio.gather(
            *(engine.stop(self._stop_grace_s) for engine in self._engines), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def statistics(self) -> LauncherStatistics:
        """What it holds now."""
        return LauncherStatistics(
            run_id=self._run_id,
            engines=tuple(sorted(engine.name for engine in self._engines)),
            gpus_taken=self._gpus.taken(),
        )

    def _start(self, request: LaunchRequest, blocks: Sequence[PortBlock]) -> LocalEngine:
        """Start the processes; whatever was taken is given back if one cannot be started."""
        name = f"{request.engine_id}#{request.generation}"
        with ExitStack() as undo:
            for block in blocks:
                undo.callback(block.release)
            if self._closed:
                raise LaunchError(f"{name}: the launcher is closed")
            gpus, taken = self._assign(request)
            undo.callback(self._gpus.give_back, taken)
            bindings = [bind_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), each) for each in gpus]
            processes: list[GuardedProcess] = []
            for node, (block, binding) in enumerate(zip(blocks, bindings, strict=True)):
                place = Place(
                    host=self._bind,
                    ports=block.ports,
                    node=node,
                    rendezvous="127.0.0.1" if request.nodes > 1 or is_wildcard(self._bind) else None,
                    rendezvous_port=blocks[0].ports[2],
                    base_gpu=binding.base,
                )
                process = start_process(
                    request,
                    place,
                    block,
                    run_id=self._run_id,
                    python=self._python,
                    log_folder=self._log_folder,
                    inherited=os.environ,
                    gpus=binding.environment,
                    direct=(self._advertised,),
                )
                processes.append(process)
                undo.callback(process.abandon)
            release = undo.pop_all()
        facts = {
            "ports": [str(block) for block in blocks],
            "gpus": [list(each) for each in gpus],
        }
        engine = LocalEngine(
            name,
            url_of(self._advertised, blocks[0].base),
            (self._bind, blocks[0].base),
            processes,
            facts=facts,
            on_gone=lambda: self._forget(engine, release),
        )
        self._engines.add(engine)
        return engine

    async def _wait(
        self, engine: LocalEngine, request: LaunchRequest, blocks: Sequence[PortBlock], deadline_s: float
    ) -> Failure | None:
        """Wait until it is ready; None, or why it is not going to be."""
        try:
            elapsed = await wait_ready(
                engine,
                request.engine_id,
                deadline_s=deadline_s,
                progress=self._progress,
                progress_interval_s=self._progress_interval_s,
            )
        except NotReady as error:
            ended, elapsed, health = error.exit, error.elapsed_s, error.health
        else:
            stranger = await asyncio.get_running_loop().run_in_executor(
                None, _stranger, blocks[0].base, engine.facts["guards"][0]
            )
            if stranger is None:
                log.info("%s is healthy at %s after %.1f s", request.engine_id, engine.url, elapsed)
                return None
            health = f"200, from {stranger}"
            ended = Exit("main", evidence=f"port {blocks[0].base} is already in use: {stranger} answered instead")
        return Failure(request, ended, elapsed, health, engine.log_tail(EVIDENCE_LINES), engine.facts)

    def _assign(self, request: LaunchRequest) -> tuple[list[tuple[int | str, ...]], tuple[int | str, ...]]:
        """The GPUs of each node, and those that were taken from the pool for it."""
        count = request.gpus * request.nodes
        if request.gpu_ids and len(request.gpu_ids) != count:
            raise LaunchError(
                f"{request.engine_id}: the plan assigns {len(request.gpu_ids)} GPUs, and it needs {count}"
            )
        taken = () if request.gpu_ids else self._gpus.take(count, request.engine_id)
        gpus = request.gpu_ids or taken
        return [gpus[node * request.gpus : (node + 1) * request.gpus] for node in range(request.nodes)], taken

    def _forget(self, engine: LocalEngine, release: ExitStack) -> None:
        self._engines.discard(engine)
        release.close()

    async def _allocate(self, count: int) -> list[PortBlock]:
        """Blocks, searched for in a thread: who owns a port that is taken is read from all of /proc."""
        blocks: list[PortBlock] = []
        try:
            for _ in range(count):
                pending = asyncio.get_running_loop().run_in_executor(None, self._ports.allocate)
                try:
                    blocks.append(await asyncio.shield(pending))
                except asyncio.CancelledError:
                    pending.add_done_callback(_release_result)
                    raise
        except BaseException:
            for block in blocks:
                block.release()
            raise
        return blocks


def _stranger(port: int, guard: int) -> str | None:
    """Who listens on a port and is not below this guard; None if it is, or that cannot be seen."""
    if owners([port], among=descendants(guard)).get(port) is not None:
        return None
    owner = owners([port]).get(port)
    return None if owner is None else str(owner)


def _release_result(allocation: asyncio.Future[PortBlock]) -> None:
    if not allocation.cancelled() and allocation.exception() is None:
        allocation.result().release()
