"""Gateway of trimtab: control app and configuration around the Rust data plane.

``trimtab serve`` is the command; ``Gateway`` is the same thing inside a program::

    config = GatewayConfig(roles=(RoleConfig("rollout", (ModelConfig("tiny", (EngineConfig("127.0.0.1:30000"),)),)),))
    async with Gateway(config) as gateway:
        ...  # POST f"{gateway.url}/generate"
"""

from __future__ import annotations

from trimtab_gateway.config import (
    ConfigError,
    EngineConfig,
    GatewayConfig,
    ModelConfig,
    RoleConfig,
    config_from_flags,
    config_from_table,
    load_config,
)
from trimtab_gateway.gateway import Gateway
from trimtab_gateway.statistics import GatewayStatistics

__all__ = [
    "ConfigError",
    "EngineConfig",
    "Gateway",
    "GatewayConfig",
    "GatewayStatistics",
    "ModelConfig",
    "RoleConfig",
    "config_from_flags",
    "config_from_table",
    "load_config",
]
