#!/usr/bin/env python3
"""Create the environment of the tests on a real Ray cluster: a venv of its own, with Ray and pytest.

usage: install.py [--venv FOLDER] [--python PYTHON] [--check]

Idempotent: a stamp in the venv holds a hash of the pins, and while it matches, nothing is touched. The packages under
test are not installed: the tests run with the checkout on PYTHONPATH, whose extension fits every Python from 3.10.
"""

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_VENV = HERE.parents[1] / ".venvs" / "ray"
PINS = HERE / "requirements.txt"
STAMP = "trimtab-pins.sha256"
ATTEMPTS = 3


def is_current(venv: Path) -> bool:
    """Whether ``venv`` was completed with exactly these pins."""
    stamp = venv / STAMP
    return (venv / "bin" / "python").exists() and stamp.exists() and stamp.read_text().strip() == digest()


def digest() -> str:
    """SHA-256 of the pins, in hex."""
    return hashlib.sha256(PINS.read_bytes()).hexdigest()


def install(venv: Path, python: str) -> None:
    """Bring ``venv`` to the pins; ``python`` creates it. Raises ``CalledProcessError`` when pip goes on failing."""
    if is_current(venv):
        return
    interpreter = venv / "bin" / "python"
    if not interpreter.exists():
        say(f"creating {venv}")
        subprocess.run([python, "-m", "venv", venv], check=True)
    say("installing Ray and pytest")
    for left in reversed(range(ATTEMPTS)):
        pip: list[str | Path] = [
            interpreter,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            PINS,
        ]
        if subprocess.run(pip, check=left == 0).returncode == 0:
            break
        say("pip failed; once more")
    (venv / STAMP).write_text(digest() + "\n")


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(f"ray: {text}\n")


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description="Create the environment of the tests on a real Ray cluster.")
    parser.add_argument("--venv", type=Path, default=DEFAULT_VENV, help="default: .venvs/ray in the repository")
    parser.add_argument("--python", default=sys.executable, help="creates the venv; default: the running interpreter")
    parser.add_argument("--check", action="store_true", help="install nothing; fail unless the venv has these pins")
    arguments = parser.parse_args()
    if arguments.check and not is_current(arguments.venv):
        sys.exit(f"{arguments.venv} does not have the present pins: run `python3 tests/ray_cluster/install.py`")
    started = time.monotonic()
    install(arguments.venv, arguments.python)
    say(f"ready in {time.monotonic() - started:.0f} s: {arguments.venv}")


if __name__ == "__main__":
    main()
