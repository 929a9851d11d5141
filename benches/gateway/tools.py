"""What the bench runs and does not bring along: Debian's haproxy, nginx and wrk, and the LLM routers in a venv."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VENVS = ROOT / ".venvs" / "bench-gateway"
_DEBIAN = {"haproxy": "haproxy", "nginx": "nginx-light", "wrk": "wrk"}


class MissingToolError(Exception):
    """A program that the bench needs is not installed."""


def install(distribution: str) -> Path:
    """Bring a distribution to its pin, in a venv of its own: two of the routers install the same command.

    Returns:
        The venv's folder of programs.
    """
    venv, pin = VENVS / distribution, _pins()[distribution]
    stamp = venv / "pin.txt"
    if not stamp.exists() or stamp.read_text() != pin:
        print(f"installing {pin} into {venv.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, pin], check=True)
        stamp.write_text(pin)
    return venv / "bin"


def _pins() -> dict[str, str]:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[0]: line for line in lines}


def program(name: str) -> str:
    """Path of a program from Debian.

    Raises:
        MissingToolError: It is not installed; the message says how to install all of them.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise MissingToolError(f"{name} is not installed: apt-get install {' '.join(_DEBIAN.values())}")
    return found


def versions() -> str:
    """Versions of everything that is compared, in one line."""
    pins = [pin for name, pin in _pins().items() if name != "matplotlib"]
    haproxy = subprocess.run([program("haproxy"), "-v"], capture_output=True, text=True, check=True).stdout
    nginx = subprocess.run([program("nginx"), "-v"], capture_output=True, text=True, check=True).stderr
    debian = [f"haproxy {_number(haproxy)}", f"nginx {_number(nginx)}"]
    return ", ".join([f"trimtab {version('trimtab')}", *(pin.replace("==", " ") for pin in pins), *debian])


def _number(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found.group() if found else "?"
