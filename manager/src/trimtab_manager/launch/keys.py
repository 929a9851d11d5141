"""Keys on their way to an engine: never on a command line, where every user of the host reads them, nor in an error.

SGLang takes its keys as flags or from a configuration file (``--config``), not from the environment, and the file has
to have a name that ends in ``.yaml``, which no inherited descriptor has. So they go into a file that only this user can
read. The guard of the process makes it and removes it, when the server has started, or when its manager is gone.
SGLang prints its arguments, keys included, into its own log: log files are readable by their owner only, and what is
shown of them is redacted.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab_manager.launch.types import LaunchRequest

SECRET_FLAGS = ("api-key", "admin-api-key", "ssl-keyfile-password")
"""Flags of SGLang whose value is a secret."""
REDACTED = "***"


def secrets_of(request: LaunchRequest) -> dict[str, str]:
    """The secrets among a request's arguments, by flag."""
    found = {} if request.api_key is None else {"api-key": request.api_key}
    for name, value in request.server_args.items():
        flag = flag_name(name)
        if flag in SECRET_FLAGS and value is not None:
            found[flag] = str(value)
    return found


def flag_name(name: str) -> str:
    """``--admin_api_key`` and ``admin-api-key`` are one flag."""
    return name.removeprefix("--").replace("_", "-")


def without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What may be on a command line, by flag."""
    named = {flag_name(name): value for name, value in arguments.items()}
    return {flag: value for flag, value in named.items() if flag not in SECRET_FLAGS}


def redact(text: str, secrets: Mapping[str, str]) -> str:
    """``text`` without the secrets."""
    for secret in filter(None, secrets.values()):
        text = text.replace(secret, REDACTED)
    return text


@dataclass(frozen=True)
class KeyFile:
    """A file that a guard is to make for the time of a start.

    Attributes:
        path: Where; nothing is there yet.
        content: What is in it.
    """

    path: str
    content: bytes = field(repr=False)


def key_file(request: LaunchRequest) -> KeyFile | None:
    """A file for SGLang's ``--config`` with the request's secrets; None if it has none."""
    secrets = secrets_of(request)
    if not secrets or request.engine != "sglang":
        return None
    lines = (f"{flag}: {json.dumps(value)}\n" for flag, value in secrets.items())  # JSON is YAML
    path = Path(tempfile.gettempdir(), f"trimtab-{uuid.uuid4().hex}.yaml")
    return KeyFile(str(path), "".join(lines).encode())
