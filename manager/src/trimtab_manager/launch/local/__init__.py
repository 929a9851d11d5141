"""Engines as processes of this machine.

Example:
    >>> launcher = LocalLauncher(log_folder=Path("logs"))
    >>> handle = await launcher.launch(request)
    >>> print(handle.url, handle.facts["pids"])
    >>> await launcher.close()
"""

from trimtab_manager.launch.local.launcher import LocalLauncher

__all__ = ["LocalLauncher"]
