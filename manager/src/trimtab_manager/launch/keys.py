"""Keys on their way to an engine: never on a command line, where every user of the host reads them, nor in an error.

SGLang takes its keys as flags or from a configuration file (``--config``), not from the environment. So they go into a
file that only this user can read and that is gone when the server has started. SGLang prints its arguments, keys
included, into its own log: log files are readable by their owner only, and what is shown of them is redacted.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def key_file(request: LaunchRequest) -> Iterator[str | None]:
    """A file for SGLang's ``--config`` with the request's secrets, while the block runs; None if it has none."""
    secrets = secrets_of(request)
    if not secrets or request.engine != "sglang":
        yield None
        return
    descriptor, name = tempfile.mkstemp(prefix="trimtab-", suffix=".yaml")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{flag}: {json.dumps(value)}\n" for flag, value in secrets.items())  # JSON is YAML
        yield name
    finally:
        Path(name).unlink(missing_ok=True)
