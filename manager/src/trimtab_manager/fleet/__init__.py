"""Fleets of engines: who is in them, who is dead, and what all of one model do together."""

from __future__ import annotations

from trimtab_manager.fleet.catch_up import CatchUpError, Resync
from trimtab_manager.fleet.manager import InferenceManager
from trimtab_manager.fleet.model_fleet import ModelFleet
from trimtab_manager.fleet.registry import PublishedEngine, Topology
from trimtab_manager.fleet.replica import Replica
from trimtab_manager.fleet.view import EngineView, ModelView, RoleView

__all__ = [
    "CatchUpError",
    "EngineView",
    "InferenceManager",
    "ModelFleet",
    "ModelView",
    "PublishedEngine",
    "Replica",
    "Resync",
    "RoleView",
    "Topology",
]
