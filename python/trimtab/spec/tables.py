"""Reading tables: what a file must look like before its values are looked at."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.spec.error import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = Mapping[str, Any]


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file. Raises :class:`ConfigError` when it cannot be read or is no TOML."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError("", f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("", f"is not UTF-8 text (byte {error.start})") from error
    return parse_toml(text)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML document. Raises :class:`ConfigError`."""
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:
        # Beside tomllib's own error, what int() says to a number of thousands of digits.
        raise ConfigError("", f"is not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError("", "is not valid TOML: it is nested too deeply") from error
    return table


def as_table(value: object) -> Table:
    """``value``, when it is a table. Raises :class:`ConfigError`."""
    if not isinstance(value, Mapping):
        raise ConfigError("", f"{value!r} is refused: it must be a table")
    return value


def refuse_unknown(table: Table, known: Iterable[str]) -> None:
    """Refuse a key that means nothing, naming the nearest one that does."""
    names = tuple(known)
    for key in table:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(sorted(names))}"
            raise ConfigError(key, f"unknown key; {hint}")


def refuse_missing(table: Table, required: Iterable[str]) -> None:
    """Refuse a table without a key that has no default."""
    for key in required:
        if key not in table:
            raise ConfigError(key, "is missing")


def fields_of(kind: type) -> tuple[str, ...]:
    """The keys of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(kind))
