"""A role: models that serve one purpose, and how requests find them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.frozen import assign
from trimtab.spec.model import InferenceModelSpec
from trimtab.spec.routing import RoutingSpec
from trimtab.spec.rules import check_bool, check_choice, check_role_name, refuse_duplicates

Workload = Literal["generation", "reward", "distillation"]
Deployment = Literal["decoupled", "colocated_split", "colocated_defer"]


@dataclass(frozen=True)
class InferenceRoleSpec:
    """What a group of models is for; the first segment of the URL. No code branches on its name.

    Attributes:
        role: Its name.
        models: The models, each with its own pool.
        workload: ``generation`` makes what is trained on; ``reward`` judges it; ``distillation`` is learnt from.
        deployment: ``decoupled``: on GPUs of its own; ``colocated_split``: on a part of the trainer's;
            ``colocated_defer``: on the trainer's, at another time.
        routing: How requests find the model and the session.
        expose_engine_urls: Whether discovery says where engines are.
    """

    role: str
    models: tuple[InferenceModelSpec, ...]
    workload: Workload = "generation"
    deployment: Deployment = "decoupled"
    routing: RoutingSpec = field(default_factory=RoutingSpec)
    expose_engine_urls: bool = True

    def __post_init__(self) -> None:
        check_role_name(self.role)
        check_choice("workload", self.workload, ("generation", "reward", "distillation"))
        check_choice("deployment", self.deployment, ("decoupled", "colocated_split", "colocated_defer"))
        check_bool("expose_engine_urls", self.expose_engine_urls)
        assign(self, models=tuple(self.models))
        names = [model.name for model in self.models]
        if not names:
            raise ConfigError("models", "the role has no model; give it at least one")
        refuse_duplicates("models", "model", names)
        self.routing.check_models(names)
        for model in self.models:
            if model.needs_weight_update and self.workload != "generation":
                raise ConfigError(
                    f"models.{toml_key(model.name)}.weight_source",
                    f"{model.weight_source!r} is refused: the role's workload is {self.workload!r}, and only weights "
                    'of a "generation" role are trained; it must be "static"',
                )

    @property
    def name(self) -> str:
        """The role's name."""
        return self.role

    @property
    def effective_default_model(self) -> str | None:
        """The model that serves a request naming none, or None when the request must name one."""
        return self.models[0].name if len(self.models) == 1 else self.routing.default_model
