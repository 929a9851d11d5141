"""How a role finds the model and the session of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab._core import RoutingTable
from trimtab.errors import TrimtabError
from trimtab.spec.error import ConfigError, toml_key
from trimtab.spec.frozen import FrozenMapping, assign
from trimtab.spec.rules import check_bool, listed

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class RoutingSpec:
    """What a request of a role may leave unsaid, and where it says the rest.

    Attributes:
        default_model: Serves requests that name no model; a sole model is the default anyway.
        lenient_model: Accept any model name (only for a role with one model).
        route_keys: Model by route key, for requests that name no model.
        session_fields: Members of a body that may name the session when no header does.
    """

    default_model: str | None = None
    lenient_model: bool = False
    route_keys: Mapping[str, str] = field(default_factory=dict)
    session_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.default_model is not None and not isinstance(self.default_model, str):
            raise ConfigError("default_model", f"{self.default_model!r} is refused: it must be the name of a model")
        check_bool("lenient_model", self.lenient_model)
        assign(
            self,
            route_keys=_checked_route_keys(self.route_keys),
            session_fields=_checked_session_fields(self.session_fields),
        )

    def check_models(self, names: Sequence[str]) -> None:
        """Refuse a rule that means a model which the role does not have."""
        if self.default_model is not None and self.default_model not in names:
            raise ConfigError(
                "default_model", f"{self.default_model!r} is not a model of this role, which has {listed(names)}"
            )
        if self.lenient_model and len(names) > 1:
            raise ConfigError(
                "lenient_model",
                f"true is refused: it ignores the name a client sends, and this role has {listed(names)}",
            )
        for key, model in self.route_keys.items():
            where = f"route_keys.{toml_key(key)}"
            if model not in names:
                raise ConfigError(
                    where, f"{model!r} is refused: it is not a model of this role, which has {listed(names)}"
                )
            if key in names and key != model:
                raise ConfigError(
                    where, f"{model!r} is refused: {key!r} is itself a model of this role, which the key would shadow"
                )


def _checked_route_keys(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigError("route_keys", f'{value!r} is refused: it must be a table such as {{ "math" = "MODEL" }}')
    for key, model in value.items():
        where = f"route_keys.{toml_key(str(key))}"
        if not isinstance(key, str) or not isinstance(model, str) or not model:
            raise ConfigError(where, f"{model!r} is refused: it must be the name of a model")
        try:
            # The table is the one judge of what a key may be.
            RoutingTable("config", ["config"], route_keys={key: "config"})
        except TrimtabError as error:
            raise ConfigError(where, str(error)) from None
    return FrozenMapping(value)


def _checked_session_fields(value: object) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError("session_fields", f'{value!r} is refused: it must be a list such as ["session_id"]')
    try:
        RoutingTable("config", ["config"], session_fields=names)
    except TrimtabError as error:
        raise ConfigError("session_fields", str(error)) from None
    return names
