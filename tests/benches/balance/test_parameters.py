"""The table of parameters."""

from __future__ import annotations

from benches.balance.parameters import table
from benches.balance.workload import DEEPSWE


def test_every_parameter_is_there_with_its_reason() -> None:
    """Values as tables write them, docstrings as prose with links, and assumptions by that name."""
    rows = {row.split("|")[1].strip(): row for row in table().splitlines()[2:]}
    assert rows["`turns`"].split("|")[2].strip() == "log-normal: median 29, sigma 0.3, at most 200"
    assert f"[DeepSWE]({DEEPSWE.split(' ')[0]})" in rows["`samples`"]
    assert rows["`kv_tokens`"].split("|")[2].strip() == "549,000"
    assert "assumption" in rows["`step_overhead_s`"]
    assert "``" not in table()
