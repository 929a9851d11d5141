"""The routers' own programs in front of simulated engines, beside what the simulation says of the same sessions.

Run as ``python -m benches.balance.http``; ``--write`` puts the result into ``docs/benchmarks.md``. Wall clocks count
here: it wants a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse

from benches.balance.http.routers import SERVED
from benches.balance.http.validate import ENGINES, MODEL, SMOKE, TIME_SCALE, Pair, agreement, table, validate
from benches.gateway import tools
from benches.kit.document import machine, today, write


def section(pairs: list[Pair], command: str, where: str) -> str:
    """What the documentation says."""
    sessions = MODEL.tasks * MODEL.samples
    return f"""
### The same over HTTP

Whether the simulation is right: the same sessions, sent by one client through each router's own program to {ENGINES}
simulated engines, with {TIME_SCALE:g} real seconds per modelled one, beside the simulation of that router's policy.
{MODEL.tasks} task ids, {sessions} sessions in a tenth of the reference's size, {MODEL.window} groups in flight. Where a
session goes depends on what ends first, so one run of each says little about sticky policies among themselves. Rank
correlation of the sums of durations, measured and simulated: **{agreement(pairs):.2f}**. Two of smg's policies are not
what the simulation takes them for: its `power_of_two` is less even than a choice by open requests would be, and its
`cache_aware` spreads prompts with a common beginning, which sglang-router's does not.

{table(pairs)}

* Command: `{command}` (part of `make bench-balance`)
* Versions: {tools.versions()}
* Machine: {where}; date: {today()}
"""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.balance.http", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the sessions (default: 0)")
    parser.add_argument("--only", default=",".join(SERVED), help="routers, separated by commas")
    parser.add_argument("--smoke", action="store_true", help="a few sessions through trimtab, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SERVED):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SERVED)}")
    if options.smoke:
        print(table(validate(options.seed, ["trimtab"], SMOKE, print)))
        return
    where = machine()
    pairs = validate(options.seed, names, MODEL, lambda line: print(line, flush=True))
    print(table(pairs))
    if options.write and set(names) == set(SERVED):
        write("balance-http", section(pairs, f"python -m benches.balance.http --seed {options.seed} --write", where))


if __name__ == "__main__":
    main()
