"""Where a planner puts an engine."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.spec.error import ConfigError
from trimtab.spec.frozen import assign
from trimtab.spec.rules import MAX_COUNT, check_int, check_string


@dataclass(frozen=True)
class ModelPlacement:
    """The bundles and GPUs of one engine, and the phase in which it may hold them.

    Attributes:
        pg_owner: Whose placement group the bundles are of; only the owner removes it.
        bundle_indices: Its bundles, one for each of its nodes, head first.
        gpu_ids: Its GPUs on each node; empty: whichever the bundle has.
        activation_group: Engines that hold the same GPUs in turns have one in common; None: it has its GPUs alone.
        activation_phase: The phase of the schedule in which it holds them; None: always.
    """

    pg_owner: str
    bundle_indices: tuple[int, ...]
    gpu_ids: tuple[int, ...] = ()
    activation_group: str | None = None
    activation_phase: str | None = None

    def __post_init__(self) -> None:
        check_string("pg_owner", self.pg_owner)
        for key in ("bundle_indices", "gpu_ids"):
            assign(self, **{key: _checked_indices(key, getattr(self, key))})
        if not self.bundle_indices:
            raise ConfigError("bundle_indices", "is empty: an engine has at least one bundle")
        for key in ("activation_group", "activation_phase"):
            if getattr(self, key) is not None:
                check_string(key, getattr(self, key))
        if self.activation_phase is not None and self.activation_group is None:
            raise ConfigError("activation_phase", "is refused: phases are of an activation_group; set that")


def _checked_indices(key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(key, f"{value!r} is refused: it must be a list such as [0, 1]")
    for index, entry in enumerate(value):
        check_int(f"{key}[{index}]", entry, 0, MAX_COUNT)
        if entry in value[:index]:
            raise ConfigError(f"{key}[{index}]", f"{entry} is given twice")
    return tuple(value)
