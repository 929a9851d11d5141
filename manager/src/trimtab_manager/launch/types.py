"""What a launcher is: from a request to the handle of a running engine.

A launcher starts processes and ends them. It knows nothing of routing, weights or sleep: whether the engine serves is
asked over HTTP by whoever launched it, and whether it still lives is asked of the handle, also while it sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from trimtab.errors import TrimtabError


@dataclass(frozen=True)
class LaunchRequest:
    """One replica incarnation to start.

    Attributes:
        engine_id: The replica's id, such as ``policy/0``.
        generation: Number of this incarnation; a restart is a new one.
        engine: ``sglang`` or ``sim``.
        model_path: What it serves.
        served_model_name: The name it says.
        server_args: Flags of the server beyond those that the launcher sets (address, ports, model), as
            ``{"max-running-requests": 8}``; true is a bare flag, false and None leave it out, a list
            gives each of its values, an object is its JSON text.
        env_vars: Environment of its processes beyond what the launcher sets.
        nodes: Nodes it spans; above 1 the first one is its head.
        gpus: GPUs it takes on each node; 0: none.
        gpu_ids: Which ones, as the plan assigned them on its node: indices of the node, or UUIDs. Empty: the launcher
            takes ones that are free.
        bundle_indices: Its bundles in the placement group, for launchers that have one.
        deadline_s: Until it must be ready, from the start of its processes.
        api_key: Key it asks for, if any; never part of the command that a log or an error shows.
        url: Where it runs already, for the launcher ``external``; the others choose the address.
    """

    engine_id: str
    generation: int
    engine: str
    model_path: str
    served_model_name: str
    server_args: Mapping[str, Any] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    gpus: int = 0
    gpu_ids: tuple[int | str, ...] = ()
    bundle_indices: tuple[int, ...] = ()
    deadline_s: float = 1800.0
    api_key: str | None = field(default=None, repr=False)
    url: str | None = None


@dataclass(frozen=True)
class Exit:
    """How a process of an engine ended.

    Attributes:
        what: Which process, such as ``main``, ``node 1``, ``actor``.
        pid: Its process id on its node; None when that is unknown.
        code: Exit code; None when a signal ended it, or nobody knows.
        signal: Name of the signal that ended it, such as ``SIGKILL``.
        evidence: The end of its log, at most 50 lines.
    """

    what: str
    pid: int | None = None
    code: int | None = None
    signal: str | None = None
    evidence: str = ""

    def __str__(self) -> str:
        """``main (pid 17) ended by SIGKILL``."""
        who = self.what if self.pid is None else f"{self.what} (pid {self.pid})"
        if self.signal is not None:
            return f"{who} ended by {self.signal}"
        return f"{who} ended" if self.code is None else f"{who} exited with code {self.code}"


class LaunchError(TrimtabError):
    """An engine did not come up; nothing of it is left. The message has exit, log, command, ports and elapsed time."""

    code: ClassVar[str] = "launch_failed"


class StopError(TrimtabError):
    """Processes of an engine are left although they were killed; the message names them. Stopping again can help."""

    code: ClassVar[str] = "stop_failed"
    retryable = True


@dataclass(frozen=True)
class Progress:
    """How far the start of an engine is.

    Attributes:
        engine: Its id.
        elapsed_s: Since its processes were started.
        deadline_s: When the launcher gives up.
        health: What ``GET /health`` last said, such as ``connection refused`` or ``503``.
        last_line: The last line of its log.
    """

    engine: str
    elapsed_s: float
    deadline_s: float
    health: str
    last_line: str

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.engine} is starting: {self.elapsed_s:.0f} s of {self.deadline_s:.0f} s, /health: {self.health}"
            + (f", log: {self.last_line}" if self.last_line else "")
        )


ProgressListener = Callable[[Progress], None]


class EngineHandle(Protocol):
    """The processes of one incarnation."""

    @property
    def url(self) -> str:
        """Where it is reached by others: ``http://host:port`` of its head."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What people ask when something is wrong: command, pids, ports, nodes, GPUs, log files. JSON values."""

    def exit(self) -> Exit | None:
        """How it ended, once any process of any of its nodes has; None while all live. Never blocks."""

    async def exited(self) -> Exit:
        """Waits for that. Cancelling the wait changes nothing."""

    def log_tail(self, lines: int = 50) -> str:
        """The end of what its processes wrote."""

    async def stop(self, grace_s: float) -> None:
        """Ends all of its processes: SIGTERM, ``grace_s`` seconds, SIGKILL of the group.

        Idempotent; joins a running stop, whose grace it can only shorten. When it returns, everything is reaped and
        the port refuses. A caller that is cancelled leaves the stop running.

        Raises:
            StopError: A process survives SIGKILL, which a driver can cause.
        """


class Launcher(Protocol):
    """Starts engines."""

    async def launch(self, request: LaunchRequest) -> EngineHandle:
        """Starts the processes and returns when the server answers ``GET /health`` with 200.

        Raises:
            LaunchError: A process ended, or the deadline passed; nothing is left of the engine.
        """

    async def close(self) -> None:
        """Stops everything it started that still runs, and frees what it holds. Idempotent."""
