"""Real routers and simulated engines over HTTP, beside what the simulation says of the same sessions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benches.balance.figures import Figures, figures
from benches.balance.fleet import even
from benches.balance.http.compare import Pair
from benches.balance.http.drive import Target, drive
from benches.balance.http.engines import CONTEXT_TOKENS, ENGINE, TIME_SCALE
from benches.balance.http.routers import SERVED, install_all
from benches.balance.policies.registry import CONTENDERS, OFF
from benches.balance.simulate import simulate
from benches.balance.workload import LogNormal, WorkloadModel, generate
from benches.gateway.processes import Running, free_ports
from benches.gateway.routers import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.balance.workload import Workload

ENGINES = 4
PARALLEL = 6
"""Fleets at a time. One with its engines, router and client takes a tenth of a core."""

MODEL = replace(
    WorkloadModel(),
    tasks=16,
    samples=6,
    window=16,
    system_tokens=100,
    task_tokens=LogNormal(80, 0.6, 400),
    turns=LogNormal(7, 0.30, 16),
    output_tokens=LogNormal(40, 1.0, 300),
    observation_tokens=LogNormal(60, 1.1, 400),
    tool_s=LogNormal(1.0, 1.2, 15),
    environment_s=LogNormal(2.0, 0.6, 10),
    context_tokens=CONTEXT_TOKENS,
)
"""The reference workload in a tenth of the size: all groups at once, 24 sessions per engine, contexts of some thousand
tokens, and as much of them in the caches as there when routing is off."""

SMOKE = replace(MODEL, tasks=2, samples=2, turns=LogNormal(2, 0.3, 3), tool_s=LogNormal(0.2, 0.5, 1))
"""A few seconds of it."""


def validate(
    seeds: Sequence[int], names: Sequence[str], model: WorkloadModel, parallel: int, tell: Callable[[str], None]
) -> list[Pair]:
    """Routing off and each router, on the sessions of each seed, each time with fresh engines."""
    install_all()
    names = [OFF, *names]
    simulated = {(name, seed): _simulate(model, name, seed) for name in names for seed in seeds}
    # All routers of a seed at about the same time, so that whatever disturbs the machine disturbs them all. Of these
    # the longest first: nobody waits for them alone at the end.
    jobs = sorted(simulated, key=lambda job: (seeds.index(job[1]), -simulated[job].makespan_s))
    measured: dict[tuple[str, int], Figures] = {}
    with ProcessPoolExecutor(parallel) as pool:
        futures = {pool.submit(_measure, model, *job, number): job for number, job in enumerate(jobs)}
        for future in as_completed(futures):
            name, seed = job = futures[future]
            measured[job] = future.result()
            real, expected = measured[job].makespan_s, simulated[job].makespan_s
            tell(f"{name}, seed {seed}: makespan {real:.1f} s, simulated {expected:.1f} s")
    return [
        Pair(
            name,
            _policy(name),
            [measured[name, seed] for seed in seeds],
            [simulated[name, seed] for seed in seeds],
        )
        for name in names
    ]


def _policy(name: str) -> str:
    return OFF if name == OFF else SERVED[name].policy


def _simulate(model: WorkloadModel, name: str, seed: int) -> Figures:
    run = simulate(generate(model, seed), even(ENGINES, ENGINE), CONTENDERS[_policy(name)].make, seed)
    return figures(run, [1.0] * ENGINES)


def _measure(model: WorkloadModel, name: str, seed: int, core: int) -> Figures:
    """One run in a process of its own, its router on a core in turn."""
    workload: Workload = generate(model, seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = _engines(stack)
        urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        target = Target(urls)
        if name != OFF:
            served = SERVED[name]
            port, metrics_port = free_ports(2)
            place = Place(port, metrics_port, Path(folder))
            log = Path(folder) / "router.log"
            router = stack.enter_context(Running(name, served.command(place, ports), core=core, log=log))
            router.wait_until_it_answers(place.port, served.health)
            target = Target(urls, f"http://127.0.0.1:{place.port}", served.finish)
        run = asyncio.run(drive(workload, target, TIME_SCALE))
    return figures(run, [1.0] * ENGINES)


def _engines(stack: ExitStack) -> list[int]:
    command = [sys.executable, "-m", "benches.balance.http.engines", str(ENGINES), str(TIME_SCALE)]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert process.stdin is not None
    assert process.stdout is not None
    stack.callback(process.stdin.close)
    ports: list[int] = json.loads(process.stdout.readline())
    return ports
