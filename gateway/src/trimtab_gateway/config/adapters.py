"""The adapter of a model: which, and what it adds to requests."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from trimtab._core import Pool, Role
from trimtab.errors import InvalidRequest
from trimtab_gateway.config.error import ConfigError
from trimtab_gateway.config.rules import check_choice

ADAPTERS = ("genrm",)
_OBJECTS = ("sampling_defaults", "chat_template_kwargs")

Genrm = tuple[str, str | None]
"""``sampling_defaults`` and ``chat_template_kwargs`` as the data plane takes them."""


def checked_adapter(
    adapter: object, sampling_defaults: object, chat_template_kwargs: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of the two tables, which nobody else can change.

    Raises:
        ConfigError: A value breaks a rule.
    """
    tables = dict(zip(_OBJECTS, (sampling_defaults, chat_template_kwargs), strict=True))
    for key, value in tables.items():
        if not isinstance(value, Mapping):
            raise ConfigError(key, f"{value!r} is refused: it must be a table such as {{temperature = 0.2}}")
        if value and adapter is None:
            raise ConfigError(key, 'is refused: it belongs to an adapter; add adapter = "genrm"')
    if adapter is not None:
        check_choice("adapter", adapter, ADAPTERS)
    defaults, kwargs = (copy.deepcopy(dict(value)) for value in tables.values() if isinstance(value, Mapping))
    try:
        # The data plane is the one judge of which parameters a judge may be asked with.
        Role("config", {"config": Pool("config")}, genrm={"config": genrm(defaults, kwargs)})
    except InvalidRequest as error:
        key, separator, problem = str(error).partition(": ")
        raise ConfigError(key if separator else "", problem or key) from None
    return defaults, kwargs


def genrm(sampling_defaults: Mapping[str, Any], chat_template_kwargs: Mapping[str, Any]) -> Genrm:
    """The two tables as JSON. Raises :class:`ConfigError` when JSON has no word for a value."""
    defaults = _json("sampling_defaults", sampling_defaults)
    kwargs = _json("chat_template_kwargs", chat_template_kwargs)
    return defaults, kwargs if chat_template_kwargs else None


def _json(key: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(key, f"is refused: {error}") from None
