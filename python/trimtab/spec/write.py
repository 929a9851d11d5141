"""Specs as plain tables, and plain tables as TOML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from trimtab.spec.error import ConfigError, toml_key, toml_string
from trimtab.spec.frozen import thaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.spec.fleet import FleetSpec
    from trimtab.spec.model import InferenceModelSpec
    from trimtab.spec.role import InferenceRoleSpec


Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys of tables and indices of lists."""


def resolved_table(fleet: FleetSpec) -> dict[str, Any]:
    """A fleet as the tables of a file, every default written out; None is what is not set."""
    return {
        "gateway": thaw(fleet.gateway),
        "manager": plain(fleet.manager),
        "roles": {role.role: _table_of_role(role) for role in fleet.roles},
    }


def table_of_fleet(fleet: FleetSpec) -> dict[str, Any]:
    """The same without what is not set: a key that is absent and one that is None mean the same."""
    table = resolved_table(fleet)
    roles = table["roles"].values()
    models = [model for role in roles for model in role["models"].values()]
    groups = [group for model in models for group in model["engine_groups"]]
    for values in (table["manager"], *roles, *models, *groups):
        for key in [key for key, value in values.items() if value is None]:
            del values[key]
    return table


def _table_of_role(role: InferenceRoleSpec) -> dict[str, Any]:
    models = {model.name: _table_of_model(model) for model in role.models}
    return {**plain(role, without=("role", "routing", "models")), **plain(role.routing), "models": models}


def _table_of_model(model: InferenceModelSpec) -> dict[str, Any]:
    groups = [{**plain(group), "parallel": plain(group.parallel)} for group in model.engine_groups]
    return {**plain(model, without=("name", "engine_groups")), "engine_groups": groups}


def plain(spec: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of one spec as plain data; specs inside it are the caller's."""
    return {item.name: thaw(getattr(spec, item.name)) for item in dataclasses.fields(spec) if item.name not in without}


def toml_of_table(table: Mapping[str, Any]) -> str:
    """The tables of a file as a TOML document. Raises :class:`ConfigError` for what TOML cannot say."""
    lines: list[str] = []
    for path, header, values in sections(table):
        lines += ["", header]
        lines += [f"{toml_key(key)} = {toml_value((*path, key), value)}" for key, value in values.items()]
    return "\n".join(lines[1:]) + "\n"


def sections(table: Mapping[str, Any]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """The tables of a file in the order in which it is written: where each stands, its header, its values."""
    for name in ("gateway", "manager"):
        if name in table:
            yield (name,), f"[{name}]", table[name]
    for role_name, role in table["roles"].items():
        path: Path = ("roles", role_name)
        yield path, f"[{dotted(path)}]", {key: value for key, value in role.items() if key != "models"}
        for model_name, model in role["models"].items():
            path = ("roles", role_name, "models", model_name)
            yield path, f"[{dotted(path)}]", {key: value for key, value in model.items() if key != "engine_groups"}
            below = (*path, "engine_groups")
            for index, group in enumerate(model.get("engine_groups", ())):
                yield (*below, index), f"[[{dotted(below)}]]", group


def dotted(path: Path) -> str:
    """A path as messages write it, and TOML as far as it has no index."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{toml_key(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def toml_value(path: Path, value: object) -> str:
    """One value as TOML writes it after the ``=``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(toml_value((*path, index), entry) for index, entry in enumerate(value))}]"
    if isinstance(value, Mapping):
        entries = (f"{toml_key(key)} = {toml_value((*path, key), entry)}" for key, entry in value.items())
        return f"{{{', '.join(entries)}}}"
    raise ConfigError(dotted(path), f"{value!r} is refused: TOML has no word for it")
