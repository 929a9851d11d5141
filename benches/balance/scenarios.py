"""The standard situations. Each differs from the reference shape in one thing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benches.balance.fleet import TP4, TP4_ALONE, TP4_HALF, Fleet, Outage, Replica, even, mixed
from benches.balance.policies.registry import CONTENDERS, Event
from benches.balance.workload import LogNormal, WorkloadModel


@dataclass(frozen=True)
class Scenario:
    """Work and fleet.

    Attributes:
        name: For tables.
        what: How it differs, for the documentation.
        workload: The sessions.
        fleet: The engines.
        all_policies: Whether every policy runs, or only those that run everywhere.
    """

    name: str
    what: str
    workload: WorkloadModel
    fleet: Fleet
    all_policies: bool = False

    @property
    def policies(self) -> list[str]:
        """Who runs."""
        return [
            name
            for name, contender in CONTENDERS.items()
            if (contender.everywhere or self.all_policies) and (contender.needs is None or self._has(contender.needs))
        ]

    def _has(self, event: Event) -> bool:
        happens = {"loss": self.fleet.outage is not None, "publication": self.fleet.publish_every_groups is not None}
        return happens[event]


_WORK = WorkloadModel()
_FLEET = even(16)
_SLOW = replace(_FLEET, replicas=(*_FLEET.replicas[:-1], Replica(replace(TP4, speed=0.5))))

REFERENCE = "reference"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(REFERENCE, "16 engines, 64 task ids x 8, all in flight at once", _WORK, _FLEET, all_policies=True),
        Scenario("light", "8 groups in flight: 4 sessions per engine", replace(_WORK, window=8), _FLEET),
        Scenario(
            "medium",
            "32 groups in flight, on engines that have their cards alone (790k tokens of KV each)",
            replace(_WORK, window=32),
            even(16, TP4_ALONE),
        ),
        Scenario(
            "saturated", "engines with two thirds of the memory for KV (366k tokens each)", _WORK, even(16, TP4_HALF)
        ),
        Scenario("4 engines", "16 task ids", replace(_WORK, tasks=16, window=16), even(4)),
        Scenario("64 engines", "8 sessions per engine", _WORK, even(64)),
        Scenario("8:2", "6 engines of eight cards (capacity 8), 8 of two (capacity 2)", _WORK, mixed(6, 8)),
        Scenario("one slow", "one of the engines at half speed, which nobody told the router", _WORK, _SLOW),
        Scenario("one lost", "one engine gone from 200 s to 500 s", _WORK, replace(_FLEET, outage=Outage(3, 200, 500))),
        Scenario(
            "updates",
            "new weights after every 16 groups: a pause of 15 s, caches empty",
            _WORK,
            replace(_FLEET, publish_every_groups=16),
        ),
        Scenario("stragglers", "2 % of the sessions write four times as much", replace(_WORK, stragglers=0.02), _FLEET),
    )
}

SMOKE = Scenario(
    "smoke",
    "a minute of work on 4 engines",
    replace(_WORK, tasks=8, samples=2, window=4, turns=LogNormal(4, 0.45, 8)),
    replace(even(4), publish_every_groups=4),
    all_policies=True,
)
