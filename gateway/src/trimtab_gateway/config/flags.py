"""Command-line flags to one :class:`GatewayConfig`: one role, one model, its engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.spec import ConfigError, located
from trimtab.spec.rules import without_user_info
from trimtab_gateway.config.keys import with_keys_of_files
from trimtab_gateway.config.types import EngineConfig, GatewayConfig, ModelConfig, RoleConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_ROLE = "rollout"
DEFAULT_MODEL = "default"


def config_from_flags(
    engines: Sequence[str], *, role: str = DEFAULT_ROLE, model: str | None = None, **gateway: object
) -> GatewayConfig:
    """Build the configuration of ``trimtab serve --engine ADDRESS[=CAPACITY] ...``.

    Args:
        engines: ``ADDRESS[=CAPACITY]``. An address holds no "=", so that the last one is never part of it.
        role: The role's name.
        model: The name clients may send as ``model``. None: there is one model and any name is accepted.
        gateway: Knobs of :class:`GatewayConfig` that were given; the others keep their defaults. ``admin_key_file``
            replaces ``admin_key``, and so on.

    Raises:
        ConfigError: A flag breaks a rule; the message names the flag and its value.
    """
    parsed = []
    for text in engines:
        with located(f"--engine {without_user_info(text)}", ": "):
            parsed.append(_engine(text))
    seen: dict[str, str] = {}
    for text, engine in zip(engines, parsed, strict=True):
        if engine.url in seen:
            raise ConfigError(f"--engine {text}", f"--engine {seen[engine.url]} has the same address {engine.url}")
        seen[engine.url] = text
    with located("--model", ": "):
        served = ModelConfig(name=DEFAULT_MODEL if model is None else model, engines=tuple(parsed))
    with located("--role", ": "):
        serving = RoleConfig(name=role, models=(served,), lenient_model=model is None)
    try:
        return GatewayConfig(roles=(serving,), **with_keys_of_files(gateway))
    except ConfigError as error:
        raise ConfigError(f"--{error.where.replace('_', '-')}", error.problem) from error.__cause__


def _engine(text: str) -> EngineConfig:
    address, separator, capacity = text.partition("=")
    if not separator:
        return EngineConfig(address)
    try:
        return EngineConfig(address, float(capacity))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        shown = without_user_info(repr(capacity))
        raise ConfigError("capacity", f"{shown} is refused: it must be a number, as in 10.0.0.1:30000=8") from None
