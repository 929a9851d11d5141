"""The rules of single values: each checks one and says which one is broken."""

from __future__ import annotations

import ipaddress
import math
import re
from typing import TYPE_CHECKING

from trimtab._core import Pool, Role, normalize_address
from trimtab.errors import InvalidRequest, TrimtabError
from trimtab.spec.error import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROLE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_USER_INFO = re.compile(r"[^\s/@\"']+@")
MAX_NAME_BYTES = 256
MAX_MANAGED_MODEL_NAME_BYTES = 240
MAX_COUNT = 2**32 - 1
_MICROSECOND_S = 1e-6
_YEAR_S = 365 * 86_400


def check_role_name(value: object) -> None:
    """Refuse a role name that is not one plain path segment, or that is the name of an endpoint."""
    if not isinstance(value, str) or _ROLE_NAME.fullmatch(value) is None:
        raise ConfigError(
            "",
            f"role name {value!r} is refused: use 1 to 64 lower-case letters, digits, '-' or '_', "
            "and start with a letter or digit",
        )
    try:
        # The data plane is the one judge of which names are endpoints of its own.
        Role(value, {"config": Pool("config")})
    except InvalidRequest as error:
        raise ConfigError("", str(error)) from None


def check_model_name(value: object) -> None:
    """Refuse a model name that is empty, too long, or holds characters that do not print."""
    check_printable_name("model", value)


def check_int(key: str, value: object, low: int, high: int) -> None:
    """Refuse anything but a whole number in ``low..=high``; a bool is not a number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(key, f"{value!r} is refused: it must be a whole number")
    if not low <= value <= high:
        raise ConfigError(key, f"{value} is refused: it must be between {low} and {high}")


def check_seconds(key: str, value: object) -> None:
    """Refuse anything but a finite duration in seconds of at most a year; what clocks cannot tell from 0 is 0."""
    number = as_number(key, value)
    if not math.isfinite(number) or not _MICROSECOND_S <= number <= _YEAR_S:
        bounds = f"at least 0.000001 and at most {_YEAR_S} seconds (a year)"
        raise ConfigError(key, f"{value} is refused: it must be {bounds}")


def as_number(key: str, value: object) -> float:
    """The number behind ``value``, which may be an int or a float and nothing else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(key, f"{without_user_info(repr(value))} is refused: it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(key, f"{value} is refused: it is too large") from None


def check_bool(key: str, value: object) -> None:
    """Refuse anything but true and false."""
    if not isinstance(value, bool):
        raise ConfigError(key, f"{value!r} is refused: it must be true or false")


def without_user_info(text: str) -> str:
    """``text`` with the user and password of every URL in it masked: errors and logs hold no secrets."""
    return _USER_INFO.sub("***@", text)


def check_choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse anything but one of ``choices``."""
    if value not in choices:
        raise ConfigError(
            key, f"{without_user_info(repr(value))} is refused: it must be {' or '.join(map(repr, choices))}"
        )


def check_path(key: str, value: object) -> None:
    """Refuse what cannot be the path of a file. What the file holds is looked at when the gateway starts."""
    if not isinstance(value, str) or not value:
        raise ConfigError(key, f"{value!r} is refused: it must be the path of a file")


def refuse_duplicates(where: str, what: str, names: Iterable[str]) -> None:
    """Refuse a name that is given twice: the second would hide the first."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(where, f"{what} {name!r} is given twice")
        seen.add(name)


def listed(names: Iterable[str]) -> str:
    """Names as messages list them."""
    return ", ".join(map(repr, names))


def check_string(key: str, value: object) -> None:
    """Refuse anything but a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(key, f"{value!r} is refused: it must be a non-empty string")


def check_printable_name(what: str, value: object) -> None:
    """Refuse a name that is empty, too long, or holds characters that do not print."""
    if not isinstance(value, str) or not value:
        raise ConfigError("", f"{what} name {value!r} is refused: it must be a non-empty string")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise ConfigError("", f"{what} name of {size} bytes is refused: at most {MAX_NAME_BYTES} are allowed")
    if not value.isprintable():
        raise ConfigError("", f"{what} name {value!r} is refused: it holds characters that do not print")


def check_managed_model_name(value: object) -> None:
    """Refuse what :func:`check_model_name` refuses, and a name that leaves an engine's id no place for its number."""
    check_model_name(value)
    size = len(str(value).encode("utf-8", "surrogatepass"))
    if size > MAX_MANAGED_MODEL_NAME_BYTES:
        raise ConfigError(
            "",
            f"model name of {size} bytes is refused: at most {MAX_MANAGED_MODEL_NAME_BYTES} are allowed, "
            "since the ids of its engines begin with it",
        )


def normalized_url(key: str, value: object) -> str:
    """The normalised ``http[s]://host:port`` behind ``value``. Raises :class:`ConfigError`."""
    if not isinstance(value, str):
        shown = without_user_info(repr(value))
        raise ConfigError(key, f"{shown} is refused: it must be a string like 'http://10.0.0.1:3000'")
    try:
        return normalize_address(value)[1]
    except TrimtabError as error:
        raise ConfigError(key, str(error)) from None


def check_ip(key: str, value: object) -> None:
    """Refuse what is no IP address."""
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise ConfigError(key, f"{value!r} is refused: it must be an IP address") from None
