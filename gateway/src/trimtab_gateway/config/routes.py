"""The rules of routing: what stands in ``route_keys``, ``router_url`` and ``session_fields``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trimtab._core import RoutingTable, normalize_address
from trimtab.errors import TrimtabError
from trimtab_gateway.config.error import ConfigError, toml_key
from trimtab_gateway.config.rules import without_user_info

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_route_keys(value: object, models: Sequence[str]) -> dict[str, str]:
    """A copy of ``value``; refuse a key that is no key, or that means a model that is not served."""
    if not isinstance(value, Mapping):
        raise ConfigError("route_keys", f'{value!r} is refused: it must be a table such as {{ "math" = "MODEL" }}')
    for key, model in value.items():
        where = f"route_keys.{toml_key(str(key))}"
        if not isinstance(key, str) or not isinstance(model, str):
            raise ConfigError(where, f"{model!r} is refused: it must be the name of a model")
        if model not in models:
            raise ConfigError(
                where, f"{model!r} is refused: it is not a model of this role, which has {', '.join(map(repr, models))}"
            )
        try:
            # The table is the one judge of what a key may be.
            RoutingTable("config", models, route_keys={key: model})
        except TrimtabError as error:
            raise ConfigError(where, str(error)) from None
    return dict(value)


def check_session_fields(value: object) -> tuple[str, ...]:
    """``value`` as a tuple; refuse a name that is none of a session field."""
    names = tuple(value) if isinstance(value, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError("session_fields", f'{value!r} is refused: it must be a list such as ["session_id"]')
    try:
        RoutingTable("config", ["config"], session_fields=names)
    except TrimtabError as error:
        raise ConfigError("session_fields", str(error)) from None
    return names


def check_router_url(value: object) -> str:
    """The normalised URL of a router."""
    if not isinstance(value, str):
        shown = without_user_info(repr(value))
        raise ConfigError("router_url", f"{shown} is refused: it must be a string like 'http://10.0.0.1:3000'")
    try:
        return normalize_address(value)[1]
    except TrimtabError as error:
        raise ConfigError("router_url", str(error)) from None
