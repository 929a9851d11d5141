"""Replacing the weights of a model's engines while it serves."""

from trimtab_manager.weights.deadlines import UpdateDeadlines
from trimtab_manager.weights.drain import Running
from trimtab_manager.weights.errors import UpdateCancelled, UpdateFailed
from trimtab_manager.weights.manifest import Manifest, TensorSpec, read_manifest
from trimtab_manager.weights.plan import FlushPolicy
from trimtab_manager.weights.scope import Member, UpdateScope
from trimtab_manager.weights.source import Distributed, FromDisk, Label, Source, Tensors
from trimtab_manager.weights.updates import Progress, WeightUpdates

__all__ = [
    "Distributed",
    "FlushPolicy",
    "FromDisk",
    "Label",
    "Manifest",
    "Member",
    "Progress",
    "Running",
    "Source",
    "TensorSpec",
    "Tensors",
    "UpdateCancelled",
    "UpdateDeadlines",
    "UpdateFailed",
    "UpdateScope",
    "WeightUpdates",
    "read_manifest",
]
