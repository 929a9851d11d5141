"""What routing does to rollouts: trimtab's default beside routing off and the policies of its peers, in simulation.

Engines, sessions and policies run in virtual time (``simulate``), trimtab's default as the real ``Pool``. Every policy
gets the same sessions for the same seed, so that differences are paired. Run as ``python -m benches.balance``;
``--write`` puts tables and pictures into ``docs/``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benches.balance import parameters, report
from benches.balance.figures import change, estimate
from benches.balance.findings import findings
from benches.balance.policies.registry import CONTENDERS, OFF, STICKY, TRIMTAB
from benches.balance.scenarios import REFERENCE, SCENARIOS, SMOKE
from benches.balance.sweep import Results, loads, run_one, sweep
from benches.balance.workload import AREAL_SWE
from benches.kit.document import machine, today, write
from benches.kit.venv import ROOT, installed, pins

IMAGES = ROOT / "docs" / "images"
SAMPLE_S = 10.0


def section(results: Results, seeds: int, command: str, where: str, took: str) -> str:
    """What the documentation says."""
    return f"""
## Balance

What routing does to the rollouts of agents, in simulation: seeded multi-turn sessions
(`benches/balance/workload.py` has each parameter with its source), engines with continuous batching, a KV cache and
eviction (the simulated engine's model, with the numbers of a 32B model on four H100), and a policy that chooses an
engine for each call. trimtab's default is the real `Pool` in virtual time; the peers' policies are written from their
documented behaviour, one class each. Everything but the policy is the same for the same seed, and differences are means
of differences within a seed, ± half of their 95 % confidence interval over {seeds} seeds. *Spread* is the coefficient
of variation of the engines' output tokens per capacity.

The field's reference point (16 engines of four cards, 64 task ids, fixed weights) is a spread of 0.1918 without routing
and 0.0657 with session-sticky routing by load per capacity, and a sum of rollout durations 6.1 % lower. The reference
shape follows the public configuration of such a run ([AReaL's SWE configuration]({AREAL_SWE.partition(" ")[0]})), and
the spread between task ids is the one parameter fitted to it (to the 0.1918).
[All parameters](#parameters-of-the-simulation) are below.

{report.goals(results)}

{findings(results)}

![Open calls per engine over time](images/balance-load.svg)

**Reference shape** (against `{OFF}`)

{report.full_table(results[REFERENCE])}

**Saturated** (against `{OFF}`)

{report.full_table(results["saturated"])}

![Spread of output tokens by policy](images/balance-spread.svg)

**Spread of output tokens per capacity**

{report.matrix(results, report.spread_entry)}

**Sum of rollout durations, against `{OFF}`**

{report.matrix(results, report.durations_entry)}

![Makespan by policy](images/balance-makespan.svg)

**Makespan of the step, against `{TRIMTAB}`**

{report.matrix(results, report.makespan_entry)}

Scenarios:

{report.scenarios()}

Policies:

{report.legend()}

### Parameters of the simulation

Sessions (tokens, seconds, counts) and engines of the reference shape:

{parameters.table()}

* Command: `{command}` (`make bench-balance`), {took}
* Versions: trimtab {version("trimtab")}
* Machine: {where}; date: {today()}
"""


def pictures(results: Results) -> None:
    """Draw loads over time and bars."""
    named = {"routing off": OFF, "trimtab without spill": STICKY, "trimtab": TRIMTAB}
    data = {
        "sample_s": SAMPLE_S,
        "loads": {title: loads(REFERENCE, policy, 0, SAMPLE_S).load for title, policy in named.items()},
        "spread": {name: _bars(results, name, absolute=True) for name in (REFERENCE, "saturated")},
        "makespan": {name: _bars(results, name, absolute=False) for name in (REFERENCE, "saturated")},
    }
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "balance.json"
        source.write_text(json.dumps(data))
        python = installed("bench-balance", pins(Path(__file__).with_name("requirements.txt"))) / "python"
        subprocess.run([str(python), "-m", "benches.balance.plot", str(source), str(IMAGES)], cwd=ROOT, check=True)


def _bars(results: Results, scenario: str, *, absolute: bool) -> dict[str, tuple[float, float, str]]:
    policies = results[scenario]
    off = report.column(policies[OFF], report.makespan)
    bars: dict[str, tuple[float, float, str]] = {}
    for name, runs in policies.items():
        if absolute:
            value = estimate(report.column(runs, report.spread))
        elif name == OFF:
            continue
        else:
            value = change(report.column(runs, report.makespan), off)
        bars[name] = (value.mean, value.half, CONTENDERS[name].whose)
    return bars


def _cpu_s() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def smoke() -> None:
    """A small run of every policy."""
    for name, run in run_one(SMOKE, 0, SMOKE.policies).items():
        print(f"{name:28} makespan {run.makespan_s:6.1f} s, spread {run.spread:.3f}, cached {run.cached:.1%}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.balance", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="runs of each policy in each scenario (default: 20)")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios, separated by commas")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--smoke", action="store_true", help="one small run of every policy, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/")
    options = parser.parse_args()
    if options.smoke:
        smoke()
        return
    names = options.only.split(",")
    if unknown := set(names) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SCENARIOS)}")
    if options.seeds < 2 or REFERENCE not in names:
        parser.error(f"intervals need at least two seeds, and the goals the scenario {REFERENCE!r}")
    where, began = machine(), time.monotonic()
    chosen = [SCENARIOS[name] for name in names]
    results = sweep(chosen, options.seeds, lambda name: print(f"{name} is done", flush=True), options.workers)
    print(report.goals(results))
    if options.write and set(names) == set(SCENARIOS):
        pictures(results)
        took = f"{_cpu_s():.0f} s of CPU time, {time.monotonic() - began:.0f} s"
        command = f"python -m benches.balance --seeds {options.seeds} --write"
        write("balance", section(results, options.seeds, command, where, took))


if __name__ == "__main__":
    main()
