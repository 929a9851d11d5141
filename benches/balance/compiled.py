"""The simulation as machine code: mypyc, a part of mypy, makes it from the same sources, and it takes half of the time.

``benches`` is a namespace package: a folder early on the path, with the modules in compiled form, goes before the
sources.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benches.kit.venv import ROOT

PACKAGE = Path("benches") / "balance"
MODULES = ("cache", "engine", "simulate")


def prefer() -> None:
    """Have the compiled modules imported from now on; without a C compiler say so, and leave the sources.

    None of them may have been imported before. What was compiled stays in ``.cache`` until the sources change.
    """
    # All of them: what is compiled relies on the types of what it works on.
    content = b"".join(source.read_bytes() for source in sorted((ROOT / PACKAGE).rglob("*.py")))
    digest = hashlib.sha256(sys.version.encode() + content).hexdigest()
    folder = ROOT / ".cache" / "balance" / digest[:16]
    if not folder.exists():
        print("compiling the simulation", flush=True)
        if problem := compile_into(folder):
            print(f"it runs as Python, and takes twice as long: {problem}", flush=True)
            return
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def compile_into(folder: Path) -> str | None:
    """Make the folder, whole or not at all. Returns what went wrong, in a line."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copytree(ROOT / PACKAGE, work / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "__main__.py"))
        # mypyc wants packages; where they are used they must be none.
        for package in (work / PACKAGE.parent, work / PACKAGE, work / PACKAGE / "policies"):
            (package / "__init__.py").touch()
        files = [str(PACKAGE / f"{module}.py") for module in MODULES]
        made = subprocess.run(
            [sys.executable, "-m", "mypyc", *files], cwd=work, check=False, capture_output=True, text=True
        )
        if made.returncode:
            last = (made.stderr or made.stdout).strip().rpartition("\n")[2]
            return f"mypyc ended with {made.returncode}: {last or 'without a word'}"
        result = work / "result"
        for library in [*work.glob("*.so"), *(work / PACKAGE).glob("*.so")]:
            target = result / library.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            library.rename(target)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(result, folder)
    return None
