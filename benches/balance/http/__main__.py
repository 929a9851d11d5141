"""The routers' own programs in front of simulated engines, beside what the simulation says of the same sessions.

Run as ``python -m benches.balance.http``; ``--write`` puts the result into ``docs/benchmarks.md``. Wall clocks count
here: it wants a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import time

from benches.balance.http.compare import Pair, agreement, distance, range_of, table, verdicts
from benches.balance.http.engines import TIME_SCALE
from benches.balance.http.routers import SERVED
from benches.balance.http.validate import ENGINES, MODEL, PARALLEL, SMOKE, validate
from benches.balance.report import durations, makespan, spread
from benches.gateway import tools
from benches.kit.document import machine, today, write

ALIKE = ("trimtab", "trimtab no spill", "haproxy", "smg manual", "sglang-router manual", "vllm-router")
"""Sessions stay, and new ones go where least is."""


def section(pairs: list[Pair], seeds: int, command: str, where: str, took_s: float) -> str:
    """What the documentation says."""
    sessions = MODEL.tasks * MODEL.samples
    most, whose = distance(pairs, durations)
    measured, simulated = range_of([pair for pair in pairs if pair.name in ALIKE], durations)
    return f"""
### The same over HTTP

Whether the simulation is right: the same sessions, sent by one client through each router's own program to {ENGINES}
simulated engines, with {TIME_SCALE:g} real seconds per modelled one, beside the simulation of that router's policy.
{MODEL.tasks} task ids, {sessions} sessions in a tenth of the size of the reference, all in flight at once; means
over {seeds} seeds. trimtab's clients over HTTP close no sessions, so its row is compared with `trimtab, not closed`.

{table(pairs)}

{findings(pairs)}

The sums of durations differ by at most {most:.1f} % ({whose}). Where a session goes depends on what ends first, and a
millisecond decides that: a measured run of a sticky policy is another draw from the same distribution, not a copy of
the simulated run. Sticky policies with a sense of load lie within {simulated:.1f} % of each other in simulation and
{measured:.1f} % over HTTP, so their order among themselves means little at this size; that scattering sessions or
herding them costs more than that is what both say. nginx makes its ring of the engines' ports, which differ from run to
run, and with them who is unlucky. smg's `power_of_two` compares token counts that it asks for every ten seconds (here
scaled, as its options allow), and its `cache_aware` leaves an engine near the mean load while sglang-router's waits for
64 calls more; the simulation has both as policies of their own, from the description of the options, and what the
description leaves out it does not have. smg runs without its protection of engines whose memory is full (on by
default), which comes before its policies: in one run of seed 1 it moved 36 of the 96 sessions that `manual` had pinned.

* Command: `{command}` (part of `make bench-balance`), {took_s:.0f} s
* Versions: {tools.versions()}
* Machine: {where}; date: {today()}
"""


def findings(pairs: list[Pair]) -> str:
    """Agreement in numbers."""
    lines = [
        (
            "| | rank correlation | pairs of routers that the simulation separates | the same order over HTTP "
            "| the other order | of these beyond HTTP's own interval |"
        ),
        "|---|---:|---:|---:|---|---:|",
    ]
    for title, of in (("Σ rollouts", durations), ("makespan", makespan), ("spread", spread)):
        found = verdicts(pairs, of)
        decided = found.same + len(found.turned)
        opposite = "; ".join(found.turned) or "none"
        lines.append(
            f"| {title} | **{agreement(pairs, of):.2f}** | {decided} of {decided + found.open} | {found.same} "
            f"| {opposite} | {found.contradicted} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.balance.http", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4, help="runs of each router, on other sessions (default: 4)")
    parser.add_argument("--only", default=",".join(SERVED), help="routers, separated by commas")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help=f"runs at a time (default: {PARALLEL})")
    parser.add_argument("--smoke", action="store_true", help="a few sessions through trimtab, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SERVED):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SERVED)}")
    if options.smoke:
        print(table(validate([0], ["trimtab"], SMOKE, options.parallel, print)))
        return
    if options.seeds < 2:
        parser.error("intervals need at least two seeds")
    where, began = machine(), time.monotonic()
    pairs = validate(range(options.seeds), names, MODEL, options.parallel, lambda line: print(line, flush=True))
    print(table(pairs))
    print(findings(pairs))
    if options.write and set(names) == set(SERVED):
        command = f"python -m benches.balance.http --seeds {options.seeds} --write"
        write("balance-http", section(pairs, options.seeds, command, where, time.monotonic() - began))


if __name__ == "__main__":
    main()
