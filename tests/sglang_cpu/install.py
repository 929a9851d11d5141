#!/usr/bin/env python3
"""Create the environment of the real-SGLang tests: a venv of its own and two tiny models.

usage: install.py [--venv FOLDER] [--models FOLDER] [--python PYTHON] [--check]

Idempotent. A stamp in the venv holds a hash of the pins; while it matches, nothing is touched and the call takes a
fraction of a second. Without a matching stamp the installed versions are compared with the pins first, so that an
environment made by hand, or one whose installation was interrupted, is completed and not rebuilt. Needs plain venv and
pip, and an index with the pinned versions.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
DEFAULT_VENV = REPOSITORY / ".venvs" / "sglang"
DEFAULT_MODELS = REPOSITORY / ".cache" / "models"
TORCH_PINS = HERE / "requirements-torch.txt"
PINS = HERE / "requirements.txt"
MODEL_SCRIPT = HERE / "make_tiny_model.py"
STAMP = "trimtab-pins.sha256"
SEEDS = (0, 1)
# numpy and ipython at the pinned versions need it.
OLDEST_PYTHON = (3, 11)

# Printed by the venv's own interpreter: {"normalised-name": "version"} of everything it has.
LIST_INSTALLED = """
import importlib.metadata, json, re
names = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps(names))
"""


def digest(*files: Path) -> str:
    """SHA-256 over the contents of ``files``, in hex."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    return total.hexdigest()


def read_pins(file: Path) -> dict[str, str]:
    """``{normalised name: version}`` of a file of ``name==version`` lines and comments."""
    pins = {}
    for line in file.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            name, _, version = text.partition("==")
            pins[name.replace("_", "-").replace(".", "-").lower()] = version
    return pins


def interpreter(venv: Path) -> Path:
    """The interpreter of ``venv``."""
    return venv / "bin" / "python"


def missing_pins(venv: Path, file: Path) -> list[str]:
    """The pins of ``file`` that ``venv`` does not have at that version. A local version (``+cpu``) counts as equal."""
    listing = subprocess.run([interpreter(venv), "-c", LIST_INSTALLED], check=True, capture_output=True, text=True)
    installed: dict[str, str] = json.loads(listing.stdout)
    return [
        f"{name}=={version}"
        for name, version in read_pins(file).items()
        if installed.get(name, "").partition("+")[0] != version
    ]


def is_current(venv: Path) -> bool:
    """Whether ``venv`` was completed with exactly these pins."""
    stamp = venv / STAMP
    return interpreter(venv).exists() and stamp.exists() and stamp.read_text().strip() == digest(TORCH_PINS, PINS)


def install(venv: Path, python: str) -> None:
    """Bring ``venv`` to the pins; ``python`` creates it. Raises ``CalledProcessError`` when pip fails."""
    if is_current(venv):
        return
    if not interpreter(venv).exists():
        version = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"], check=True, capture_output=True, text=True
        )
        if tuple(map(int, version.stdout.split())) < OLDEST_PYTHON:
            wanted = ".".join(map(str, OLDEST_PYTHON))
            sys.exit(f"{python} is Python {version.stdout.strip()}: the SGLang pins need {wanted}; pass --python")
        say(f"creating {venv}")
        subprocess.run([python, "-m", "venv", venv], check=True)
    pip: list[str | Path] = [interpreter(venv), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if missing_pins(venv, TORCH_PINS):
        say("installing torch (the CUDA build is large; it takes some minutes)")
        subprocess.run([*pip, "-r", TORCH_PINS], check=True)
    if missing := missing_pins(venv, PINS):
        say(f"installing {len(missing)} pinned packages")
        subprocess.run([*pip, "--no-deps", "-r", PINS], check=True)
    (venv / STAMP).write_text(digest(TORCH_PINS, PINS) + "\n")


def make_model(venv: Path, models: Path, seed: int) -> Path:
    """The folder of the model with ``seed``, made by the venv's interpreter unless it is there and current."""
    folder = models / f"llama-s{seed}"
    stamp = folder / "recipe.sha256"
    recipe = digest(MODEL_SCRIPT)
    if stamp.exists() and stamp.read_text().strip() == recipe:
        return folder
    models.mkdir(parents=True, exist_ok=True)
    # Built aside and renamed, so that an interrupted run leaves no half model behind.
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=models))
    try:
        subprocess.run([interpreter(venv), MODEL_SCRIPT, draft, "--seed", str(seed)], check=True)
        (draft / stamp.name).write_text(recipe + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def make_models(venv: Path, models: Path) -> list[Path]:
    """One model per seed in ``SEEDS``, in that order."""
    return [make_model(venv, models, seed) for seed in SEEDS]


def say(text: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(f"sglang: {text}\n")


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description="Create the environment of the real-SGLang tests.")
    parser.add_argument("--venv", type=Path, default=DEFAULT_VENV, help="default: .venvs/sglang in the repository")
    parser.add_argument("--models", type=Path, default=DEFAULT_MODELS, help="default: .cache/models in the repository")
    parser.add_argument("--python", default=sys.executable, help="creates the venv; default: the running interpreter")
    parser.add_argument("--check", action="store_true", help="install nothing; fail unless the venv has these pins")
    arguments = parser.parse_args()
    if arguments.check and not is_current(arguments.venv):
        sys.exit(f"{arguments.venv} does not have the present pins: run `python3 tests/sglang_cpu/install.py`")
    started = time.monotonic()
    install(arguments.venv, arguments.python)
    make_models(arguments.venv, arguments.models)
    say(f"ready in {time.monotonic() - started:.0f} s: {arguments.venv}, models in {arguments.models}")


if __name__ == "__main__":
    main()
