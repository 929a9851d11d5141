"""What ``trimtab up`` puts together: the gateway's configuration follows from the fleet's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab.spec.adapter import AdapterSpec
from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.pool import PoolSpec
from trimtab.spec.tables import fields_of
from trimtab_gateway.config import ModelConfig, RoleConfig, gateway_from_table
from trimtab_gateway.config.types import own_authorities

if TYPE_CHECKING:
    from trimtab.spec import FleetSpec, InferenceModelSpec, InferenceRoleSpec
    from trimtab_gateway.config import GatewayConfig


def gateway_config(fleet: FleetSpec, **overrides: object) -> GatewayConfig:
    """The gateway in front of a fleet. Its pools are empty: the manager publishes engines as they come up.

    Args:
        fleet: The fleet.
        overrides: Keys of ``[gateway]`` that replace those of the file, and keys for when no file holds them.

    Raises:
        ConfigError: A value of ``[gateway]`` breaks a rule, an engine is the gateway itself, or a model has a router of
            its own.
    """
    config = gateway_from_table(fleet.gateway, tuple(map(_role, fleet.roles)), **overrides)
    own = own_authorities(config.host, config.port) if config.port else ()
    for place, url in fleet.external_urls():
        if url.partition("://")[2] in own:
            raise ConfigError(place, f"{url} is refused: it is the address of this gateway itself")
    return config


def _role(role: InferenceRoleSpec) -> RoleConfig:
    for model in role.models:
        if model.needs_router:
            raise ConfigError(
                f"roles.{role.role}.models.{toml_key(model.name)}.route_mode",
                f"{model.route_mode!r} is refused: nobody here would register engines with that router; start both "
                "yourself, and serve the model with router_url in a file for `trimtab serve`",
            )
    return RoleConfig(
        name=role.role,
        models=tuple(map(_model, role.models)),
        expose_engine_urls=role.expose_engine_urls,
        **_same(role.routing, fields_of(type(role.routing))),
    )


def _model(model: InferenceModelSpec) -> ModelConfig:
    shared = _same(model, (*fields_of(PoolSpec), *fields_of(AdapterSpec)))
    return ModelConfig(name=model.name, **shared)


def _same(spec: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in names}
