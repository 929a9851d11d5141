"""Answers that were made with other weights than their leases say, as log lines.

Such an answer is complete, and useless to whoever trains on it. Usually somebody updated an engine behind the router's
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from trimtab._core import DataPlane

logger = get_logger("gateway")


def log_version_mismatches(data_plane: DataPlane) -> None:
    """Write what was seen since the last call: one line per pool and engine, with the last answer as the example."""
    for mismatch in data_plane.take_version_mismatches():
        logger.warning("engine answered with other weights than its leases say", **mismatch)
