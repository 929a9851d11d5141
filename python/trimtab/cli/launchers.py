"""The launchers that a fleet needs, made from its ``[manager]`` table."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.spec import FleetSpec
    from trimtab_manager.launch.types import Launcher, ProgressListener


@contextmanager
def log_folder(fleet: FleetSpec) -> Iterator[Path]:
    """Where the logs of its engines go; made when it is not there. One of our own that nobody used is gone afterwards.

    Raises:
        LaunchError: There can be none.
    """
    from trimtab_manager.launch.types import LaunchError

    chosen = fleet.manager.log_dir
    try:
        folder = Path(tempfile.mkdtemp(prefix="trimtab-") if chosen is None else chosen)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        place = "a folder for temporary files (TMPDIR)" if chosen is None else f"[manager] log_dir = {chosen!r}"
        raise LaunchError(f"the logs of engines have no place: {place} cannot be written to: {error}") from error
    try:
        yield folder
    finally:
        if chosen is None:
            with suppress(OSError):  # there are logs in it
                folder.rmdir()


def launchers_of(fleet: FleetSpec, folder: Path, progress: ProgressListener) -> dict[str, Launcher]:
    """A launcher for each name that an engine group uses.

    Args:
        fleet: The fleet.
        folder: Where the logs of engines go.
        progress: Told how far the start of an engine is.

    Raises:
        LaunchError: Ray is asked for and not installed, or the router could not reach the engines.
    """
    manager = fleet.manager
    told: dict[str, Any] = {"progress": progress, "progress_interval_s": manager.progress_interval_s}
    placed: dict[str, Any] = {
        "python": manager.python or sys.executable,
        "ports": range(manager.first_port, manager.last_port + 1),
        "stop_grace_s": manager.stop_grace_s,
    }
    if manager.bind_host is not None:
        placed["bind"] = manager.bind_host
    made: dict[str, Launcher] = {}
    for name in {group.launcher for role in fleet.roles for model in role.models for group in model.engine_groups}:
        if name == "local":
            from trimtab_manager.launch.local.launcher import LocalLauncher

            made[name] = LocalLauncher(
                folder,
                advertise=manager.advertise_host,
                **placed,
                **told,
            )
        elif name == "ray":
            from trimtab_manager.launch.ray import ray_launcher

            made[name] = ray_launcher(
                folder,
                address=manager.ray_address,
                # By default the interpreter that runs Ray on a node; this one's path means nothing there.
                **{**placed, "python": manager.python},
                **told,
            )
        else:
            from trimtab_manager.launch.external import ExternalLauncher

            made[name] = ExternalLauncher(**told)
    return made
