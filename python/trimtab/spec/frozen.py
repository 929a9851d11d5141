"""Deep immutability: mappings and lists as values that nobody can change, hash, compare and pickle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, final

from trimtab.spec.error import ConfigError, located, toml_key

V = TypeVar("V")


@final
class FrozenMapping(Mapping[str, V]):
    """A mapping that nobody can change. It equals the plain data it was made of, hashes, and pickles."""

    __slots__ = ("_entries",)
    _entries: dict[str, V]

    def __init__(self, entries: Mapping[str, V]) -> None:
        object.__setattr__(self, "_entries", dict(entries))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a frozen mapping cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: a frozen mapping cannot be changed")

    def __getitem__(self, key: str) -> V:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        # Also to the plain data that it was made of, in which lists were no tuples yet.
        return isinstance(other, Mapping) and bool(thaw(self) == thaw(other))

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return repr(self._entries)

    def __reduce__(self) -> tuple[type[FrozenMapping[V]], tuple[dict[str, V]]]:
        return FrozenMapping, (dict(self),)


def freeze(value: object) -> Any:
    """``value`` as JSON data that cannot be changed: tables as :class:`FrozenMapping`, lists as tuples.

    Raises:
        ConfigError: JSON has no word for a part of it; the message says where inside ``value`` it stands.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError("", f"{value} is refused: JSON has no such number")
        return value
    if isinstance(value, Mapping):
        frozen = {}
        for name, entry in value.items():
            if not isinstance(name, str):
                raise ConfigError("", f"the key {name!r} is refused: JSON has strings for keys")
            with located(toml_key(name)):
                frozen[name] = freeze(entry)
        return FrozenMapping(frozen)
    if isinstance(value, list | tuple):
        entries = []
        for index, entry in enumerate(value):
            with located(f"[{index}]"):
                entries.append(freeze(entry))
        return tuple(entries)
    raise ConfigError("", f"{value!r} is refused: JSON has no {type(value).__name__}")


def thaw(value: Any) -> Any:
    """``value`` with plain dicts and lists, as ``json.dumps`` and others that ask for those want it."""
    if isinstance(value, Mapping):
        return {key: thaw(entry) for key, entry in value.items()}
    return [thaw(entry) for entry in value] if isinstance(value, list | tuple) else value


def frozen_table(key: str, value: object, example: str) -> FrozenMapping[Any]:
    """A table of JSON data that cannot be changed. Raises :class:`ConfigError`."""
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"{value!r} is refused: it must be a table such as {example}")
    try:
        frozen: FrozenMapping[Any] = freeze(value)
    except ConfigError as error:
        raise ConfigError(key, str(error)) from None
    return frozen


def frozen_strings(key: str, value: object, example: str) -> FrozenMapping[str]:
    """A table of strings that cannot be changed. Raises :class:`ConfigError`."""
    table = frozen_table(key, value, example)
    for name, entry in table.items():
        if not isinstance(entry, str):
            raise ConfigError(f"{key}.{toml_key(name)}", f"{entry!r} is refused: it must be a string, as in {example}")
    return table


def assign(instance: object, **values: object) -> None:
    """Set fields of a frozen dataclass from within its ``__post_init__``: checked copies of what was given."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
