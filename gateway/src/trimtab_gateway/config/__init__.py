"""Configuration of a gateway: frozen, validated dataclasses, and their two sources (a TOML file, CLI flags).

A value that exists is valid: every rule is checked when the object is built, with one message per rule that says where
the value stands. Units are part of the names (``_s``, ``_bytes``). ``docs/configuration.md`` documents every knob.
"""

from __future__ import annotations

from trimtab.spec import ConfigError
from trimtab_gateway.config.flags import config_from_flags
from trimtab_gateway.config.keys import keys_of_environment
from trimtab_gateway.config.load import config_from_table, gateway_from_table, load_config
from trimtab_gateway.config.types import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

__all__ = [
    "ConfigError",
    "EngineConfig",
    "GatewayConfig",
    "ModelConfig",
    "RoleConfig",
    "config_from_flags",
    "config_from_table",
    "gateway_from_table",
    "keys_of_environment",
    "load_config",
]
