"""What an engine's processes write: one file per process, never a pipe that somebody has to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from trimtab_manager.launch.keys import redact

_TAIL_BYTES = 64 * 1024
"""How far back the last lines are looked for; progress bars make lines that never end."""


class LogFile:
    """The log of one process, from the moment it starts. Earlier content of the file stays and is not shown.

    Args:
        path: The file; its folder is made.
        secrets: What is never shown of it.
        title: A line that separates it from earlier content.
    """

    def __init__(self, path: Path, secrets: Mapping[str, str], title: str) -> None:
        self.path = path
        self._secrets = secrets
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(self.file, f"--- {title}\n".encode())
        self._start = os.fstat(self.file).st_size

    def close(self) -> None:
        """Closes this process's descriptor, once the engine has its own."""
        os.close(self.file)

    def tail(self, lines: int) -> str:
        """The last ``lines`` lines; empty if the file is gone."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return redact("\n".join(text.splitlines()[-lines:]), self._secrets)


def log_path(folder: Path, engine_id: str, generation: int, node: int | None) -> Path:
    """``folder/policy/0.g1.log``; of a replica that spans nodes ``folder/policy/0.g1.node1.log``."""
    parts = [quote(part, safe=" ") if part.strip(".") else "_" for part in engine_id.split("/")]
    suffix = "" if node is None else f".node{node}"
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.g{generation}{suffix}.log")
