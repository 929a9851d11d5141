"""The actor of an engine node: on its node, it does what the local launcher does on this one.

It holds no CPU and no GPU. The bundle on which it runs reserves them, for the engine that it starts.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import ray

from trimtab_manager.launch.addresses import advertised_address, url_of
from trimtab_manager.launch.command import Place, shown
from trimtab_manager.launch.gpus import VARIABLE, Gpu, bind_gpus
from trimtab_manager.launch.local.engine import LocalEngine
from trimtab_manager.launch.local.ports import PortAllocator, PortBlock
from trimtab_manager.launch.local.process import GuardedProcess
from trimtab_manager.launch.local.start import start_process
from trimtab_manager.launch.ray.environment import node_environment
from trimtab_manager.launch.types import Exit, LaunchRequest

TAIL_LINES = 50


@dataclass(frozen=True)
class NodeFacts:
    """Where an actor found itself.

    Attributes:
        node_id: Ray's id of the node.
        host: Its host name.
        address: Its address, as the nodes of the cluster know it.
        advertised: Its address, as the router reaches it.
        actor_pid: Process id of the actor.
        visible: ``CUDA_VISIBLE_DEVICES`` of the node; None if unset.
    """

    node_id: str
    host: str
    address: str
    advertised: str
    actor_pid: int
    visible: str | None


@dataclass(frozen=True)
class StartOrder:
    """One process of an engine to start.

    Attributes:
        request: The engine.
        name: The incarnation, such as ``policy/0#2``.
        rank: Of the node in the engine; 0 is the head.
        bind: Address that the server binds.
        rendezvous: Address and port of the head where the nodes meet; None for an engine of one node.
        gpus: Its GPUs, as Ray names them on the node.
        python: Interpreter that has SGLang; None: the one that runs Ray here.
        log_folder: Where its log goes.
    """

    request: LaunchRequest
    name: str
    rank: int
    bind: str
    rendezvous: tuple[str, int] | None
    gpus: tuple[Gpu, ...]
    python: str | None
    log_folder: Path


@dataclass(frozen=True)
class Report:
    """A process of an engine at one moment.

    Attributes:
        exit: How it ended; None while it lives.
        pid: Its process id on the node.
        tail: The last lines of its log.
    """

    exit: Exit | None
    pid: int | None
    tail: str


class EngineNode:
    """The actor. Its methods run at the same time, in one event loop.

    Args:
        run_id: The run that it belongs to; marks the processes.
        ports: Where blocks of ports come from.
    """

    def __init__(self, run_id: str, ports: range) -> None:
        self._run_id = run_id
        self._ports = PortAllocator(within=ports)
        self._block: PortBlock | None = None
        self._engine: LocalEngine | None = None
        self._process: GuardedProcess | None = None
        self._facts: NodeFacts | None = None

    async def describe(self, bind: str, router: str, advertise: str | None) -> NodeFacts:
        """Where this is. Raises LaunchError when the router could not reach an engine here."""
        self._facts = NodeFacts(
            node_id=ray.get_runtime_context().get_node_id(),
            host=socket.gethostname(),
            address=ray.util.get_node_ip_address(),
            advertised=advertised_address(bind, router, advertise=advertise),
            actor_pid=os.getpid(),
            visible=node_environment().get(VARIABLE),
        )
        return self._facts

    async def reserve(self) -> range:
        """A block of ports of this node, held for the next start."""
        assert self._block is None, "the block of the last start is released by its end"  # noqa: S101
        self._block = await asyncio.to_thread(self._ports.allocate)
        return self._block.ports

    async def start(self, order: StartOrder) -> tuple[str, str]:
        """Starts the process on the reserved ports; its command and the path of its log."""
        assert self._block is not None, "ports are reserved before a start"  # noqa: S101
        assert self._facts is not None, "an actor is asked where it is first"  # noqa: S101
        block, request, inherited = self._block, order.request, node_environment()
        binding = bind_gpus(inherited.get(VARIABLE), order.gpus)
        place = Place(
            host=order.bind,
            ports=block.ports,
            node=order.rank,
            rendezvous=order.rendezvous[0] if order.rendezvous else self._facts.address,
            rendezvous_port=order.rendezvous[1] if order.rendezvous else None,
            base_gpu=binding.base,
        )
        self._process = start_process(
            request,
            place,
            block,
            run_id=self._run_id,
            python=order.python or sys.executable,
            log_folder=order.log_folder,
            inherited=inherited,
            gpus=binding.environment,
            direct=(self._facts.advertised, self._facts.address),
        )
        self._engine = LocalEngine(
            order.name,
            url_of(self._facts.advertised, block.base),
            (order.bind, block.base),
            [self._process],
            facts={},
            on_gone=self._on_gone,
        )
        return shown(self._process.command), str(self._process.log.path)

    async def serving(self) -> None:
        """The server is up and has read its keys: their file goes."""
        if self._engine is not None:
            self._engine.serving()

    async def watch(self, wait_s: float) -> Report:
        """How the process is, at the latest in ``wait_s`` seconds; at once when it ended."""
        if self._engine is None or self._process is None:
            return Report(Exit("main", evidence="it was never started"), None, "")
        ended = asyncio.ensure_future(self._engine.exited())
        await asyncio.wait({ended}, timeout=wait_s)
        ended.cancel()
        return Report(self._engine.exit(), self._process.pid, self._engine.log_tail(TAIL_LINES))

    async def stop(self, grace_s: float) -> None:
        """Ends the process and all that it started. Raises StopError when some survive."""
        if self._engine is not None:
            await self._engine.stop(grace_s)
        self._on_gone()

    def _on_gone(self) -> None:
        if self._block is not None:
            self._block.release()
            self._block = None
