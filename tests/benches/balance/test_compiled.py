"""The simulation as machine code."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from benches.balance.compiled import compile_into
from benches.kit.venv import ROOT

RUN = """
import sys
sys.path[:0] = sys.argv[1:]
from benches.balance import command, simulate
command.smoke()
print(simulate.__file__)
"""

HEADER = Path(sysconfig.get_path("include")) / "Python.h"


def smoke(*folders: Path) -> tuple[str, str]:
    """What a small run of every policy says, and which simulation it was."""
    command = [sys.executable, "-c", RUN, *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    said, _, module = done.stdout.rstrip().rpartition("\n")
    return said, module


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("cc") and HEADER.exists()), reason="no C compiler, or no headers of Python")
def test_the_compiled_simulation_says_the_same(tmp_path: Path) -> None:
    """To the last digit that is printed, and it is the compiled one that says it."""
    folder = tmp_path / "compiled"
    assert compile_into(folder) is None
    said, module = smoke(folder)
    assert Path(module).is_relative_to(folder)
    expected, source = smoke()
    assert Path(source).is_relative_to(ROOT / "benches")
    assert said == expected
    assert "trimtab" in said


def test_what_cannot_be_compiled_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a line, and nothing is left that looks like a result."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert compile_into(tmp_path / "compiled")
    assert list(tmp_path.iterdir()) == []
