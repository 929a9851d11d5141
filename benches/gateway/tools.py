"""What the bench runs and does not bring along: Debian's haproxy, nginx and wrk, and the LLM routers in a venv."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from benches.kit.venv import installed, pins

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_DEBIAN = {"haproxy": "haproxy", "nginx": "nginx-light", "wrk": "wrk"}


class MissingToolError(Exception):
    """A program that the bench needs is not installed."""


def install(distribution: str) -> Path:
    """Bring a distribution to its pin, in a venv of its own: two of the routers install the same command.

    Returns:
        The venv's folder of programs.
    """
    return installed(f"bench-gateway/{distribution}", [pin for pin in pins(REQUIREMENTS) if _name(pin) == distribution])


def _name(pin: str) -> str:
    return pin.partition("==")[0]


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
    peers = [pin for pin in pins(REQUIREMENTS) if _name(pin) != "matplotlib"]
    haproxy = subprocess.run([program("haproxy"), "-v"], capture_output=True, text=True, check=True).stdout
    nginx = subprocess.run([program("nginx"), "-v"], capture_output=True, text=True, check=True).stderr
    debian = [f"haproxy {_number(haproxy)}", f"nginx {_number(nginx)}"]
    return ", ".join([f"trimtab {version('trimtab')}", *(pin.replace("==", " ") for pin in peers), *debian])


def _number(text: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found.group() if found else "?"
