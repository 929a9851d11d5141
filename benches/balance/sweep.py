"""Every policy on every scenario and seed, on all cores."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

from benches.balance.figures import Figures, figures
from benches.balance.policies.registry import CONTENDERS
from benches.balance.scenarios import SCENARIOS
from benches.balance.simulate import Run, simulate
from benches.balance.workload import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benches.balance.scenarios import Scenario

Results = dict[str, dict[str, list[Figures]]]
"""By scenario and policy, in the order of the seeds."""


def run_one(scenario: Scenario, seed: int, names: Sequence[str]) -> dict[str, Figures]:
    """All policies on the same work."""
    workload = generate(scenario.workload, seed)
    capacities = [replica.capacity for replica in scenario.fleet.replicas]
    return {
        name: figures(simulate(workload, scenario.fleet, CONTENDERS[name].make, seed), capacities) for name in names
    }


def sweep(
    scenarios: Sequence[Scenario], seeds: int, tell: Callable[[str], None], workers: int | None = None
) -> Results:
    """Run them. ``tell`` hears of each scenario that is done."""
    results: Results = {}
    # Nothing here makes cycles, and looking for them takes a tenth of the time.
    with ProcessPoolExecutor(workers or os.cpu_count(), initializer=gc.disable) as pool:
        futures = {
            pool.submit(run_one, scenario, seed, scenario.policies): (scenario.name, seed)
            for scenario in scenarios
            for seed in range(seeds)
        }
        done: dict[tuple[str, int], dict[str, Figures]] = {}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            name = futures[future][0]
            if all((name, seed) in done for seed in range(seeds)):
                tell(name)
    for scenario in scenarios:
        results[scenario.name] = {
            policy: [done[scenario.name, seed][policy] for seed in range(seeds)] for policy in scenario.policies
        }
    return results


def loads(scenario: str, policy: str, seed: int, sample_s: float) -> Run:
    """One run with its load over time."""
    chosen = SCENARIOS[scenario]
    workload = generate(chosen.workload, seed)
    return simulate(workload, chosen.fleet, CONTENDERS[policy].make, seed, sample_s=sample_s)
