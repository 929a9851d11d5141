"""Keys: where they come from, and the rule they keep. No message, log or representation has the text of one.

A key stands in a file or in an environment variable, never on a command line (every user of the machine can read those
in the process list) and never in the configuration file (which is shared, reviewed and committed). The file wins.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.spec import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("client_key", "admin_key", "engine_key")
"""The keys of :class:`GatewayConfig`. Each has a ``..._file`` in ``[gateway]`` and a ``TRIMTAB_...`` variable."""


def keys_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that are set there; an empty variable counts as unset."""
    found = {key: environment.get(variable_of(key), "") for key in KEYS}
    return {key: value for key, value in found.items() if value}


def with_keys_of_files(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """``knobs`` of a gateway with every ``..._file`` replaced by the key in that file.

    Raises:
        ConfigError: A file cannot be read, or what it holds is no key.
    """
    resolved = dict(knobs)
    for key in KEYS:
        path = resolved.pop(f"{key}_file", None)
        if path is not None:
            resolved[key] = _read(f"{key}_file", path)
    return resolved


def check_key(key: str, value: object) -> None:
    """Refuse what cannot be sent as a bearer token."""
    if not isinstance(value, str) or not value or not all("!" <= character <= "~" for character in value):
        raise ConfigError(
            key, "the key is refused (its text is not shown): it must be one or more visible ASCII characters"
        )


def variable_of(key: str) -> str:
    """The environment variable of a key."""
    return f"TRIMTAB_{key.upper()}"


def _read(where: str, path: object) -> str:
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(where, "is refused: it must be the path of a file that holds the key")
    try:
        text = Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(where, f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # No cause: its own representation has the bytes of the file.
        raise ConfigError(where, f"{path} is refused: it is not text ({type(error).__name__})") from None
    check_key(where, text)
    return text
