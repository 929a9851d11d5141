"""What is measured: the fleets, the loads on each, and the numbers of one load on one router."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benches.gateway.tools import ROOT, program

if TYPE_CHECKING:
    from benches.gateway.processes import Running

SCRIPT = Path(__file__).with_name("load.lua")
LOAD_CORE, ROUTER_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One load.

    Attributes:
        engines: How many engines stand behind the router.
        connections: Clients, each with one request at a time.
        body_bytes: Size of a request.
        stream: None for a complete answer; for event streams the seconds between two events, 0 for back to back.
    """

    engines: int
    connections: int
    body_bytes: int = 2048
    stream: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One router under one load, once."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_s: float
    rss_mib: float

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the router's processes for one request."""
        return self.cpu_s / max(self.requests, 1) * 1e6

    @property
    def per_second(self) -> float:
        """Requests (or streams) per second."""
        return self.requests / self.seconds


def load(cell: Cell, port: int, router: Running, seconds: int) -> Sample:
    """Load ``port`` for ``seconds`` and take what ``router`` used meanwhile."""
    arguments = [str(cell.body_bytes), "stream" if cell.stream is not None else "whole"]
    wrk = [program("wrk"), "-t1", f"-c{cell.connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(SCRIPT)]
    command = ["taskset", "-c", str(LOAD_CORE), *wrk, f"http://127.0.0.1:{port}", "--", *arguments]
    before = router.cpu_s
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    used = router.cpu_s - before
    said = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    errors = said["status_errors"] + said["socket_errors"]
    return Sample(said["requests"], said["seconds"], said["p50_ms"], said["p99_ms"], errors, used, router.rss_mib)


BODIES = [Cell(64, connections, size) for size in (2048, 65536) for connections in (1, 16, 64, 256)]
FLEETS = [Cell(engines, 64) for engines in (4, 1000)]
STREAMS = [Cell(4, 64, stream=0.0), Cell(4, 64, stream=0.002)]
SMOKE = [Cell(4, 4), Cell(4, 4, stream=0.0)]
