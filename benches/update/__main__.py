"""Fence to publication: what an update of weights takes beyond the time of the engines, by the number of engines.

The engines are scripted: they answer every call at once, but for the load of the weights, whose time is known. They
run in a process on one core, the manager on another. Run as ``python -m benches.update``; ``--write`` puts the result
into ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
from importlib.metadata import version

import uvloop

from benches.kit.document import machine, today, write
from benches.lease.processes import Served, pin
from benches.update.measure import Sample, measure

ENGINES = (4, 16, 64, 256)
LOAD_S = 0.25
GOAL_ENGINES, GOAL_S = 64, 0.05
MANAGER_CORE, ENGINE_CORE = 0, 1
COLUMNS = (
    "engines",
    "beyond the engines, ms",
    "least to most",
    "CPU of the manager, ms",
    "without flush and proof, ms",
)
STEPS = ("idle", "prime", "pause", "transfer", "flush", "read_back", "resume", "verify")


def run(engines: tuple[int, ...], updates: int, load_s: float) -> dict[str, dict[int, list[Sample]]]:
    """Samples by flush policy and number of engines."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    pin(os.getpid(), MANAGER_CORE)
    found: dict[str, dict[int, list[Sample]]] = {"flush": {}, "keep": {}}
    for count in engines:
        with Served("engines", "benches.update.engines", [count, load_s], core=ENGINE_CORE) as served:
            found["flush"][count] = uvloop.run(measure(served.said, load_s, updates, "flush"))
            found["keep"][count] = uvloop.run(measure(served.said, load_s, updates, "keep"))
    return found


def table(found: dict[str, dict[int, list[Sample]]], load_s: float) -> str:
    """Medians, in Markdown: one row per number of engines."""
    lines = [
        f"| {' | '.join([*COLUMNS, *(step.replace('_', ' ') for step in STEPS)])} |",
        "|" + "---:|" * (len(COLUMNS) + len(STEPS)),
    ]
    for count, samples in found["flush"].items():
        ours = [sample.overhead_s * 1e3 for sample in samples]
        kept = statistics.median(sample.overhead_s for sample in found["keep"][count]) * 1e3
        cells = [str(count), f"**{statistics.median(ours):.0f}**", f"{min(ours):.0f} to {max(ours):.0f}"]
        cells += [f"{statistics.median(sample.cpu_s for sample in samples) * 1e3:.0f}", f"{kept:.0f}"]
        for step in STEPS:
            taken = statistics.median(sample.steps_s[step] for sample in samples)
            cells.append(f"{(taken - (load_s if step == 'transfer' else 0)) * 1e3:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(found: dict[str, dict[int, list[Sample]]]) -> str:
    """Whether the goal is reached."""
    samples = found["flush"].get(GOAL_ENGINES)
    if samples is None:
        return ""
    median_s = statistics.median(sample.overhead_s for sample in samples)
    word = "reached" if median_s <= GOAL_S else "missed"
    return f"\n\nThe goal of {GOAL_S * 1e3:.0f} ms at {GOAL_ENGINES} engines is {word}: {median_s * 1e3:.0f} ms."


def section(result: str, command: str, where: str) -> str:
    """What the documentation says."""
    return f"""
## Weight updates

From the fence to the publication, minus the {LOAD_S * 1e3:.0f} ms for which each engine loads: what the manager adds,
and no request is served meanwhile. All engines are called at once in every step, so the load counts once; everything
else is calls: two reads of the load, the probe prompt before and after, pause, transfer, flush, read-back of the
version and resume are nine for each engine. Scripted engines, all in one process on another core, answer the others
at once; what their process and the kernel take for that is in the numbers, although with real engines it is on other
machines. Medians; the columns of the steps are in ms.

{result}

* Command: `{command}`
* Versions: trimtab {version("trimtab")}, Python {platform.python_version()}, uvloop {version("uvloop")}
* Machine: {where}; date: {today()}
"""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.update", description="Overhead of weight updates.")
    parser.add_argument("--updates", type=int, default=15, help="updates of each fleet (default: 15)")
    parser.add_argument("--smoke", action="store_true", help="one update of four engines, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    where = machine()
    if os.sched_getscheduler(0) in {os.SCHED_RR, os.SCHED_FIFO}:
        where += ", both processes with real-time priority (chrt) beside other work"
    engines, updates = ((4,), 1) if options.smoke else (ENGINES, options.updates)
    found = run(engines, updates, LOAD_S)
    result = table(found, LOAD_S) + verdict(found)
    print(result)
    if options.write:
        write("update", section(result, f"python -m benches.update --updates {updates} --write", where))


if __name__ == "__main__":
    main()
