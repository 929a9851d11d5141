"""Specs that are valid, for tests that break one thing of them."""

from __future__ import annotations

from typing import Any

from trimtab.spec import EngineGroupSpec, InferenceModelSpec, InferenceRoleSpec


def group(name: str = "g", **knobs: Any) -> EngineGroupSpec:
    """A group of one engine."""
    return EngineGroupSpec(name=name, **knobs)


def model(name: str = "policy", *groups: EngineGroupSpec, **knobs: Any) -> InferenceModelSpec:
    """A model with the groups, or with one."""
    return InferenceModelSpec(
        **{"name": name, "model_path": "/models/m", "engine_groups": groups or (group(),), **knobs}
    )


def role(*models: InferenceModelSpec, **knobs: Any) -> InferenceRoleSpec:
    """A role with the models, or with one."""
    return InferenceRoleSpec(**{"role": "rollout", "models": models or (model(),), **knobs})
