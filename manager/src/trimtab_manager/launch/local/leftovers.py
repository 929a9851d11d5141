"""What an earlier manager of a run left on this machine: looked for once, and whenever a port is taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from trimtab_manager.launch.local.orphans import is_orphan, kill_group, kill_orphans, owners

log = logging.getLogger(__name__)


class Leftovers:
    """The leftovers of one run.

    Args:
        run_id: The run.
        are_possible: Whether there can have been an earlier manager of it; a run with a fresh id has none.
    """

    def __init__(self, run_id: str, *, are_possible: bool) -> None:
        self._run_id = run_id
        self._are_possible = are_possible
        self._ending: asyncio.Future[Any] | None = None

    async def end(self) -> None:
        """Ends all of them, the first time; who calls meanwhile waits too."""
        if not self._are_possible:
            return
        if self._ending is None:
            self._ending = asyncio.get_running_loop().run_in_executor(None, kill_orphans, self._run_id)
        await asyncio.shield(self._ending)

    def free(self, ports: Sequence[int]) -> bool:
        """End those that have one of these ports, and name everybody else in the log; whether any was ended."""
        ended = False
        for port, owner in owners(ports).items():
            if owner is None:
                log.warning(
                    "port %d is in use by a process that cannot be seen from here; another block is taken", port
                )
            elif is_orphan(owner.environment, self._run_id):
                log.warning("port %d is in use by %s, a leftover of this run; it is ended", port, owner)
                kill_group(owner.pid, self._run_id)
                ended = True
            else:
                log.warning("port %d is in use by %s; another block is taken", port, owner)
        return ended
