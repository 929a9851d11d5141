"""What happens to a fleet, as log lines: an event in words, and the engine it is about.

The library's loggers hand every record to ``logging.getLogger("trimtab.manager.fleet")`` with the fields as attributes,
and leave format and destination to the application.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab_manager.fleet.registry import Topology

logger = logging.getLogger("trimtab.manager.fleet")


class Events:
    """The log of one pool's engines.

    Args:
        pool: ``role/model``, a field of every record.
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool

    def info(self, event: str, *, engine: str | None = None, generation: int | None = None, **fields: object) -> None:
        """Something that belongs to a life as it should be."""
        self._log(logging.INFO, event, engine, generation, fields)

    def warning(
        self, event: str, *, engine: str | None = None, generation: int | None = None, **fields: object
    ) -> None:
        """Something that somebody may have to look at."""
        self._log(logging.WARNING, event, engine, generation, fields)

    def published(self, topology: Topology, event: str, **fields: object) -> None:
        """A new topology, and why there is one."""
        self._log(logging.INFO, event, None, None, {"topology_revision": topology.revision, **fields})

    def _log(
        self, level: int, event: str, engine: str | None, generation: int | None, fields: dict[str, object]
    ) -> None:
        known = {"pool": self._pool, "engine": engine, "generation": generation, **fields}
        logger.log(level, event, extra={key: value for key, value in known.items() if value is not None})
