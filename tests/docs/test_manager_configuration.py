"""The pages on configuration name every knob, with the default that it has, and their files are valid."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.pages import ROOT, blocks
from trimtab.cli.resolved import resolve
from trimtab.spec import (
    AdapterSpec,
    EngineGroupSpec,
    InferenceModelSpec,
    InferenceRoleSpec,
    ManagerSpec,
    ModelPlacement,
    ParallelSpec,
    PoolSpec,
    RoutingSpec,
)
from trimtab.spec.write import toml_value
from trimtab_gateway.config import GatewayConfig
from trimtab_gateway.config.keys import KEYS

if TYPE_CHECKING:
    from pathlib import Path

MANAGER, GATEWAY = "docs/manager-configuration.md", "docs/configuration.md"
SHARED = (PoolSpec, AdapterSpec, RoutingSpec)
OF_A_TABLE = ("role", "routing", "roles")
"""Fields that are no keys but tables, or the name of one."""
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \|(?: [^|]*\|)*?(?: ([^|]*) \|) ([^|]*) \|$", re.MULTILINE)


def rows(page: str) -> dict[str, set[str]]:
    """What the tables of a page give as default of each key."""
    found: dict[str, set[str]] = {}
    for keys, default, _ in ROW.findall((ROOT / page).read_text("utf-8")):
        for key in re.findall(r"`(\w+)`", keys):
            found.setdefault(key, set()).add(default.strip())
    return found


def knobs(page: str, *kinds: type) -> list[tuple[str, dataclasses.Field[Any]]]:
    """Every field that a page documents; a field of a base that is shared stands in the gateway's page."""
    names = {field.name for kind in SHARED for field in dataclasses.fields(kind)}
    return [
        (page, field)
        for kind in kinds
        for field in dataclasses.fields(kind)
        if field.name not in OF_A_TABLE and (kind in SHARED or field.name not in names)
    ]


def shown(field: dataclasses.Field[Any]) -> str | None:
    """The default as a page writes it; None: any words."""
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if default is dataclasses.MISSING:
        return "required"
    if not isinstance(default, str | bool | int | float):
        return None
    number = int(default) if isinstance(default, float) and default.is_integer() else default
    return toml_value((), number).strip('"')


def written(cell: str) -> str:
    """The default that a cell begins with: without quotes, units, and marks between digits."""
    text = cell.split("`")[1].strip('"') if cell.startswith("`") else cell
    return text.replace("_", "") if text[:1].isdigit() else text


DOCUMENTED = (
    *knobs(MANAGER, InferenceRoleSpec, InferenceModelSpec, EngineGroupSpec, ParallelSpec, ManagerSpec, ModelPlacement),
    *knobs(GATEWAY, *SHARED, GatewayConfig),
)


@pytest.mark.parametrize(("page", "field"), DOCUMENTED, ids=[f"{page}:{field.name}" for page, field in DOCUMENTED])
def test_every_knob_is_documented_with_its_default(page: str, field: dataclasses.Field[Any]) -> None:
    """A row of a table: key, default, meaning; and the reason below it, under the key's name."""
    key = f"{field.name}_file" if field.name in KEYS else field.name
    assert key in rows(page), f"{page} has no row for {key}"
    defaults = {written(cell) for cell in rows(page)[key]}
    expected = shown(field)
    if expected is not None:
        assert expected in defaults


@pytest.mark.parametrize("field", dataclasses.fields(ManagerSpec), ids=lambda field: field.name)
def test_every_knob_of_the_manager_has_a_reason(field: dataclasses.Field[Any]) -> None:
    """A paragraph that begins with its name and has an example."""
    paragraphs = (ROOT / MANAGER).read_text("utf-8").split("\n\n")
    mine = [text for text in paragraphs if text.startswith("*`") and f"`{field.name}`" in text.partition(".*")[0]]
    assert len(mine) == 1, field.name
    assert "Example" in mine[0] or mine[0].endswith(":"), field.name


@pytest.mark.parametrize("number", range(len(blocks(MANAGER, "toml"))))
def test_files_are_valid(number: int, tmp_path: Path) -> None:
    """Each block is a whole file, or a table to which roles are added."""
    text = blocks(MANAGER, "toml")[number]
    if "[roles" not in text:
        text += '[roles.r.models.m]\nmodel_path = "/m"\n[[roles.r.models.m.engine_groups]]\nname = "g"\n'
    file = tmp_path / "trimtab.toml"
    file.write_text(text)
    assert resolve(file).command == "trimtab up"


@pytest.mark.parametrize("code", blocks(MANAGER, "python"))
def test_the_program_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands."""
    exec(compile(code, MANAGER, "exec"), {})
    assert "[roles.rollout.models.policy]" in capsys.readouterr().out
