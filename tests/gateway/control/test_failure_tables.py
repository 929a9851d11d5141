"""The tables "What happens when …" of the pages name a test for every failure; what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab_gateway.control.metrics_pool import POOL_COUNTERS, POOL_GAUGES

ROOT = Path(__file__).resolve().parents[3]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("gateway", "operations", "manager")}
LINK = re.compile(r"\[`(?P<shown>[\w./]+)::(?P<name>\w+)`\]\(\.\./(?P<path>[\w./]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_exists(page: str) -> None:
    """File and function, in Python and in Rust; a renamed test has to be renamed on the page."""
    links = list(LINK.finditer(PAGES[page]))
    assert len(links) == PAGES[page].count("::")
    for link in links:
        assert link["path"].endswith(link["shown"])
        source = (ROOT / link["path"]).read_text("utf-8")
        defined = rf"#\[(tokio::)?test[^]]*\]\s+(async )?fn {link['name']}\(|^(async )?def {link['name']}\("
        assert re.search(defined, source, re.MULTILINE), link[0]


@pytest.mark.parametrize("page", PAGES)
def test_every_failure_names_its_test(page: str) -> None:
    """A row without one is a promise that nobody checks."""
    rows = PAGES[page].split("## What happens when", 1)[1].split("\n## ", 1)[0].splitlines()
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
    assert [name for name in names if f"`{name}{{" not in PAGES["operations"]] == []
