"""The one error of configurations: a rule that is broken, and where."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ConfigError(TrimtabError, ValueError):
    """A configuration breaks a rule.

    Attributes:
        where: Where the value stands, from the outermost place inwards, such as
            ``trimtab.toml: roles.rollout.models.tiny.engines[0].capacity`` or ``--engine 10.0.0.1:30000=0``.
        problem: The value and the rule it breaks.
    """

    code: ClassVar[str] = "invalid_config"

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.where = where
        self.problem = problem


@contextmanager
def located(place: str, separator: str = ".") -> Iterator[None]:
    """Put ``place`` in front of the location of a :class:`ConfigError` raised inside."""
    try:
        yield
    except ConfigError as error:
        joined = place or error.where
        if place and error.where:
            joined = f"{place}{'' if error.where.startswith('[') else separator}{error.where}"
        raise ConfigError(joined, error.problem) from error.__cause__


def toml_key(name: str) -> str:
    """``name`` as TOML writes it in a dotted key: a model name may hold dots of its own."""
    return name if _BARE_KEY.fullmatch(name) else toml_string(name)


def toml_string(text: str) -> str:
    """``text`` as a basic string of TOML, which has the escapes of JSON's but takes no DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
