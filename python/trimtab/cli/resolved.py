"""A configuration file, resolved: every value that will be used, and which of them the file says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trimtab.spec.read import fleet_from_table
from trimtab.spec.tables import as_table, read_toml
from trimtab.spec.write import Path, dotted, plain, resolved_table, sections

if TYPE_CHECKING:
    from trimtab_gateway.config import GatewayConfig

Table = Mapping[str, Any]
Origin = Literal["file", "environment", "default"]


@dataclass(frozen=True)
class Knob:
    """One value of a section. None: it is not set. ``origin``: who says so."""

    key: str
    value: Any
    origin: Origin


@dataclass(frozen=True)
class Resolved:
    """A valid file.

    Attributes:
        command: Who runs it: ``trimtab up`` or ``trimtab serve``.
        table: The file with every default written out; None is what is not set.
        given: The file as it is.
        keys: Names of the keys that come from the environment, such as ``admin_key``; never their text.
    """

    command: str
    table: Table
    given: Table
    keys: frozenset[str] = frozenset()

    def sections(self) -> Iterator[tuple[str, tuple[Knob, ...]]]:
        """Header and values of each table, in the order of a file."""
        for path, header, values in sections(self.table):
            given = _at(self.given, path)
            yield header, tuple(Knob(key, value, self._origin(path, key, given)) for key, value in values.items())

    def defaults(self) -> Iterator[str]:
        """Where every value stands that the file leaves to its default."""
        for path, _, values in sections(self.table):
            given = _at(self.given, path)
            yield from (dotted((*path, key)) for key in values if self._origin(path, key, given) == "default")

    def _origin(self, path: Path, key: str, given: Table) -> Origin:
        if key in given:
            return "file"
        return "environment" if path == ("gateway",) and key.removesuffix("_file") in self.keys else "default"


def resolve(file: str | os.PathLike[str]) -> Resolved:
    """Read and validate a file of ``trimtab up`` or of ``trimtab serve``.

    Raises:
        ConfigError: The file breaks a rule.
        ModuleNotFoundError: It is one of ``trimtab serve``, and the gateway is not installed.
    """
    given = read_toml(file)
    return _served(given) if _is_served(given) else _launched(given)


def _is_served(table: Table) -> bool:
    """Whether the engines of a file run already, so that ``trimtab serve`` is who reads it."""
    models = [model for role in _tables(table.get("roles")) for model in _tables(role.get("models"))]
    launches = "manager" in table or any("engine_groups" in model for model in models)
    return not launches and any("engines" in model or "router_url" in model for model in models)


def _tables(value: object) -> list[Table]:
    return [entry for entry in value.values() if isinstance(entry, dict)] if isinstance(value, dict) else []


def _launched(given: Table) -> Resolved:
    fleet = fleet_from_table(given)
    table = resolved_table(fleet)
    try:
        from trimtab.cli.compose import gateway_config
        from trimtab_gateway.config import keys_of_environment
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "trimtab_gateway":
            raise
        return Resolved("trimtab up", table, given)
    keys = keys_of_environment(os.environ)
    table["gateway"] = _gateway_table(gateway_config(fleet, **keys), fleet.gateway)
    return Resolved("trimtab up", table, given, frozenset(keys))


def _served(given: Table) -> Resolved:
    from trimtab_gateway.config import config_from_table, keys_of_environment

    keys = keys_of_environment(os.environ)
    config = config_from_table(given, **keys)
    roles = {
        role.name: {
            **plain(role, without=("name", "models")),
            "models": {
                model.name: {
                    **plain(model, without=("name", "engines")),
                    "engines": [plain(engine) for engine in model.engines],
                }
                for model in role.models
            },
        }
        for role in config.roles
    }
    table = {"gateway": _gateway_table(config, as_table(given.get("gateway", {}))), "roles": roles}
    return Resolved("trimtab serve --config", table, given, frozenset(keys))


def _gateway_table(config: GatewayConfig, given: Table) -> dict[str, Any]:
    # A key's text is nowhere: where it comes from is all that is shown.
    from trimtab_gateway.config.keys import KEYS

    table: dict[str, Any] = {}
    for key, value in plain(config, without=("roles",)).items():
        table.update({f"{key}_file": given.get(f"{key}_file")} if key in KEYS else {key: value})
    return table


def _at(table: Table, path: Path) -> Table:
    found: Any = table
    for part in path:
        found = found[part] if isinstance(part, int) else found.get(part, {})
    return as_table(found)
