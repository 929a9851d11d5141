"""One TOML file to one :class:`GatewayConfig`: shapes and unknown keys here, values in the objects themselves."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_gateway.config.error import ConfigError, located, toml_key
from trimtab_gateway.config.keys import KEYS, variable_of, with_keys_of_files
from trimtab_gateway.config.rules import without_user_info
from trimtab_gateway.config.types import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = Mapping[str, Any]


def load_config(path: str | Path, **overrides: object) -> GatewayConfig:
    """Read a TOML file.

    Args:
        path: The file.
        overrides: Keys of ``[gateway]`` that replace those of the file (a flag given next to a file), and
            keys for when no file holds them.

    Raises:
        ConfigError: The file cannot be read or breaks a rule; the message begins with its path.
    """
    with located(str(path), ": "):
        try:
            table = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
        except OSError as error:
            raise ConfigError("", f"cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError("", f"is not UTF-8 text (byte {error.start})") from error
        except ValueError as error:
            # Beside tomllib's own error, what int() says to a number of thousands of digits.
            raise ConfigError("", f"is not valid TOML: {error}") from error
        except RecursionError as error:
            raise ConfigError("", "is not valid TOML: it is nested too deeply") from error
        return config_from_table(table, **overrides)


def config_from_table(table: Table, **overrides: object) -> GatewayConfig:
    """Build a configuration from a parsed TOML document. Raises :class:`ConfigError`."""
    _refuse_unknown(table, ("gateway", "roles"))
    with located("gateway"):
        gateway = _table(table.get("gateway", {}))
        _refuse_keys(gateway)
        _refuse_unknown(gateway, (*_gateway_fields(), *(f"{key}_file" for key in KEYS)))
    with located("roles"):
        roles = tuple(_role(name, value) for name, value in _table(table.get("roles", {})).items())
    if not roles:
        raise ConfigError("roles", "nothing to serve; give at least one role, such as [roles.rollout.models.NAME]")
    with located("gateway"):
        return GatewayConfig(roles=roles, **with_keys_of_files({**gateway, **overrides}))


def _role(name: str, value: object) -> RoleConfig:
    with located(toml_key(name)):
        table = _table(value)
        _refuse_unknown(table, (field for field in _fields(RoleConfig) if field != "name"))
        with located("models"):
            built = tuple(_model(model, entry) for model, entry in _table(table.get("models", {})).items())
        return RoleConfig(name=name, **{**table, "models": built})


def _model(name: str, value: object) -> ModelConfig:
    with located(toml_key(name)):
        table = _table(value)
        _refuse_unknown(table, (field for field in _fields(ModelConfig) if field != "name"))
        engines = table.get("engines")
        if engines is None and "router_url" in table:
            return ModelConfig(name=name, **table)
        if not isinstance(engines, list):
            problem = "is missing" if engines is None else f"{without_user_info(repr(engines))} is refused"
            hint = 'it must be a list such as ["10.0.0.1:30000"], or [] when all of them come by POST /workers'
            raise ConfigError("engines", f"{problem}: {hint}")
        return ModelConfig(name=name, **{**table, "engines": tuple(map(_engine, range(len(engines)), engines))})


def _engine(index: int, value: object) -> EngineConfig:
    with located(f"engines[{index}]"):
        if isinstance(value, str):
            return EngineConfig(value)
        if not isinstance(value, dict):
            shown = without_user_info(repr(value))
            raise ConfigError("", f'{shown} is refused: it must be "host:port" or {{url = "host:port"}}')
        _refuse_unknown(value, _fields(EngineConfig))
        if "url" not in value:
            raise ConfigError("url", "is missing")
        return EngineConfig(**value)


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _gateway_fields() -> Iterable[str]:
    return (name for name in _fields(GatewayConfig) if name not in ("roles", *KEYS))


def _refuse_keys(gateway: Table) -> None:
    for key in KEYS:
        if key in gateway:
            raise ConfigError(
                key,
                f"does not belong into this file: put the key into a file of its own and name that with {key}_file, "
                f"or set {variable_of(key)}",
            )


def _table(value: object) -> Table:
    if not isinstance(value, dict):
        raise ConfigError("", f"{value!r} is refused: it must be a table")
    return value


def _refuse_unknown(table: Table, known: Iterable[str]) -> None:
    names = tuple(known)
    for key in table:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(sorted(names))}"
            raise ConfigError(key, f"unknown key; {hint}")
