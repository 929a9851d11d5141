"""Real routers and simulated engines over HTTP, beside what the simulation says of the same sessions."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benches.balance.figures import Figures, figures
from benches.balance.fleet import even
from benches.balance.http.drive import Target, drive
from benches.balance.http.engines import CONTEXT_TOKENS, ENGINE
from benches.balance.http.routers import SERVED
from benches.balance.policies.registry import CONTENDERS, OFF
from benches.balance.simulate import simulate
from benches.balance.workload import LogNormal, Workload, WorkloadModel, generate
from benches.gateway.processes import Running, free_ports
from benches.gateway.routers import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENGINES = 4
TIME_SCALE = 0.25
"""Real seconds per modelled one: a decode step is then 8 ms, which timers keep."""

MODEL = replace(
    WorkloadModel(),
    tasks=16,
    samples=4,
    window=12,
    system_tokens=400,
    task_tokens=LogNormal(400, 0.6, 1_000),
    turns=LogNormal(5, 0.45, 10),
    output_tokens=LogNormal(60, 1.0, 400),
    observation_tokens=LogNormal(100, 1.1, 500),
    tool_s=LogNormal(1.0, 1.2, 15),
    environment_s=LogNormal(2.0, 0.6, 10),
    context_tokens=CONTEXT_TOKENS,
)
"""The reference workload in a tenth of the size: 12 sessions per engine, contexts of some thousand tokens."""

SMOKE = replace(MODEL, tasks=2, samples=2, turns=LogNormal(2, 0.3, 3), tool_s=LogNormal(0.2, 0.5, 1))
"""A few seconds of it."""


@dataclass(frozen=True)
class Pair:
    """One router over HTTP, and the simulation of its policy, on the same sessions."""

    name: str
    policy: str
    measured: Figures
    simulated: Figures


def validate(seed: int, names: Sequence[str], model: WorkloadModel, tell: Callable[[str], None]) -> list[Pair]:
    """Routing off, and each router in turn, all with fresh engines."""
    workload = generate(model, seed)
    pairs = []
    for name in (OFF, *names):
        policy = OFF if name == OFF else SERVED[name].policy
        run = simulate(workload, even(ENGINES, ENGINE), CONTENDERS[policy].make, seed)
        measured = _measure(workload, name)
        pairs.append(Pair(name, policy, measured, figures(run, [1.0] * ENGINES)))
        tell(f"{name}: makespan {measured.makespan_s:.1f} s, simulated {run.makespan_s:.1f} s")
    return pairs


def _measure(workload: Workload, name: str) -> Figures:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = _engines(stack)
        urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        target = Target(urls)
        if name != OFF:
            served = SERVED[name]
            port, metrics_port = free_ports(2)
            place = Place(port, metrics_port, Path(folder))
            log = Path(folder) / "router.log"
            router = stack.enter_context(Running(name, served.command(place, ports), core=0, log=log))
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


def table(pairs: Sequence[Pair]) -> str:
    """Measured and simulated side by side."""
    lines = [
        (
            "| router | its policy | Σ rollouts: HTTP | simulated | makespan: HTTP | simulated | spread: HTTP "
            "| simulated | cached: HTTP | simulated |"
        ),
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for pair in pairs:
        real, model = pair.measured, pair.simulated
        lines.append(
            f"| {pair.name} | {pair.policy} | {real.durations_s:,.0f} s | {model.durations_s:,.0f} s "
            f"| {real.makespan_s:.0f} s | {model.makespan_s:.0f} s | {real.spread:.3f} | {model.spread:.3f} "
            f"| {real.cached:.1%} | {model.cached:.1%} |"
        )
    return "\n".join(lines)


def agreement(pairs: Sequence[Pair]) -> float:
    """Rank correlation (Spearman) of the sums of durations, measured and simulated."""
    measured = [pair.measured.durations_s for pair in pairs]
    simulated = [pair.simulated.durations_s for pair in pairs]
    return statistics.correlation(_ranks(measured), _ranks(simulated))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [float(order.index(value)) for value in values]
