"""``docs/operations.md`` names a test for every failure: each of them exists, and so does each metric it names."""

from __future__ import annotations

import re
from pathlib import Path

from trimtab_gateway.control.metrics_pool import POOL_COUNTERS, POOL_GAUGES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
LINK = re.compile(r"\[`(?P<shown>[\w./]+)::(?P<name>\w+)`\]\(\.\./(?P<path>[\w./]+)\)")


def test_every_test_that_is_named_exists() -> None:
    """File and function, in Python and in Rust; a renamed test has to be renamed on the page."""
    links = list(LINK.finditer(PAGE))
    assert len(links) == PAGE.count("::")
    for link in links:
        assert link["path"].endswith(link["shown"])
        source = (ROOT / link["path"]).read_text("utf-8")
        defined = rf"#\[(tokio::)?test[^]]*\]\s+(async )?fn {link['name']}\(|^(async )?def {link['name']}\("
        assert re.search(defined, source, re.MULTILINE), link[0]


def test_every_failure_names_its_test() -> None:
    """A row without one is a promise that nobody checks."""
    rows = PAGE.split("## What happens when", 1)[1].splitlines()
    table = [row for row in rows if row.startswith("| ") and not row.startswith("| … |")]
    assert len(table) > 20
    assert [row for row in table if LINK.search(row) is None] == []


def test_every_metric_of_updates_is_explained() -> None:
    """Under the name that a query uses: counters end in ``_total``."""
    names = [*POOL_GAUGES, *(f"{name}_total" for name in POOL_COUNTERS)]
    names += [
        "trimtab_pool_state",
        "trimtab_fence",
        "trimtab_weight_version",
        "trimtab_waiters",
        "trimtab_parked_total",
    ]
    assert [name for name in names if f"`{name}{{" not in PAGE] == []
