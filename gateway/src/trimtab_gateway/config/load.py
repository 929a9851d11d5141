"""One TOML file to one :class:`GatewayConfig`: shapes and unknown keys here, values in the objects themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.spec import ConfigError, located, toml_key
from trimtab.spec.rules import without_user_info
from trimtab.spec.tables import Table, as_table, fields_of, read_toml, refuse_unknown
from trimtab_gateway.config.keys import KEYS, variable_of, with_keys_of_files
from trimtab_gateway.config.types import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LAUNCHES = "is refused: `trimtab serve` starts no engines; this file is one for `trimtab up`"


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
        return config_from_table(read_toml(path), **overrides)


def config_from_table(table: Table, **overrides: object) -> GatewayConfig:
    """Build a configuration from a parsed TOML document. Raises :class:`ConfigError`."""
    if "manager" in table:
        raise ConfigError("manager", _LAUNCHES)
    refuse_unknown(table, ("gateway", "roles"))
    gateway = _checked_gateway(table.get("gateway", {}))
    with located("roles"):
        roles = tuple(_role(name, value) for name, value in as_table(table.get("roles", {})).items())
    if not roles:
        raise ConfigError("roles", "nothing to serve; give at least one role, such as [roles.rollout.models.NAME]")
    return gateway_from_table(gateway, roles, **overrides)


def gateway_from_table(value: object, roles: tuple[RoleConfig, ...], **overrides: object) -> GatewayConfig:
    """Build a configuration from the table ``[gateway]`` and roles that exist. Raises :class:`ConfigError`."""
    gateway = _checked_gateway(value)
    with located("gateway"):
        return GatewayConfig(roles=roles, **with_keys_of_files({**gateway, **overrides}))


def _checked_gateway(value: object) -> Table:
    with located("gateway"):
        gateway = as_table(value)
        _refuse_keys(gateway)
        refuse_unknown(gateway, (*_gateway_fields(), *(f"{key}_file" for key in KEYS)))
    return gateway


def _role(name: str, value: object) -> RoleConfig:
    with located(toml_key(name)):
        table = as_table(value)
        refuse_unknown(table, (field for field in fields_of(RoleConfig) if field != "name"))
        with located("models"):
            built = tuple(_model(model, entry) for model, entry in as_table(table.get("models", {})).items())
        return RoleConfig(name=name, **{**table, "models": built})


def _model(name: str, value: object) -> ModelConfig:
    with located(toml_key(name)):
        table = as_table(value)
        if "engine_groups" in table:
            raise ConfigError("engine_groups", _LAUNCHES)
        refuse_unknown(table, (field for field in fields_of(ModelConfig) if field != "name"))
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
        refuse_unknown(value, fields_of(EngineConfig))
        if "url" not in value:
            raise ConfigError("url", "is missing")
        return EngineConfig(**value)


def _gateway_fields() -> Iterable[str]:
    return (name for name in fields_of(GatewayConfig) if name not in ("roles", *KEYS))


def _refuse_keys(gateway: Table) -> None:
    for key in KEYS:
        if key in gateway:
            raise ConfigError(
                key,
                f"does not belong into this file: put the key into a file of its own and name that with {key}_file, "
                f"or set {variable_of(key)}",
            )
