"""Specs as plain tables, and plain tables as TOML."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.frozen import thaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trimtab.spec.fleet import FleetSpec
    from trimtab.spec.model import InferenceModelSpec
    from trimtab.spec.role import InferenceRoleSpec


def table_of_fleet(fleet: FleetSpec) -> dict[str, Any]:
    """A fleet as the tables of a file."""
    return {
        "gateway": thaw(fleet.gateway),
        "manager": _table_of(fleet.manager),
        "roles": {role.role: _table_of_role(role) for role in fleet.roles},
    }


def _table_of_role(role: InferenceRoleSpec) -> dict[str, Any]:
    table = _table_of(role, without=("role", "routing", "models"))
    models = {model.name: _table_of_model(model) for model in role.models}
    return {**table, **_table_of(role.routing), "models": models}


def _table_of_model(model: InferenceModelSpec) -> dict[str, Any]:
    groups = [
        {**_table_of(group, without=("parallel",)), "parallel": _table_of(group.parallel)}
        for group in model.engine_groups
    ]
    return {**_table_of(model, without=("name", "engine_groups")), "engine_groups": groups}


def _table_of(spec: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    # A key that is absent and one that is None mean the same, and TOML has no word for the latter.
    values = {item.name: getattr(spec, item.name) for item in dataclasses.fields(spec) if item.name not in without}
    return {key: thaw(value) for key, value in values.items() if value is not None}


def toml_of_table(table: Mapping[str, Any]) -> str:
    """The tables of a file as a TOML document. Raises :class:`ConfigError` for what TOML cannot say."""
    lines: list[str] = []
    for path, header, values in sections(table):
        lines += ["", header]
        lines += [f"{toml_key(key)} = {toml_value((*path, key), value)}" for key, value in values.items()]
    return "\n".join(lines[1:]) + "\n"


def sections(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, Mapping[str, Any]]]:
    """The tables of a file in the order in which it is written: where each stands, its header, its values."""
    for name in ("gateway", "manager"):
        yield (name,), f"[{name}]", table[name]
    for role_name, role in table["roles"].items():
        path: tuple[str, ...] = ("roles", role_name)
        yield path, f"[{dotted(path)}]", {key: value for key, value in role.items() if key != "models"}
        for model_name, model in role["models"].items():
            path = ("roles", role_name, "models", model_name)
            yield path, f"[{dotted(path)}]", {key: value for key, value in model.items() if key != "engine_groups"}
            for group in model["engine_groups"]:
                below = (*path, "engine_groups")
                yield below, f"[[{dotted(below)}]]", group


def dotted(path: Iterable[str]) -> str:
    """A path as TOML writes it."""
    return ".".join(map(toml_key, path))


def toml_value(path: tuple[str, ...], value: object) -> str:
    """One value as TOML writes it after the ``=``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's basic strings have the escapes of JSON's, but take no DEL as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(toml_value((*path, str(index)), entry) for index, entry in enumerate(value))}]"
    if isinstance(value, Mapping):
        entries = (f"{toml_key(key)} = {toml_value((*path, key), entry)}" for key, entry in value.items())
        return f"{{{', '.join(entries)}}}"
    raise ConfigError(dotted(path), f"{value!r} is refused: TOML has no word for it")
