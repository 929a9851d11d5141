"""Rounds over all routers, in turns: whatever the machine does meanwhile hits all of them alike."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benches.gateway import engines
from benches.gateway.cells import LOAD_CORE, ROUTER_CORE, Cell, Sample, load
from benches.gateway.processes import Running, free_ports
from benches.gateway.routers import ROUTERS, SLOW_TO_REGISTER, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECT = "direct"
"""No router: the engines' own cost, and the most that the load can do."""
_WARM_UP_S = 1
_MANY = 100
Results = dict[Cell, dict[str, list[Sample]]]


@dataclass(frozen=True)
class Plan:
    """Which routers get each load, how often, and for how many seconds."""

    names: Sequence[str]
    rounds: int
    seconds: int


def measure(cells: Sequence[Cell], plan: Plan) -> Results:
    """Every cell on every router of the plan."""
    results: Results = {cell: {} for cell in cells}
    for count, pace_s in dict.fromkeys((cell.engines, cell.stream) for cell in cells):
        of_fleet = {cell: results[cell] for cell in cells if (cell.engines, cell.stream) == (count, pace_s)}
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            running = _start_all(stack, plan.names, count, pace_s, Path(folder))
            for cell, samples in of_fleet.items():
                _measure_cell(cell, running, plan, samples)
    return results


def _measure_cell(
    cell: Cell, running: Sequence[tuple[int, Running]], plan: Plan, samples: dict[str, list[Sample]]
) -> None:
    for port, process in running:
        load(cell, port, process, _WARM_UP_S)
        samples[process.name] = []
    for number in range(plan.rounds):
        # Each is first in some rounds and last in others, so that a drift of the machine hits all alike.
        for port, process in running if number % 2 == 0 else reversed(running):
            sample = load(cell, port, process, plan.seconds)
            samples[process.name].append(sample)
            _tell(cell, process.name, sample)


def _start_all(
    stack: ExitStack, names: Sequence[str], count: int, pace_s: float | None, folder: Path
) -> list[tuple[int, Running]]:
    """The fleet and every router in front of it, each with the port to load."""
    routers = [name for name in ROUTERS if name in names and not (count > _MANY and name == SLOW_TO_REGISTER)]
    ports = free_ports(count + 2 * len(routers))
    engine_ports, others = ports[:count], iter(ports[count:])
    fleet = stack.enter_context(_engines(engine_ports, pace_s, folder))
    fleet.wait_until_it_answers(engine_ports[0], "/health")
    running = [(engine_ports[0], fleet)] if DIRECT in names else []
    for name in routers:
        place = Place(next(others), next(others), folder / name)
        running.append((place.port, stack.enter_context(_start(name, place, engine_ports))))
    return running


def _engines(ports: Sequence[int], pace_s: float | None, folder: Path) -> Running:
    if pace_s is None:
        command = engines.nginx_command(ports, folder)
    else:
        command = [sys.executable, "-m", "benches.gateway.engines", str(pace_s), *map(str, ports)]
    return Running(DIRECT, command, core=LOAD_CORE, log=folder / "engines.log")


def _start(name: str, place: Place, engine_ports: Sequence[int]) -> Running:
    place.folder.mkdir()
    command = ROUTERS[name](place, engine_ports)
    process = Running(name, command, core=ROUTER_CORE, log=place.folder / "log")
    try:
        process.wait_until_it_answers(place.port, "/generate")
    except BaseException:
        process.__exit__()
        raise
    return process


def _tell(cell: Cell, name: str, sample: Sample) -> None:
    kind = "" if cell.stream is None else " events back to back" if cell.stream == 0 else " events paced"
    print(
        f"{cell.engines:5} engines {cell.body_bytes // 1024:3} kB {cell.connections:4} connections{kind}: {name:14} "
        f"{sample.cpu_us:8.1f} us  {sample.per_second:9.0f}/s  p99 {sample.p99_ms:8.2f} ms  "
        f"{sample.rss_mib:5.0f} MiB  {sample.errors} errors",
        flush=True,
    )


def python_baseline_mib() -> float:
    """Resident memory of a Python that has imported what ``trimtab serve`` imports, and serves nothing."""
    program = (
        "import uvloop, trimtab.cli.serving, trimtab_gateway\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return int(output) / 1024
