"""Tables to specs: shapes and unknown keys here, values in the objects themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trimtab.spec.error import ConfigError, located, toml_key
from trimtab.spec.fleet import FleetSpec
from trimtab.spec.group import EngineGroupSpec, ParallelSpec
from trimtab.spec.manager import ManagerSpec
from trimtab.spec.model import InferenceModelSpec
from trimtab.spec.role import InferenceRoleSpec
from trimtab.spec.routing import RoutingSpec
from trimtab.spec.tables import Table, as_table, fields_of, read_toml, refuse_missing, refuse_unknown

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("gateway", "manager", "roles")
"""The tables of a file."""
MODEL_KEYS = tuple(key for key in fields_of(InferenceModelSpec) if key != "name")
ROLE_KEYS = (*(key for key in fields_of(InferenceRoleSpec) if key not in ("role", "routing")), *fields_of(RoutingSpec))
GROUP_KEYS = fields_of(EngineGroupSpec)


def load_fleet(path: str | Path) -> FleetSpec:
    """Read the TOML file of ``trimtab up``.

    Raises:
        ConfigError: The file cannot be read or breaks a rule; the message begins with its path.
    """
    with located(str(path), ": "):
        return fleet_from_table(read_toml(path))


def fleet_from_table(table: Table) -> FleetSpec:
    """Build a fleet from the tables of a file. Raises :class:`ConfigError`."""
    refuse_unknown(table, TABLES)
    with located("gateway"):
        gateway = as_table(table.get("gateway", {}))
    with located("manager"):
        knobs = as_table(table.get("manager", {}))
        refuse_unknown(knobs, fields_of(ManagerSpec))
        manager = ManagerSpec(**knobs)
    with located("roles"):
        roles = tuple(_role(name, value) for name, value in as_table(table.get("roles", {})).items())
    if not roles:
        raise ConfigError("roles", "nothing to serve; give at least one role, such as [roles.rollout.models.NAME]")
    return FleetSpec(roles=roles, manager=manager, gateway=gateway)


def fleet_from_json(text: str) -> FleetSpec:
    """Build a fleet from JSON, in which a key that is given twice is a mistake. Raises :class:`ConfigError`."""
    try:
        table = json.loads(text, object_pairs_hook=_pairs)
    except RecursionError as error:
        raise ConfigError("", "is not valid JSON: it is nested too deeply") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError("", f"is not valid JSON: {error}") from error
    return fleet_from_table(as_table(table))


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(toml_key(twice), "the key is given twice")
    return table


def _role(name: str, value: object) -> InferenceRoleSpec:
    with located(toml_key(name)):
        table = as_table(value)
        refuse_unknown(table, ROLE_KEYS)
        with located("models"):
            models = tuple(_model(model, entry) for model, entry in as_table(table.get("models", {})).items())
        routing = {key: table[key] for key in fields_of(RoutingSpec) if key in table}
        rest = {key: entry for key, entry in table.items() if key not in routing}
        return InferenceRoleSpec(role=name, routing=RoutingSpec(**routing), **{**rest, "models": models})


def _model(name: str, value: object) -> InferenceModelSpec:
    with located(toml_key(name)):
        table = as_table(value)
        if "engines" in table:
            raise ConfigError(
                "engines",
                "is refused: it belongs to `trimtab serve`; for engines that run already write an engine group with "
                'launcher = "external" and urls',
            )
        refuse_unknown(table, MODEL_KEYS)
        refuse_missing(table, ("model_path", "engine_groups"))
        groups = table["engine_groups"]
        if not isinstance(groups, list | tuple):
            raise ConfigError("engine_groups", f"{groups!r} is refused: it must be a list of tables")
        built = tuple(_group(index, entry) for index, entry in enumerate(groups))
        return InferenceModelSpec(name=name, **{**table, "engine_groups": built})


def _group(index: int, value: object) -> EngineGroupSpec:
    with located(f"engine_groups[{index}]"):
        table = as_table(value)
        refuse_unknown(table, GROUP_KEYS)
        refuse_missing(table, ("name",))
        if table.get("launcher") == "external" and "urls" not in table:
            hint = 'it must be a list such as ["10.0.0.1:30000"], or [] when all of them are added while it runs'
            raise ConfigError("urls", f"is missing: {hint}")
        with located("parallel"):
            layout = as_table(table.get("parallel", {}))
            refuse_unknown(layout, fields_of(ParallelSpec))
            parallel = ParallelSpec(**layout)
        return EngineGroupSpec(**{**table, "parallel": parallel})
