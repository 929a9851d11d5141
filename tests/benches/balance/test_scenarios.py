"""Who runs where."""

from __future__ import annotations

from benches.balance.policies.registry import CONTENDERS, TRIMTAB
from benches.balance.scenarios import REFERENCE, SCENARIOS, SMOKE


def test_a_contender_runs_where_it_differs() -> None:
    """One whose rule only applies to losses, or to publications, is another contender elsewhere, and left out."""
    runs = {name: [scenario for scenario in SCENARIOS if name in SCENARIOS[scenario].policies] for name in CONTENDERS}
    assert runs["ramp"] == ["one lost"]
    assert runs["rebind"] == ["updates"]
    assert runs[TRIMTAB] == list(SCENARIOS)
    assert runs["round robin"] == [REFERENCE]
    assert ("rebind" in SMOKE.policies, "ramp" in SMOKE.policies) == (True, False)
