"""The manual and the dashboard speak of the metrics that exist, and of all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.control.conftest import one_role
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab_gateway import EngineConfig

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Served, Start
    from tests.support.lab import Lab

PAGE = Path(__file__).parents[3].joinpath("docs/observability.md").read_text()
DASHBOARD = Path(__file__).parents[3].joinpath("gateway/src/trimtab_gateway/grafana/trimtab.json")
NAME = re.compile(r"\b(?:trimtab|process)_[a-z0-9_]+")


async def busy(serve: Start, lab: Lab) -> Served:
    """A gateway on which everything happened once that makes a series."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority)))
    await served.eligible(1)
    pool = served.gateway.pool("rollout", "tiny")
    pool.publish("u-1", 1)
    await served.client.post("/generate", json={"text": "a"})
    await wait_until(lambda: pool.statistics().outstanding == 0, "the lease to end")
    for kind in ("weights", "offload"):
        pool.begin_update(kind, kind=kind)
        pool.drain(kind, timeout_s=10.0)
        if kind == "weights":
            pool.publish(kind, 2)
        else:
            pool.cancel_update(kind)
        pool.end_server_pause(kind)
    await wait_until(lambda: served.gateway.statistics().loop_lags["control"].cumulative[-1] > 0, "a lag")
    await served.forget_snapshot()
    return served


def described(text: str) -> set[str]:
    """The names that a scrape declares, as they are queried but for the suffixes of histograms."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


async def test_the_manual_lists_every_metric(serve: Start, lab: Lab) -> None:
    """Every name of a scrape is in a table of the page, and every name of the page's tables in a scrape."""
    served = await busy(serve, lab)
    exported = {name for name in described((await served.get("/metrics")).text) if name.startswith("trimtab_")}
    listed = set(re.findall(r"^\| `(trimtab_[a-z_]+)` \|", PAGE, re.MULTILINE))
    assert listed == exported


async def test_the_queries_of_the_manual_name_series_that_exist(serve: Start, lab: Lab) -> None:
    """A query with a typing error returns nothing, which looks like "all is well"."""
    served = await busy(serve, lab)
    section = PAGE.split("### Queries", 1)[1].split("###", 1)[0]
    assert set(NAME.findall(section)) <= await sample_names(served)


async def test_the_dashboard_queries_series_that_exist(serve: Start, lab: Lab) -> None:
    """Every name in an expression is one of a real scrape, and so is every label that it selects or groups by."""
    served = await busy(serve, lab)
    names = await sample_names(served)
    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert asked <= names
    assert len(asked) > 40
    labels = {"instance", "job", "le"}
    for family in text_string_to_metric_families((await served.get("/metrics")).text):
        labels |= {label for sample in family.samples for label in sample.labels}
    grouped = [
        group for expression in expressions() for group in re.findall(r"\b(?:by|on) \(([a-z_, ]+)\)", expression)
    ]
    selected = {label for expression in expressions() for label in re.findall(r"\b([a-z_]+)(?:=~|=)\"", expression)}
    assert {label for group in grouped for label in group.split(", ")} | selected <= labels


def test_the_dashboard_can_be_imported() -> None:
    """Ids are unique, panels do not overlap, every panel has a query, a text and the chosen data source."""
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["description"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_the_package_prints_its_dashboard() -> None:
    """The command of the manual writes the file as it is."""
    command = [sys.executable, "-m", "trimtab_gateway.grafana"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert printed == DASHBOARD.read_text()
    assert "python -m trimtab_gateway.grafana" in PAGE


def expressions() -> list[str]:
    """Every query of the dashboard."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    return found + [annotation["expr"] for annotation in dashboard["annotations"]["list"]]


async def sample_names(served: Served) -> set[str]:
    """The names of the series of a scrape, and of the families that have none yet."""
    text = (await served.get("/metrics")).text
    return described(text) | {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }
