"""The adapter of a model: which, and what it adds to requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab._core import Pool, Role
from trimtab.errors import InvalidRequest
from trimtab.spec.error import ConfigError
from trimtab.spec.frozen import assign, frozen_table, thaw
from trimtab.spec.rules import check_choice

ADAPTERS = ("genrm",)
_TABLES = ("sampling_defaults", "chat_template_kwargs")

Genrm = tuple[str, str | None]
"""``sampling_defaults`` and ``chat_template_kwargs`` as the data plane takes them."""


@dataclass(frozen=True, kw_only=True)
class AdapterSpec:
    """What stands between a client's ``/generate`` and the engine's.

    Attributes:
        adapter: ``genrm``: ``/generate`` takes messages, and answers ``{"response": text}``.
        sampling_defaults: Of the adapter, under the request's own ``sampling_params``.
        chat_template_kwargs: Of the adapter, for the chat template.
    """

    adapter: Literal["genrm"] | None = None
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in _TABLES:
            table = frozen_table(key, getattr(self, key), "{temperature = 0.2}")
            if table and self.adapter is None:
                raise ConfigError(key, 'is refused: it belongs to an adapter; add adapter = "genrm"')
            assign(self, **{key: table})
        if self.adapter is not None:
            check_choice("adapter", self.adapter, ADAPTERS)
        try:
            # The data plane is the one judge of which parameters a judge may be asked with.
            Role("config", {"config": Pool("config")}, genrm={"config": self.genrm})
        except InvalidRequest as error:
            key, separator, problem = str(error).partition(": ")
            raise ConfigError(key if separator else "", problem or key) from None

    @property
    def genrm(self) -> Genrm:
        """The two tables as JSON."""
        kwargs = json.dumps(thaw(self.chat_template_kwargs)) if self.chat_template_kwargs else None
        return json.dumps(thaw(self.sampling_defaults)), kwargs
