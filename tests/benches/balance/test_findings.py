"""The text of the report."""

from __future__ import annotations

from dataclasses import replace

from benches.balance.figures import Figures
from benches.balance.findings import findings
from benches.balance.policies.registry import TRIMTAB
from benches.balance.report import beaten, goals
from benches.balance.scenarios import REFERENCE, SCENARIOS

RUN = Figures(0.04, 0.9, 1.1, 1000.0, 50.0, 100.0, 10.0, 0.9, 1.0, 9.0, 7.0, 0.0)
RUNS = [RUN, replace(RUN, makespan_s=101.0, durations_s=1010.0)]
EVEN = {name: dict.fromkeys(scenario.policies, RUNS) for name, scenario in SCENARIOS.items()}


def test_a_peer_that_is_faster_is_named() -> None:
    """With its scenario and by how much, in the goals and in the text; a variant of trimtab is not a peer."""
    assert beaten(EVEN) == []
    faster = [replace(run, makespan_s=run.makespan_s * 0.9) for run in RUNS]
    results = {**EVEN, REFERENCE: {**EVEN[REFERENCE], "haproxy": faster, "sessions": faster}}
    assert beaten(results) == ["reference: haproxy -10.0 ± 0.0 %"]
    assert "| reference: haproxy -10.0 ± 0.0 % | **missed** |" in goals(results)
    assert "reference: haproxy -10.0 ± 0.0 %." in findings(results)


def test_sentences_have_their_numbers() -> None:
    """Of the policy and the scenario that they speak of."""
    moving = [replace(run, spread=0.0321, moved=222.0) for run in RUNS]
    text = " ".join(findings({**EVEN, REFERENCE: {**EVEN[REFERENCE], TRIMTAB: moving}}).split())
    assert "and 0.032 ± 0.000 with trimtab's default, which moves 222 of" in text
    assert "Beyond the interval are: none." in text
