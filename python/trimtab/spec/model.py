"""A model that the manager serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimtab.spec.adapter import AdapterSpec
from trimtab.spec.error import ConfigError, located
from trimtab.spec.frozen import assign, frozen_strings
from trimtab.spec.group import EngineGroupSpec
from trimtab.spec.pool import PoolSpec
from trimtab.spec.rules import (
    check_bool,
    check_choice,
    check_managed_model_name,
    check_string,
    normalized_url,
    refuse_duplicates,
)

WeightSource = Literal["static", "trainer", "dcs"]
RouteMode = Literal["direct", "sglang_router"]


@dataclass(frozen=True)
class InferenceModelSpec(PoolSpec, AdapterSpec):
    """One served model: what it is, where its weights come from, and the engines that hold it.

    Attributes:
        name: The name clients send as ``model``.
        model_path: Path or hub name from which its engines load.
        engine_groups: Its engines; each group has a layout of its own.
        weight_source: ``static``: as loaded, for ever; ``trainer``: a trainer pushes new ones; ``dcs``: they are
            fetched from a distributed checkpoint store.
        route_mode: ``direct``: requests go straight to engines; ``sglang_router``: all of them to ``router_url``.
        router_url: The sglang-router of that mode.
        env_vars: Environment of its engines' processes.
        elastic_enabled: Engines that come while it runs receive the trainer's weights.
        fault_tolerance_enabled: A dead engine is replaced by a new generation.
    """

    name: str
    model_path: str
    engine_groups: tuple[EngineGroupSpec, ...]
    weight_source: WeightSource = "static"
    route_mode: RouteMode = "direct"
    router_url: str | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict)
    elastic_enabled: bool = False
    fault_tolerance_enabled: bool = True

    def __post_init__(self) -> None:
        check_managed_model_name(self.name)
        PoolSpec.__post_init__(self)
        AdapterSpec.__post_init__(self)
        check_string("model_path", self.model_path)
        check_choice("weight_source", self.weight_source, ("static", "trainer", "dcs"))
        check_choice("route_mode", self.route_mode, ("direct", "sglang_router"))
        check_bool("elastic_enabled", self.elastic_enabled)
        check_bool("fault_tolerance_enabled", self.fault_tolerance_enabled)
        assign(
            self,
            engine_groups=tuple(self.engine_groups),
            env_vars=frozen_strings("env_vars", self.env_vars, '{NCCL_DEBUG = "WARN"}'),
        )
        if not self.engine_groups:
            raise ConfigError("engine_groups", "the model has no engine group; give it at least one")
        refuse_duplicates("engine_groups", "engine group", [group.name for group in self.engine_groups])
        self._check_router()
        if not self.needs_weight_update:
            self._check_static()
        for index, group in enumerate(self.engine_groups):
            with located(f"engine_groups[{index}]"):
                self._check_group(index, group)

    def _check_router(self) -> None:
        if self.router_url is not None:
            assign(self, router_url=normalized_url("router_url", self.router_url))
        if self.needs_router and self.router_url is None:
            raise ConfigError("router_url", 'is missing: with route_mode = "sglang_router" it says where the router is')
        if not self.needs_router and self.router_url is not None:
            raise ConfigError("router_url", 'is refused: nobody would ask it; set route_mode = "sglang_router"')

    def _check_static(self) -> None:
        for key, reason in (
            ("elastic_enabled", "an engine that comes later could be given no weights"),
            ("versioned", "nobody ever publishes a version of them, so it would never serve"),
        ):
            if getattr(self, key):
                raise ConfigError(key, f'true is refused: weight_source is "static", and {reason}')

    def _check_group(self, index: int, group: EngineGroupSpec) -> None:
        if group.worker_type != "regular" and not self.needs_router:
            raise ConfigError(
                "worker_type",
                f"{group.worker_type!r} is refused: requests go straight to engines, and neither half of a "
                'prefill/decode pair can serve one alone; set route_mode = "sglang_router"',
            )
        if self.needs_weight_update and not group.lifecycle:
            raise ConfigError(
                "lifecycle",
                "false is refused: the model's weights are updated, and such engines would go on with the old ones",
            )
        for other_index, other in enumerate(self.engine_groups[:index]):
            for position, url in enumerate(group.urls):
                if url in other.urls:
                    raise ConfigError(
                        f"urls[{position}]", f"{url} is refused: engine_groups[{other_index}] has the same address"
                    )

    @property
    def needs_weight_update(self) -> bool:
        """Whether its weights are replaced while it runs. A model that does not refuses every update."""
        return self.weight_source != "static"

    @property
    def needs_dcs(self) -> bool:
        """Whether its weights come from a distributed checkpoint store."""
        return self.weight_source == "dcs"

    @property
    def needs_router(self) -> bool:
        """Whether it is reached through an sglang-router."""
        return self.route_mode == "sglang_router"

    def engine_id(self, number: int) -> str:
        """The id of an engine: numbers count from 0 over all groups, in their order."""
        return f"{self.name}/{number}"
