"""Peers in venvs of their own, at their pins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def installed(venv: str, pins: Sequence[str]) -> Path:
    """Bring ``.venvs/<venv>`` to its pins; nothing happens when it has them.

    Returns:
        Its folder of programs.
    """
    folder = ROOT / ".venvs" / venv
    stamp, wanted = folder / "pins.txt", "\n".join(pins)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(pins)} into {folder.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *pins], check=True)
        stamp.write_text(wanted)
    return folder / "bin"


def pins(requirements: Path) -> list[str]:
    """The ``name==version`` lines of a file."""
    return [line for line in requirements.read_text().splitlines() if line and not line.startswith("#")]
