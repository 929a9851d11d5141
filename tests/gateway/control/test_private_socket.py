"""The directory of the private socket: what killed gateways leave is removed, and nothing else."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from trimtab_gateway.control.server import remove_stale_directories

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD_S = 3600.0


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@contextmanager
def running(
    folder: Path, name: str, *, age_s: float = OLD_S, mode: int = 0o700, listens: bool = True
) -> Iterator[Path]:
    """What a gateway has while it runs, and leaves behind when it is killed."""
    directory = folder / name
    directory.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / "control"))
        if listens:
            listener.listen()
        directory.chmod(mode)
        then = time.time() - age_s
        os.utime(directory, (then, then))
        yield directory


def test_the_socket_of_a_killed_gateway_is_removed(tmp_path: Path) -> None:
    """Nobody listens on it: the directory goes."""
    with running(tmp_path, "trimtab-dead") as directory:
        pass
    remove_stale_directories()
    assert not directory.exists()


def test_what_may_be_in_use_stays(tmp_path: Path) -> None:
    """A socket somebody listens on, a young one, a directory others can read, one with more in it, another name."""
    with ExitStack() as stack:
        living = stack.enter_context(running(tmp_path, "trimtab-living"))
        young = stack.enter_context(running(tmp_path, "trimtab-young", age_s=0, listens=False))
        with running(tmp_path, "trimtab-shared", mode=0o755) as shared, running(tmp_path, "other-dead") as other:
            pass
        with running(tmp_path, "trimtab-full") as full:
            (full / "notes").write_text("mine")
            os.utime(full, (0, 0))
        link = tmp_path / "trimtab-link"
        link.symlink_to(full)
        remove_stale_directories()
        assert all(path.exists() for path in (living, young, shared, other, full, link))
