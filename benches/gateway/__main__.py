"""What a request costs a router: trimtab, haproxy, nginx, smg, sglang-router and vllm-router in one run.

Every router gets a core of its own; load and engines share the other one. In each round every router gets the same
load in turn. What counts is CPU time of the router's processes per request: wall clocks of shared machines say little.
Run as ``python -m benches.gateway``; ``--write`` puts tables and picture into ``docs/``.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import tempfile

from benches.gateway import tools
from benches.gateway.cells import BODIES, FLEETS, SMOKE, STREAMS, Cell
from benches.gateway.measure import DIRECT, Plan, Results, measure, python_baseline_mib
from benches.gateway.report import goals, tables
from benches.gateway.routers import ROUTERS
from benches.kit.document import machine, today, write

PICTURE = tools.ROOT / "docs" / "images" / "gateway-cpu.svg"
_PANELS = {
    "2 kB request": (Cell(64, 64), 1),
    "64 kB request": (Cell(64, 64, 65536), 1),
    "1,000 engines, 2 kB": (Cell(1000, 64), 1),
    "event of a stream": (Cell(4, 64, stream=0.0), 64),
}


def section(results: Results, command: str, where: str) -> str:
    """What the documentation says."""
    baseline = python_baseline_mib()
    return f"""
## Gateway

What one request costs, in CPU time of the router (all its processes, own code and kernel), with sessions on. Requests
are `POST /generate` with `input_ids` bodies and a session header of 512 sessions; engines answer at once with 700 bytes
(nginx) or with 64 events of 200 bytes. Each router has one core, load (wrk) and engines share the other. Rounds
are interleaved: in each, every router gets the same load in turn; numbers are medians. haproxy runs `leastconn` with
weights, health checks and a stick table on the session header, the nearest to what trimtab does; smg and sglang-router
`manual` with `min_load`, vllm-router `sticky_least_loaded`, nginx `least_conn` (without sessions). `direct` is the
engine process without a router.

![CPU per request]({PICTURE.relative_to(tools.ROOT / "docs")})

{goals(results, baseline)}

Each entry: **router CPU** · requests per second · latency p50 / p99 · resident memory.

{tables(results)}

* Command: `{command}` (`make bench-gateway`)
* Versions: {tools.versions()}, Python {platform.python_version()}; sglang-router takes over a minute to register 1,000
  engines and is left out there
* Machine: {where}; date: {today()}
"""


def picture(results: Results) -> None:
    """Draw the medians."""
    panels = {
        title: {
            name: statistics.median(sample.cpu_us for sample in samples) / per
            for name, samples in results[cell].items()
            if name != DIRECT
        }
        for title, (cell, per) in _PANELS.items()
        if cell in results
    }
    PICTURE.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(panels, file)
        file.flush()
        command = [str(tools.install("matplotlib") / "python"), "-m", "benches.gateway.plot", file.name, str(PICTURE)]
        subprocess.run(command, cwd=tools.ROOT, check=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.gateway", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each router gets each load (default: 5)")
    parser.add_argument("--seconds", type=int, default=2, help="how long each time (default: 2)")
    parser.add_argument("--only", default=",".join([DIRECT, *ROUTERS]), help="routers, separated by commas")
    parser.add_argument("--smoke", action="store_true", help="two short loads, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - {DIRECT, *ROUTERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join([DIRECT, *ROUTERS])}")
    try:
        tools.versions()
        tools.program("wrk")
    except tools.MissingToolError as error:
        parser.exit(1, f"{error}\n")
    where = machine()
    if options.smoke:
        measure(SMOKE, Plan(names, 1, 1))
        return
    results = measure([*BODIES, *FLEETS, *STREAMS], Plan(names, options.rounds, options.seconds))
    complete = set(names) == {DIRECT, *ROUTERS}
    if complete:
        print(goals(results, python_baseline_mib()))
    if options.write and complete:
        command = f"python -m benches.gateway --rounds {options.rounds} --seconds {options.seconds} --write"
        picture(results)
        write("gateway", section(results, command, where))


if __name__ == "__main__":
    main()
