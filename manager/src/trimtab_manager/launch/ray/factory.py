"""Making the launcher, in an environment that may have no Ray."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from trimtab_manager.launch.ray.launcher import RayLauncher


def ray_launcher(
    log_folder: Path, *, address: str | None = None, run_id: str | None = None, **options: Any
) -> RayLauncher:
    """A launcher on a Ray cluster. It connects with the first launch.

    Args:
        log_folder: Where each node writes the logs of its engines.
        address: The cluster, as ``ray.init`` takes it; None: the one that this process is connected to, or else the
            one of ``RAY_ADDRESS`` or the one that runs on this machine.
        run_id: Tag of the placement groups, unique among the runs that live; by default a new one.
        options: Those of :class:`~trimtab_manager.launch.ray.launcher.RayLauncher`.

    Raises:
        LaunchError: Ray is not installed.
    """
    records = logging.getLogRecordFactory()
    try:
        from trimtab_manager.launch.ray.launcher import RayLauncher
        from trimtab_manager.launch.ray.run import RayRun
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "ray":
            raise
        raise LaunchError(
            "launcher 'ray' needs Ray, which is not installed here: pip install 'trimtab-manager[ray]', the same "
            "version as on the cluster, on the manager's host and on every node"
        ) from None
    finally:
        # Importing Ray makes every log record of this process carry a stamp of Ray's.
        logging.setLogRecordFactory(records)
    return RayLauncher(RayRun(address=address, run_id=run_id), log_folder, **options)
