"""acquire + settle over HTTP: trimtab's lease API against a FastAPI router of the same function.

Both serve with one thread on a core of their own and get the same load from another process, in turns: every round
loads one and then the other, in each way to send the calls. What counts is CPU time of the router per pair, since the
wall clock of a shared machine says little. Run as ``python -m benches.lease``; ``--write`` puts the result into
``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benches.kit.document import machine, today, write
from benches.kit.venv import installed, pins
from benches.lease import parity
from benches.lease.processes import PEER_PYTHON, PEER_VENV, REQUIREMENTS, ROOT, Served, pin
from benches.lease.report import Sample, bounds, table

BACKENDS = 16
ROUTER_CORE, LOAD_CORE = 0, 1
WARM_UP_S = 0.3
WAYS = {
    "single calls, TCP": (False, 0),
    "single calls, Unix socket": (True, 0),
    "batches of 1 pair, TCP": (False, 1),
    "batches of 16 pairs, TCP": (False, 16),
    "batches of 64 pairs, TCP": (False, 64),
}
"""Whether over the Unix socket, and the pairs of a batch, 0 for single calls."""


def load(router: Served, address: str, pairs: int, seconds: float) -> Sample:
    """Load a router for ``seconds``."""
    before = router.cpu_s
    command = [sys.executable, "-m", "benches.lease.load", address, str(seconds), str(pairs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as client:
        pin(client.pid, LOAD_CORE)
        output, _ = client.communicate(timeout=seconds + 60)
    if client.returncode:
        raise SystemExit(f"the load on {router.name} failed (see above)")
    done = json.loads(output)
    user, kernel = (after - start for start, after in zip(before, router.cpu_s, strict=True))
    return Sample(done["pairs"], user, kernel)


def measure(rounds: int, seconds: float) -> tuple[dict[str, dict[str, list[Sample]]], dict[str, float]]:
    """Samples of each router in each way, and the most memory each had resident, in MiB."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Served("scripted backends", "benches.lease.engines", [BACKENDS], core=LOAD_CORE) as engines,
    ):
        sockets = {name: str(Path(folder) / f"{name}.sock") for name in ("trimtab", "FastAPI")}
        ours = Served("trimtab", "benches.lease.trimtab_router", [sockets["trimtab"], *engines.said], core=ROUTER_CORE)
        arguments, module = [sockets["FastAPI"], *engines.said], "benches.lease.fastapi_router"
        with ours, Served("FastAPI", module, arguments, python=PEER_PYTHON, core=ROUTER_CORE) as peer:
            routers = [ours, peer]
            for router in routers:
                parity.check(router.name, router.said, BACKENDS)
            samples: dict[str, dict[str, list[Sample]]] = {way: {router.name: [] for router in routers} for way in WAYS}
            for number in range(rounds):
                # Each starts every other round, so that a drift of the machine hits both alike.
                order = routers if number % 2 == 0 else routers[::-1]
                for way, (local, pairs) in WAYS.items():
                    for router in order:
                        address = sockets[router.name] if local else str(router.said)
                        if number == 0:
                            load(router, address, pairs, min(seconds, WARM_UP_S))
                        samples[way][router.name].append(load(router, address, pairs, seconds))
            return samples, {router.name: router.peak_mib for router in routers}


def section(result: str, command: str, where: str) -> str:
    """What the documentation says."""
    return f"""
## Lease API

One acquire and its settlement are a *pair*. As single calls that is two HTTP requests with JSON bodies on kept-alive
connections; in batches (`POST .../leases:batch`) one request settles a number of leases and acquires as many. The peer
is a FastAPI router of the same function (`benches/lease/fastapi_router.py`: uvicorn with uvloop and httptools, pydantic
models, orjson): sticky sessions, least outstanding per capacity, request keys with replay, settled intervals, batches;
a check of these runs on both before anything is timed. Each router serves {BACKENDS} backends with one thread, on a
port and on a Unix socket. The load is the same closed loop of 32 connections for both, from a process of its own on
another core; every round loads both in turn, in each way. CPU time is that of the router process, `utime` (its own
code) and `stime` (the kernel), for trimtab with its probes of the backends: medians over the rounds.

{result}

* Command: `{command}`
* Versions: trimtab {version("trimtab")}, Python {platform.python_version()}, {", ".join(pins(REQUIREMENTS))}
* Machine: {where}; date: {today()}
"""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benches.lease", description="Lease API against FastAPI.")
    parser.add_argument("--rounds", type=int, default=10, help="how often each router is loaded (default: 10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each time (default: 2)")
    parser.add_argument("--smoke", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    rounds, seconds = (1, 0.2) if options.smoke else (options.rounds, options.seconds)
    installed(PEER_VENV, pins(REQUIREMENTS))
    where = machine()
    samples, peak_mib = measure(rounds, seconds)
    result = f"{table(samples)}\n\n{bounds(samples['single calls, TCP'], peak_mib)}"
    print(result)
    if options.write:
        write(
            "lease", section(result, f"python -m benches.lease --rounds {rounds} --seconds {seconds:g} --write", where)
        )


if __name__ == "__main__":
    main()
