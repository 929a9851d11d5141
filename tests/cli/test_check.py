"""``trimtab check``: whether a file is valid, what it means, and which values are defaults."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from trimtab.cli.commands import trimtab
from trimtab.spec import FleetSpec, load_fleet
from trimtab.spec.tables import parse_toml
from trimtab_gateway.config import load_config

if TYPE_CHECKING:
    from pathlib import Path

LAUNCHED = """
[gateway]
port = 9000

[manager]
stop_grace_s = 5

[roles.rollout.models.policy]
model_path = "/models/policy"
weight_source = "trainer"

[[roles.rollout.models.policy.engine_groups]]
name = "a"
replicas = 2
engine = "sim"
"""
SERVED = """
[roles.rollout.models.policy]
max_concurrent = 512
engines = ["10.0.0.1:30000", { url = "10.0.0.2:30000", capacity = 4 }]

[roles.rollout.models.routed]
router_url = "10.0.0.9:3000"
"""


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """Runs the command on a file with a text."""

    def run(text: str, *options: str, **environment: str) -> Result:
        file = tmp_path / "trimtab.toml"
        file.write_text(text)
        return CliRunner().invoke(trimtab, ["check", str(file), *options], env=environment)

    return run


def test_the_listing_is_the_file_with_every_default_marked(check: Any, tmp_path: Path) -> None:
    """It is TOML itself: read again, it is the same fleet."""
    result = check(LAUNCHED)
    assert result.exit_code == 0, result.output
    file = tmp_path / "trimtab.toml"
    lines = result.output.splitlines()
    assert lines[0] == f"# {file} is valid: trimtab up {file}"
    assert "port = 9000" in lines
    assert "stop_grace_s = 5" in lines
    assert any(line.split("  ")[0] == "start_deadline_s = 1800.0" and line.endswith("# default") for line in lines)
    assert "# log_dir is not set" in lines
    assert "[[roles.rollout.models.policy.engine_groups]]" in lines
    again = tmp_path / "again.toml"
    again.write_text(result.output)
    fleet, read = load_fleet(file), load_fleet(again)
    assert FleetSpec(fleet.roles, fleet.manager) == FleetSpec(read.roles, read.manager)
    assert read.gateway["max_body_bytes"] == 536_870_912


def test_a_file_of_serve_is_listed_too(check: Any, tmp_path: Path) -> None:
    """With the normalised addresses and the ids that follow from them."""
    result = check(SERVED)
    assert result.exit_code == 0, result.output
    file = tmp_path / "trimtab.toml"
    assert result.output.startswith(f"# {file} is valid: trimtab serve --config {file}\n")
    assert "[manager]" not in result.output
    again = tmp_path / "again.toml"
    again.write_text(result.output)
    assert load_config(again) == load_config(file)


def test_json_names_every_default(check: Any) -> None:
    """For programs: None is null, and each default is listed by its place."""
    document = json.loads(check(LAUNCHED, "--json").output)
    assert document["command"] == "trimtab up"
    assert document["resolved"]["manager"]["log_dir"] is None
    assert document["resolved"]["gateway"]["port"] == 9000
    defaults = set(document["defaults"])
    assert "roles.rollout.models.policy.engine_groups[0].launcher" in defaults
    assert not defaults & {"gateway.port", "manager.stop_grace_s", "roles.rollout.models.policy.engine_groups[0].name"}


def test_a_key_is_never_shown(check: Any, tmp_path: Path) -> None:
    """Only where it comes from; and it counts, so that what needs a key is valid with it."""
    secret = tmp_path / "key"
    secret.write_text("geheim-1")
    text = LAUNCHED.replace("port = 9000", f'host = "0.0.0.0"\nclient_key_file = "{secret}"')
    assert "without an admin key" in check(text).output
    for options in ((), ("--json",)):
        result = check(text, *options, TRIMTAB_ADMIN_KEY="geheim-2")
        assert result.exit_code == 0, result.output
        assert "geheim" not in result.output
        assert str(secret) in result.output
    assert "# admin_key_file is not set here, but in the environment" in check(text, TRIMTAB_ADMIN_KEY="k").output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUNCHED.replace("replicas", "replica"), "engine_groups[0].replica: unknown key; did you mean 'replicas'?"),
        (LAUNCHED.replace("port", "prot"), "gateway.prot: unknown key; did you mean 'port'?"),
        (LAUNCHED.replace("9000", "'x'"), "gateway.port: 'x' is refused: it must be a whole number"),
        (LAUNCHED.replace("port = 9000", "admin_key = 'geheim'"), "gateway.admin_key: does not belong into this file"),
        (
            SERVED.replace("max_concurrent", "max_concurent"),
            "unknown key; did you mean 'max_concurrent'?",
        ),
        (
            LAUNCHED + SERVED.replace("policy", "other"),
            "other.engines: is refused: it belongs to `trimtab serve`",
        ),
        ("", "roles: nothing to serve"),
        ("roles = 1", "roles: 1 is refused: it must be a table"),
        ("[roles", "is not valid TOML"),
    ],
)
def test_a_mistake_ends_with_2_and_one_message(check: Any, text: str, message: str) -> None:
    """The file, the place, the rule."""
    result = check(text)
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert message in result.output
    assert result.output.count("\n") == 1
    assert "geheim" not in result.output


def test_without_the_gateway_its_table_is_shown_as_it_is(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is validated; a file of ``trimtab serve`` names what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trimtab_gateway"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "trimtab.cli.compose", raising=False)
    monkeypatch.setitem(sys.modules, "trimtab_gateway", None)
    result = check(LAUNCHED)
    assert result.exit_code == 0, result.output
    assert parse_toml(result.output)["gateway"] == {"port": 9000}
    served = check(SERVED)
    assert served.exit_code == 1
    assert "pip install trimtab-gateway" in served.output


def test_serve_refuses_what_up_would_launch(tmp_path: Path) -> None:
    """The one grammar has two readers, and each says who the other is."""
    file = tmp_path / "trimtab.toml"
    for text, where in (
        (LAUNCHED, "manager"),
        (LAUNCHED.replace("[manager]\nstop_grace_s = 5\n", ""), "roles.rollout.models.policy.engine_groups"),
    ):
        file.write_text(text)
        result = CliRunner().invoke(trimtab, ["serve", "--config", str(file)])
        assert result.exit_code == 2
        problem = "is refused: `trimtab serve` starts no engines; this file is one for `trimtab up`"
        assert result.output == f"Error: {file}: {where}: {problem}\n"
