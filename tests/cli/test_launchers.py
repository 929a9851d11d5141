"""Where the logs of engines go: what ``trimtab up`` makes, and what it says when there is no place."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from trimtab.cli.launchers import log_folder
from trimtab.spec import fleet_from_table
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.spec import FleetSpec


def fleet(log_dir: Path | None) -> FleetSpec:
    """One simulated engine."""
    group = {"name": "main", "engine": "sim"}
    model = {"model_path": "sim://weights/0", "engine_groups": [group]}
    manager = {} if log_dir is None else {"log_dir": str(log_dir)}
    return fleet_from_table({"manager": manager, "roles": {"rollout": {"models": {"policy": model}}}})


def test_a_folder_of_our_own_is_gone_unless_it_was_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that fails leaves nothing; logs stay for whoever asks why an engine died."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with log_folder(fleet(None)) as folder:
        assert folder.parent == tmp_path
    assert not folder.exists()
    with log_folder(fleet(None)) as folder:
        (folder / "0.g1.log").touch()
    assert folder.exists()


def test_a_folder_of_the_file_is_made_and_stays(tmp_path: Path) -> None:
    """Whether it was used or not."""
    with log_folder(fleet(tmp_path / "a" / "b")) as folder:
        assert list(folder.iterdir()) == []
    assert folder.is_dir()


def test_no_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=r"\[manager\] log_dir = '.*/file' cannot be written to: .*exists"):
        log_folder(fleet(tmp_path / "file")).__enter__()
