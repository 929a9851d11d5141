"""The rules of single values: each checks one and says which one is broken."""

from __future__ import annotations

import ipaddress
import math
import re

from trimtab._core import Pool, Role
from trimtab.errors import InvalidRequest
from trimtab_gateway.config.error import ConfigError

_ROLE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_USER_INFO = re.compile(r"[^\s/@\"']+@")
MAX_MODEL_NAME_BYTES = 256
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
    if not isinstance(value, str) or not value:
        raise ConfigError("", f"model name {value!r} is refused: it must be a non-empty string")
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MAX_MODEL_NAME_BYTES:
        raise ConfigError("", f"model name of {size} bytes is refused: at most {MAX_MODEL_NAME_BYTES} are allowed")
    if not value.isprintable():
        raise ConfigError("", f"model name {value!r} is refused: it holds characters that do not print")


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


def is_loopback(host: str) -> bool:
    """Whether a socket bound to ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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


def check_host(host: object, *, has_admin_key: bool) -> None:
    """Refuse an address to bind that is not one, or that opens a gateway without an admin key to other machines."""
    if not isinstance(host, str) or not host:
        raise ConfigError("host", f"{host!r} is refused: it must be an IP address or 'localhost'")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError("host", f"{host!r} is refused: it must be an IP address or 'localhost'") from None
    if not is_loopback(host) and not has_admin_key:
        raise ConfigError(
            "host",
            f"{host!r} is refused: other machines could reach it, and without an admin key whoever can connect "
            "could fence, fail and close your pools; use 127.0.0.1, or give a key in the environment "
            "(TRIMTAB_ADMIN_KEY) or in a file (admin_key_file, --admin-key-file)",
        )
