"""What a fleet is: roles, models, engine groups, and the deadlines of whoever manages them.

Specs are values. They are checked when they are built, with one message per rule that says where the value stands;
nothing of them can be changed afterwards, at any depth; they compare, hash, and go through ``pickle``, TOML and JSON
and come back equal. ``docs/manager-configuration.md`` documents every knob.
"""

from __future__ import annotations

from trimtab.spec.adapter import AdapterSpec
from trimtab.spec.error import ConfigError, located, toml_key
from trimtab.spec.flags import engine_env, server_args
from trimtab.spec.fleet import FleetSpec
from trimtab.spec.frozen import FrozenMapping, thaw
from trimtab.spec.group import EngineGroupSpec, ParallelSpec
from trimtab.spec.manager import ManagerSpec
from trimtab.spec.model import InferenceModelSpec
from trimtab.spec.placement import ModelPlacement
from trimtab.spec.pool import PoolSpec
from trimtab.spec.read import fleet_from_table, load_fleet
from trimtab.spec.role import InferenceRoleSpec
from trimtab.spec.routing import RoutingSpec

__all__ = [
    "AdapterSpec",
    "ConfigError",
    "EngineGroupSpec",
    "FleetSpec",
    "FrozenMapping",
    "InferenceModelSpec",
    "InferenceRoleSpec",
    "ManagerSpec",
    "ModelPlacement",
    "ParallelSpec",
    "PoolSpec",
    "RoutingSpec",
    "engine_env",
    "fleet_from_table",
    "load_fleet",
    "located",
    "server_args",
    "thaw",
    "toml_key",
]
